"""The drawings of a task: its graph with statuses, and its timeline."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.server.pages.drawings.folding import GraphStep
from agent.server.pages.drawings.graph_drawing import GraphDrawing, Node, draw_graph
from agent.server.pages.drawings.timeline import (
    SHOWN_ROWS,
    Span,
    Timeline,
    TimelineRow,
    draw_timeline,
    joined,
    ran_seconds,
)
from agent.server.pages.tasks import step_list, step_words
from agent.workflows.graph import Graph

Document = dict[str, Any]

_MOST_ROWS: Final = 40
_MOST_SPANS: Final = 60
_WAITS: Final = ("waiting", "paused")
_LOUD: Final = frozenset({"failed", "running", "waiting", "paused"})
_ENDINGS: Final = {
    "step.succeeded": "succeeded",
    "step.failed": "failed",
    "step.retried": "failed",
    "step.lost": "failed",
    "step.returned": "skipped",
    "step.skipped": "skipped",
    "step.abandoned": "skipped",
    "step.paused": "paused",
    "step.waiting": "waiting",
}
"""How an attempt is drawn that ended with each event."""

# The same graph is drawn for every viewer, and again while only other tasks change.
_drawn = lru_cache(maxsize=64)(draw_graph)


def task_graph(task: Document) -> GraphDrawing:
    """Draw the graph of a task (`task_overview`)."""
    known = range(len(task["steps"]))
    return _drawn(
        tuple(
            Node(
                GraphStep(
                    step["name"],
                    step_words.shown_status(step, task["status"]),
                    tuple(parent for parent in step["depends_on"] if parent in known),
                ),
                step_list.items_note(step),
                step["parallel_count"] is not None,
            )
            for step in task["steps"]
        )
    )


def workflow_graph(graph: Graph) -> GraphDrawing:
    """Draw the graph of a definition: steps that ask a person keep their boxes."""
    return _drawn(
        tuple(
            Node(
                GraphStep(
                    step.name,
                    "defined",
                    tuple(parents),
                    is_marked=step.approval is not None or step.kind in ("approval", "input"),
                ),
                step.kind if step.fanout is None else f"{step.kind} ×n",
                step.fanout is not None,
            )
            for step, parents in zip(graph.steps, graph.parents, strict=True)
        )
    )


def add_durations(task: Document, now: int) -> None:
    """Add to a task's steps and items `spans`, and how long they ran: `ran_seconds`."""
    by_step: dict[int, list[Span]] = {}
    by_id: dict[str, list[Span]] = {}
    for step_id, index, span in _spans(task["changes"], None if task["ended_at"] else now):
        by_step.setdefault(index, []).append(span)
        by_id.setdefault(step_id, []).append(span)
    for index, status, number, start, end in task["item_runs"]:
        span = Span(start, end, status, f"{number} together", status in _WAITS)
        by_step.setdefault(index, []).append(span)
    for step in task["steps"]:
        step["spans"] = sorted(by_step.get(step["index"], ()), key=lambda span: span.start)
    for item in task["items"]:
        item["spans"] = by_id.get(item["id"], [])
    for step in task["steps"] + task["items"]:
        step["ran_seconds"] = ran_seconds(step["spans"])


def task_timeline(task: Document, now: int) -> Timeline:
    """Draw the attempts and waits of each step (`add_durations`), with the child tasks below the steps."""
    children: dict[str, list[Document]] = {}
    for child in task["children"]:
        children.setdefault(child["step"].partition("[")[0], []).append(child)
    rows: list[TimelineRow] = []
    steps = {step["index"]: step for step in task["steps"] if step["spans"]}
    starts = {index: step["spans"][0].start for index, step in steps.items()}
    drawn = 0
    for index in _chosen(starts, steps):
        if len(rows) >= _MOST_ROWS:
            break
        drawn += 1
        step = steps[index]
        href = f"/tasks/{task['id']}/steps/{step['name']}"
        since, seconds = step_list.since(step, task["status"]), step["ran_seconds"]
        spans = joined(step["spans"], _MOST_SPANS)
        rows.append(TimelineRow(step["name"], spans, 0, href, seconds=seconds, since=since))
        rows += [_child_row(child, now) for child in children.get(step["name"], ())]
    return draw_timeline([row for row in rows[:_MOST_ROWS] if row.spans], len(starts) - drawn)


def _chosen(starts: dict[int, int], steps: dict[int, Document]) -> list[int]:
    """Return the steps to draw in the order of their starts.

    Those that need attention are among the rows that the page does not fold.
    """
    by_start = sorted(starts, key=lambda index: starts[index])
    ranked = sorted(by_start, key=lambda index: steps[index]["status"] not in _LOUD)
    first = set(ranked[:SHOWN_ROWS])
    return sorted(ranked[:_MOST_ROWS], key=lambda index: (index not in first, starts[index]))


def _spans(
    changes: Iterable[tuple[str, int, int, str, int]], now: int | None
) -> Iterator[tuple[str, int, Span]]:
    """Yield (step id, index, span) for each attempt of a step or an item, and for each wait between them."""
    open_since: dict[str, tuple[int, int, int, bool]] = {}
    for step_id, index, attempt, kind, at in changes:
        began = open_since.pop(step_id, None)
        if began is not None:
            _, start, number, is_wait = began
            status = "waiting" if is_wait else _ENDINGS.get(kind, "succeeded")
            label = "waited" if is_wait else f"attempt {number}"
            yield step_id, index, Span(start, at, status, label, is_wait)
        if kind == "step.claimed":
            open_since[step_id] = (index, at, attempt, False)
        elif kind in ("step.waiting", "step.paused"):
            open_since[step_id] = (index, at, attempt, True)
    if now is not None:
        for step_id, (index, start, number, is_wait) in open_since.items():
            status, label = ("waiting", "waits") if is_wait else ("running", f"attempt {number}")
            yield step_id, index, Span(start, max(now, start), status, label, is_wait)


def _child_row(child: Document, now: int) -> TimelineRow:
    start, end = child["started_us"], child["ended_us"]
    spans: tuple[Span, ...] = ()
    if start is not None:
        is_wait = child["activity"] == "waiting"
        label = "child task, waits" if is_wait else "child task"
        spans = (Span(start, max(start, end or now), child["activity"], label, is_wait),)
    return TimelineRow(
        child["workflow"],
        spans,
        1,
        f"/tasks/{child['id']}",
        child["id"],
        None if start is None or end is None else (end - start) / SECOND,
        to_iso(start) if end is None else None,
    )
