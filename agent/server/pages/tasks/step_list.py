"""The steps of a task as a list: in the order of the graph, with lanes, runs of done steps folded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from agent.core.state_machine import TASK_ENDED
from agent.server.pages.drawings.lanes import LaneDrawing, LaneRow, draw_lanes
from agent.server.pages.drawings.layered_graph import reduced
from agent.server.pages.framework import templates
from agent.server.pages.tasks import step_words
from agent.workflows.draw import downwards

Document = dict[str, Any]

FOLD_FROM: Final = 12
"""How many steps a task must have before runs of done steps are folded."""
_SHORTEST_RUN: Final = 4
_QUIET: Final = frozenset({"succeeded", "kept", "skipped", "canceled", "pending"})
_MOST_ROWS: Final = 300


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One step of the list."""

    step: Document
    status: str
    reason: str
    until: str | None
    """When its wait ends, if that is known."""
    attempt: str
    took: str
    since: str | None
    """When it started, if it runs or waits."""
    path: str
    """The address of its page."""
    note: str
    """How many items a group has, and how many have ended."""
    items: tuple[Document, ...]
    """Items of a group that need attention."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One row: a step, or a run of steps with the same status."""

    entries: tuple[StepEntry, ...]
    lane: LaneRow

    @property
    def is_folded(self) -> bool:
        return len(self.entries) > 1


@dataclass(frozen=True, slots=True)
class StepList:
    """All rows, and the number of each status."""

    rows: list[StepRow]
    lanes: LaneDrawing
    summary: str
    left_out: int
    """Steps that the page leaves out."""


def step_list(task: Document) -> StepList:
    """Return the list of a task's steps (`task_overview`)."""
    steps = task["steps"]
    entries = [_entry(step, task) for step in steps]
    known = range(len(steps))
    parents = reduced([[p for p in step["depends_on"] if p in known] for step in steps])
    order = downwards(parents)
    runs = _runs([entries[index] for index in order], is_folding=len(steps) >= FOLD_FROM)
    row_of = {order[place]: number for number, run in enumerate(runs) for place in run}
    above: list[list[int]] = [[] for _ in runs]
    for index, own in enumerate(parents):
        for parent in own:
            if row_of[parent] != row_of[index]:
                above[row_of[index]].append(row_of[parent])
    lanes = draw_lanes(reduced(above))
    rows = [
        StepRow(tuple(entries[order[place]] for place in run), lane)
        for run, lane in zip(runs, lanes.rows, strict=True)
    ]
    counts = Counter(entry.status for entry in entries)
    return StepList(
        rows[:_MOST_ROWS],
        lanes,
        summary(counts),
        task["step_count"] - sum(len(row.entries) for row in rows[:_MOST_ROWS]),
    )


def summary(counts: Counter[str]) -> str:
    """Return how many steps there are of each status, as in `3 done, 1 failed`."""
    known = [status for status in step_words.ORDER if counts[status]]
    quiet_last = sorted(known, key=lambda status: status not in ("succeeded", "kept"))
    return ", ".join(
        f"{counts[status]} {step_words.WORDS.get(status, status)}" for status in quiet_last
    )


def _entry(step: Document, task: Document) -> StepEntry:
    items = tuple(
        {**item, "took": took(item)} for item in task["items"] if item["index"] == step["index"]
    )
    return StepEntry(
        step,
        step_words.shown_status(step, task["status"]),
        step_words.reason(step, task["status"]),
        step_words.until(step, task["status"]),
        step_words.attempt(step),
        took(step),
        since(step, task["status"]),
        f"/tasks/{task['id']}/steps/{quote(step['name'], safe='')}",
        items_note(step),
        items,
    )


def took(step: Document) -> str:
    """Return how long a step ran, if it has ended; of a kept one, where it ran."""
    seconds = step["ran_seconds"]
    if seconds is None:
        seconds = templates.seconds_between(step["started_at"], step["ended_at"])
    return "" if seconds is None or step["ended_at"] is None else templates.duration(seconds)


def since(step: Document, task_status: str) -> str | None:
    """Return when a step began that runs or waits."""
    is_under_way = step["status"] in ("running", "waiting") and task_status not in TASK_ENDED
    return step["started_at"] if is_under_way else None


def items_note(step: Document) -> str:
    """Return how many items a group has, and how many have ended while some have not."""
    count = step["parallel_count"]
    if count is None:
        return ""
    ended = sum(step["items"].get(status, 0) for status in ("succeeded", "failed", "skipped"))
    failed = step["items"].get("failed", 0)
    note = f"×{count}" if ended >= count or not step["items"] else f"{ended}/{count}"
    return f"{note}, {failed} failed" if failed else note


def _runs(entries: Sequence[StepEntry], *, is_folding: bool) -> list[list[int]]:
    """Return the places that share a row: neighbours with the same quiet status."""
    runs: list[list[int]] = []
    for place, entry in enumerate(entries):
        before = entries[runs[-1][0]] if runs else None
        is_same = before is not None and before.status == entry.status
        if is_folding and is_same and entry.status in _QUIET and not entry.items:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [part for run in runs for part in _split(run)]


def _split(run: list[int]) -> list[list[int]]:
    return [run] if len(run) >= _SHORTEST_RUN else [[place] for place in run]
