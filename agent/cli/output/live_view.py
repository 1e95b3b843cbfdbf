"""The live view of a task: its graph with the state of each step, cut to the screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.cli.output import task_view, terminal
from agent.cli.output.transcript import used

if TYPE_CHECKING:
    from rich.text import Text

    from agent.workflows.graph import Graph

_MAX_LINES = 60
_LINES_BESIDE = 5
"""Lines of the screen without steps: headline, usage, the cut, the cursor."""


def running_view(
    document: dict[str, Any], graph: "Graph", calls: Sequence[str], height: int
) -> "Text":
    """Return the view of a running task: the graph, and the latest model calls."""
    most = max(1, height - _LINES_BESIDE - len(calls))
    lines = _drawn(document, graph)
    if len(lines) > most:
        lines = _active_lines(document, most)
    text = _coloured(lines)
    if document["usage"]["turns"]:
        text.append(f"usage: {used(document['usage'])}\n", "bold")
    for line in calls:
        text.append(f"  {terminal.harmless(line)}\n", "dim")
    headline = task_view.headline(document)
    took = terminal.seconds_between(document["started_at"], document["ended_at"])
    text.append(f"{headline}, {terminal.duration(took)}", terminal.style_of(document["activity"]))
    return text


def last_view(document: dict[str, Any], graph: "Graph") -> "Text":
    """Return the view that stays on the screen when the command ends."""
    lines = _drawn(document, graph)
    if len(lines) > _MAX_LINES:
        lines = _active_lines(document, _MAX_LINES)
    text = _coloured(lines)
    text.rstrip()
    return text


def _drawn(document: dict[str, Any], graph: "Graph") -> list[str]:
    steps = [step for step in document["steps"] if step["parallel_index"] is None]
    ended = _ended_items(document)
    notes = {step["name"]: _note(step, ended, document["status"]) for step in steps}
    return task_view.graph_lines(document, graph, notes)


def _active_lines(document: dict[str, Any], most: int) -> list[str]:
    """List only active and failed steps, and count the others."""
    steps = [step for step in document["steps"] if step["parallel_index"] is None]
    active = [step for step in steps if step["status"] not in ("pending", "succeeded", "skipped")]
    ended, status = _ended_items(document), document["status"]
    lines = [
        f"{terminal.marked(step['status'])} {step['name']}  {_note(step, ended, status)}".rstrip()
        for step in active[: most - 1]
    ]
    ended_count = sum(step["ended_at"] is not None for step in steps)
    more = f", {len(active) - len(lines)} more active" if len(active) > len(lines) else ""
    return [*lines, f"… {ended_count} of {len(steps)} steps done{more}"]


def _ended_items(document: dict[str, Any]) -> dict[int, int]:
    """Count the items of each group that have ended."""
    ended: dict[int, int] = {}
    for step in document["steps"]:
        if step["parallel_index"] is not None and step["ended_at"] is not None:
            ended[step["index"]] = ended.get(step["index"], 0) + 1
    return ended


def _note(step: dict[str, Any], ended_items: dict[int, int], task_status: str) -> str:
    """Return the state of a step in a few words."""
    parts = []
    if step["attempt"] > 1 and step["status"] != "skipped":
        parts.append(f"attempt {task_view.attempt(step)}")
    if step["parallel_count"] is not None and step["status"] == "waiting":
        parts.append(f"{ended_items.get(step['index'], 0)} of {step['parallel_count']} done")
    elif step["status"] == "running" or (step["ended_at"] and step["status"] != "skipped"):
        parts.append(task_view.took(step))
    if step["parallel_count"] is not None and step["status"] == "succeeded":
        count = step["parallel_count"]
        parts.append(f"{count or 'no'} item{'' if count == 1 else 's'}")
    reason = task_view.reason(step, task_status)
    if reason and not (step["parallel_count"] is not None and step["status"] == "waiting"):
        parts.append(terminal.one_line(reason, 70))
    return ", ".join(part for part in parts if part)


def _coloured(lines: list[str]) -> "Text":
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for line in lines:
        text.append(terminal.harmless(line) + "\n", style=_style_of(line))
    return text


def _style_of(line: str) -> str:
    for mark, style in terminal.STYLES.values():
        if mark in line:
            return style
    return ""
