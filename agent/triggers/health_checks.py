"""Finds problems of triggers, for `agent doctor`: overdue, failing, silent or broken ones."""

from collections.abc import Iterator
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.core.state_machine import TriggerStatus
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.triggers.specs import WATCH
from agent.triggers.watchers.paths.path_listener import has_library

_OVERDUE_SECONDS: Final = 120.0
_NO_LIBRARY: Final = (
    "changes of files would be noticed at once with the package watchfiles:"
    " `python -m pip install watchfiles`; or set `poll: true`"
)


def trigger_checks(
    connection: Connection, now: int, *, is_running: bool
) -> Iterator[tuple[str, str]]:
    """Yield (state, message) of each finding, or of a summary if there is none."""
    rows = [row for row in trigger_rows.all_rows(connection) if row.status != TriggerStatus.REMOVED]
    is_well = True
    for row in rows:
        for finding in _findings(row, now, is_running=is_running):
            is_well = False
            yield finding
    for message in _with_old_definitions(rows):
        is_well = False
        yield "warning", message
    for message in _polled_only(rows, is_running=is_running):
        is_well = False
        yield "warning", message
    if rows and is_well:
        schedules = sum(row.kind == "schedule" for row in rows)
        yield "ok", f"{schedules} schedules, {len(rows) - schedules} watchers"


def _findings(row: TriggerRow, now: int, *, is_running: bool) -> Iterator[tuple[str, str]]:
    plural = "schedules" if row.kind == "schedule" else "watchers"
    if row.status == TriggerStatus.BROKEN:
        yield "error", f"{row.id} cannot be used: {row.problem}"
    if row.status == TriggerStatus.PAUSED and row.paused_until is None:
        reason = f" ({row.pause_reason})" if row.pause_reason else ""
        yield "warning", f"{row.id} is paused{reason}: `agent {plural} resume {row.id}`"
    if row.status == TriggerStatus.ACTIVE and row.next_at is not None and is_running:
        late = (now - row.next_at) / SECOND
        if late > _OVERDUE_SECONDS and (row.owned_until or 0) < now:
            yield "error", f"{row.id} has been due since {_minute(row.next_at)}"
    if row.failures:
        times = "1 poll" if row.failures == 1 else f"{row.failures} polls in a row"
        # The output of a program, such as git, has several lines.
        yield "warning", f"{row.id}: {times} failed: {' '.join((row.last_error or '').split())}"
    elif row.last_error:
        yield "warning", f"{row.id}: {row.last_error}"
    if row.alert == "silent":
        yield "warning", f"{row.id} has found nothing new since {_minute(row.last_item_at)}"


def _minute(instant: int | None) -> str:
    return (
        "it began" if instant is None else f"{(to_iso(instant) or '')[:16].replace('T', ' ')} UTC"
    )


def _with_old_definitions(rows: list[TriggerRow]) -> Iterator[str]:
    """Yield which triggers keep their last good definition, one line a file."""
    by_problem: dict[str, list[str]] = {}
    for row in rows:
        if row.problem is not None and row.status != TriggerStatus.BROKEN:
            by_problem.setdefault(row.problem, []).append(row.id)
    for problem, ids in by_problem.items():
        verb = "keeps its" if len(ids) == 1 else "keep their"
        yield f"{_named(ids)} {verb} last good definition: {problem}"


def _named(ids: list[str]) -> str:
    return f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else ids[0]


def _polled_only(rows: list[TriggerRow], *, is_running: bool) -> Iterator[str]:
    """Yield why watchers are only polled whose source reports changes, one line a reason."""
    active = [row for row in rows if row.kind == WATCH and row.status == TriggerStatus.ACTIVE]
    by_reason: dict[str, list[str]] = {}
    for row in active:
        if row.not_listening is not None and is_running:
            by_reason.setdefault(row.not_listening, []).append(row.id)
        elif not has_library() and _would_listen(decode(row.spec)):
            by_reason.setdefault(_NO_LIBRARY, []).append(row.id)
    for reason, ids in by_reason.items():
        verb = "are" if len(ids) > 1 else "is"
        yield f"{_named(ids)} {verb} only polled, every so often: {reason}"


def _would_listen(spec: dict[str, Any]) -> bool:
    return "path" in spec and not spec["path"].get("poll", False)
