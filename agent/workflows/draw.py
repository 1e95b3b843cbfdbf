"""A graph drawn as text: one line a step, lanes for the dependencies."""

from collections.abc import Mapping, Sequence
from typing import Final

from agent.workflows.graph import Fanout, Graph, Step

MARKS: Final = {
    "pending": "○",
    "running": "●",
    "waiting": "◔",
    "paused": "◫",
    "succeeded": "✓",
    "failed": "✗",
    "skipped": "–",
    "canceled": "⊘",
}
_MAX_LANES: Final = 12
_MAX_NAMED_PARENTS: Final = 4


def draw(
    graph: Graph,
    statuses: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the lines of a drawing: each step below everything that it depends on.

    With statuses each step's mark and status are shown, and after them its note. A graph too wide
    for lanes is listed instead, each step with the names of those that it depends on.
    """
    order = downwards(graph.parents)
    rows = _lanes(graph, order, statuses)
    if rows is None:
        rows = [(_mark(graph.steps[index], statuses), index) for index in order]
        return _aligned(graph, rows, statuses, notes or {}, with_parents=True)
    return _aligned(graph, rows, statuses, notes or {}, with_parents=False)


_Row = tuple[str, int | None]
"""The drawn lanes, and the step that stands on this line, if one does."""


def downwards(parents: Sequence[Sequence[int]]) -> list[int]:
    """Order the steps so that branches stay together and each step follows its dependencies."""
    missing = [len(own) for own in parents]
    dependents: list[list[int]] = [[] for _ in parents]
    for index, own in enumerate(parents):
        for parent in own:
            dependents[parent].append(index)
    ready = [index for index in reversed(range(len(missing))) if missing[index] == 0]
    order = []
    while ready:
        index = ready.pop()
        order.append(index)
        released = []
        for child in dependents[index]:
            missing[child] -= 1
            if missing[child] == 0:
                released.append(child)
        ready += reversed(released)
    return order


def _lanes(graph: Graph, order: list[int], statuses: Mapping[str, str] | None) -> list[_Row] | None:
    """Draw lanes from each step to its dependents; None when there are too many at once."""
    lanes: list[int | None] = []
    rows: list[_Row] = []
    for index in order:
        own = [place for place, target in enumerate(lanes) if target == index]
        if not own:
            own = [_free_place(lanes, 0)]
            lanes[own[0]] = index
        if len(own) > 1:
            rows.append((_joint(lanes, own, "┴", "╯"), None))
            for place in own[1:]:
                lanes[place] = None
        mark = _mark(graph.steps[index], statuses)
        rows.append((_line(lanes, {own[0]: mark}), index))
        children = graph.dependents[index]
        lanes[own[0]] = children[0] if children else None
        places = [own[0]]
        for child in children[1:]:
            place = _free_place(lanes, own[0])
            lanes[place] = child
            places.append(place)
        if len(places) > 1:
            rows.append((_joint(lanes, places, "┬", "╮"), None))
        if len(lanes) > _MAX_LANES:
            return None
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


def _free_place(lanes: list[int | None], after: int) -> int:
    """Find an empty lane to the right of one, or make it."""
    for place in range(after, len(lanes)):
        if lanes[place] is None:
            return place
    lanes.append(None)
    return len(lanes) - 1


def _line(lanes: list[int | None], marks: Mapping[int, str]) -> str:
    cells = [marks.get(place, " " if target is None else "│") for place, target in enumerate(lanes)]
    return " ".join(cells).rstrip()


def _joint(lanes: list[int | None], places: list[int], middle: str, last: str) -> str:
    """Draw the line on which lanes part from the first of these places, or join it."""
    first, end = places[0], max(places)
    text = ""
    for place, target in enumerate(lanes):
        if place == first:
            cell = "├"
        elif place == end:
            cell = last
        elif place in places:
            cell = middle
        elif first < place < end:
            cell = "─" if target is None else "┼"
        else:
            cell = " " if target is None else "│"
        text += cell + ("─" if first <= place < end else " ")
    return text.rstrip()


def _aligned(
    graph: Graph,
    rows: list[_Row],
    statuses: Mapping[str, str] | None,
    notes: Mapping[str, str],
    *,
    with_parents: bool,
) -> list[str]:
    """Put names, kinds and statuses into columns beside the lanes."""
    width = max((len(lanes) for lanes, _ in rows), default=0)
    names = max((len(step.name) for step in graph.steps), default=0)
    kinds = max((len(_kind(step)) for step in graph.steps), default=0)
    lines = []
    for lanes, index in rows:
        if index is None:
            lines.append(lanes)
            continue
        step = graph.steps[index]
        parts = [f"{step.name:<{names}}", f"{_kind(step):<{kinds}}"]
        if statuses is not None:
            parts.append(f"{statuses.get(step.name, 'pending'):<9}")
        remarks = [notes.get(step.name, ""), _remarks(step, with_parents=with_parents)]
        parts.append("; ".join(remark for remark in remarks if remark))
        lines.append(f"{lanes:<{width}}  " + "  ".join(parts).rstrip())
    return lines


def _mark(step: Step, statuses: Mapping[str, str] | None) -> str:
    status = "pending" if statuses is None else statuses.get(step.name, "pending")
    return MARKS.get(status, "?")


def _kind(step: Step) -> str:
    return step.kind if step.fanout is None else f"{step.kind} {_times(step.fanout)}"


def _times(fanout: Fanout) -> str:
    if fanout.count is not None:
        return f"×{fanout.count}"
    if fanout.items is not None:
        return f"×{len(fanout.items)}"
    return "×n"


def _remarks(step: Step, *, with_parents: bool) -> str:
    remarks = []
    if step.fanout is not None and (of := step.fanout.items_of or step.fanout.count_of):
        remarks.append(f"{'for each of' if step.fanout.items_of else 'as often as'} {of}")
    if step.condition is not None:
        remarks.append(f"if {step.condition}")
    if step.run_on != "success":
        remarks.append("on failure" if step.run_on == "failure" else "always")
    if with_parents and step.depends_on:
        named = ", ".join(step.depends_on[:_MAX_NAMED_PARENTS])
        more = len(step.depends_on) - _MAX_NAMED_PARENTS
        remarks.append(f"after {named}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(remarks)
