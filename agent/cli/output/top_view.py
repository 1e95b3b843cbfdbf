"""The view of `agent top`: the agent's activity on one screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.cli.output import table, terminal
from agent.core.escape import harmless

_BAR = 20
_ENDED = ("succeeded", "failed", "canceled")
_LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """A document of the load, with the instant at which it was read by the monotonic clock."""

    load: dict[str, Any]
    at: float


def lines(now: Sample, before: Sample | None, height: int | None = None) -> list[str]:
    """Return the view; rates need a sample from before, and `height` bounds the list of steps."""
    load = now.load
    lines = [_headline(load), _queue(now, before), _tasks(load), _spend(load["spend"]), ""]
    workers = [
        (
            terminal.short(worker["id"]),
            f"{worker['host']}:{worker['process_id']}",
            str(worker["running"]),
            terminal.duration(terminal.seconds_between(worker["started_at"], load["at"])),
        )
        for worker in load["workers"]
    ]
    lines += _table(("worker", "process", "running", "up"), workers)
    steps = [
        (
            terminal.duration(step["seconds"]),
            step["workflow"],
            step["step"],
            step["kind"],
            str(step["attempt"]),
            terminal.short(step["task"]),
        )
        for step in load["slowest"]
    ]
    if height is not None:
        steps = steps[: max(_LEAST_STEPS, height - len(lines) - 3)]
    lines.append("")
    return lines + _table(("running for", "workflow", "step", "kind", "attempt", "task"), steps)


def _headline(load: dict[str, Any]) -> str:
    taken, total = load["slots"]["taken"], load["slots"]["total"]
    filled = 0 if not total else min(_BAR, round(_BAR * taken / total))
    bar = "█" * filled + "·" * (_BAR - filled)
    workers = terminal.counted(len(load["workers"]), "worker")
    return f"{workers}  slots {bar} {taken}/{total}  {terminal.moment(load['at'])}"


def _queue(now: Sample, before: Sample | None) -> str:
    load = now.load
    queue = load["queue"]
    text = f"queue: {queue['due']:,} due, the oldest for {terminal.duration(queue['age_seconds'])}"
    if before is not None and now.at > before.at:
        ended = sum(
            load["tasks"].get(status, 0) - before.load["tasks"].get(status, 0) for status in _ENDED
        )
        text += f"; {max(0, ended) / (now.at - before.at):.1f} tasks ended/s"
    if queue["schedule_lag_seconds"] > 1:
        text += f"; schedules {terminal.duration(queue['schedule_lag_seconds'])} late"
    if load["questions"] or load["unknown"]:
        questions = terminal.counted(load["questions"], "question")
        text += f"; {questions}, {terminal.counted(load['unknown'], 'unknown effect')}"
    return text


def _tasks(load: dict[str, Any]) -> str:
    tasks, steps, is_served = dict(load["tasks"]), load["steps"], bool(load["workers"])
    is_served = is_served or not tasks.get("running")
    tasks["failed"] = tasks.get("failed", 0) - load["retried"]
    open_tasks = ", ".join(
        f"{tasks.get(activity, 0):,} {terminal.activity_of(activity, is_served=is_served)}"
        for activity in ("running", "waiting", "paused", "failed")
    )
    return f"tasks: {open_tasks}; steps: {steps.get('running', 0):,} running"


def _spend(day: dict[str, Any]) -> str:
    limit = "" if day["usd_limit"] is None else f" of ${day['usd_limit']:.2f}"
    return (
        f"today: ${day['usd']:.4f}{limit}, {day['tokens']:,} tokens,"
        f" {terminal.duration(day['seconds'])} in models"
    )


def _table(columns: tuple[str, ...], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return [f"{columns[0]}: none"]
    safe = [[harmless(cell) for cell in row] for row in rows]
    return [table.joined(row) for row in table.lines(columns, safe, width=terminal.width())]
