"""Triggers as documents: the same for every surface, read in one snapshot."""

import difflib
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from itertools import islice
from typing import Any, Final

from agent.core.clock import to_iso
from agent.core.state_machine import TriggerStatus
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import firing_rows, trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import NotFoundError, RefusedError
from agent.triggers.local_time import zone_name, zone_of_spec
from agent.triggers.run_builder import instant_key
from agent.triggers.schedules.instants import Timing
from agent.triggers.specs import SCHEDULE
from agent.workflows.compile.watch_sources import SOURCES
from agent.workflows.durations import format_duration

Json = Any

RECENT: Final = 10
"""Firings that each entry of a list shows."""
UPCOMING: Final = 5
_MOST_SKIPPED: Final = 100
_KINDS: Final = {"schedule": "schedule", "watch": "watcher"}


class InvalidCursorError(ValueError):
    """The cursor of a page cannot be read."""


def trigger_list(
    connection: Connection,
    kind: str | None = None,
    *,
    now: int,
    workflow: str | None = None,
    status: str | None = None,
    after: str | None = None,
    most: int | None = None,
) -> list[dict[str, Json]]:
    """Return triggers in the order of their ids, from the one after `after` on.

    Each is a short document; removed ones are returned only if that status is asked for.
    """
    rows = (
        row
        for row in sorted(trigger_rows.all_rows(connection, kind), key=lambda row: row.id)
        if (row.status == status if status else row.status != TriggerStatus.REMOVED)
        and workflow in (None, row.workflow)
        and (after is None or row.id > after)
    )
    return [_summary(connection, row, now) for row in islice(rows, most)]


def trigger_document(connection: Connection, row: TriggerRow, now: int) -> dict[str, Json]:
    """Return everything about a trigger, with its latest firings."""
    document = _summary(connection, row, now)
    timing = _timing(row)
    document |= {
        "definition": decode(row.spec),
        "upcoming": [] if timing is None else _upcoming(connection, row, timing, now, UPCOMING),
        "queued": firing_rows.count_queued(connection, row.id),
        "created_at": to_iso(row.created_at),
        "removed_at": to_iso(row.removed_at),
        "resumed_at": to_iso(row.resumed_at),
        "firings": firings_page(connection, row.id, 2 * RECENT)[0],
    }
    return document


def find_row(connection: Connection, trigger_id: str) -> TriggerRow:
    """Return the trigger of an id."""
    row = trigger_rows.find(connection, trigger_id)
    if row is None:
        raise NotFoundError(f"there is no trigger {trigger_id!r}")
    return row


def firings_page(
    connection: Connection, trigger_id: str, most: int, cursor: str | None = None
) -> tuple[list[dict[str, Json]], str | None]:
    """Return firings of a trigger, the newest first, and the cursor of the page that follows."""
    rows = firing_rows.of_trigger(connection, trigger_id, most + 1, _read_cursor(cursor))
    shown = rows[:most]
    last = shown[-1] if len(rows) > most else None
    following = None if last is None else f"{last['recorded_at']}.{last['key']}"
    return [_firing_document(row) for row in shown], following


def _read_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    at, point, key = cursor.partition(".")
    if not (at.isascii() and at.isdigit() and len(at) < 19 and point):
        raise InvalidCursorError("the cursor is not one of this list: use `next` of a page")
    return int(at), key


def find_trigger(candidates: Sequence[Mapping[str, Json]], text: str, kind: str | None) -> str:
    """Return the id that a text means: an id, a unique name, or a workflow with one trigger."""
    what = _KINDS.get(kind or "", "trigger")
    possible = [candidate for candidate in candidates if kind in (None, candidate["kind"])]
    if any(candidate["id"] == text for candidate in possible):
        return text
    for name in ("name", "workflow"):
        matching = [candidate for candidate in possible if candidate[name] == text]
        # A removed trigger is meant only where no other is.
        matching = [
            candidate for candidate in matching if candidate["status"] != TriggerStatus.REMOVED
        ] or matching
        if len(matching) == 1:
            return str(matching[0]["id"])
        if matching:
            ids = ", ".join(str(candidate["id"]) for candidate in matching)
            raise RefusedError(f"{text!r} could be any of: {ids}")
    raise NotFoundError(f"there is no {what} {text!r}{_hint(candidates, possible, text)}")


def _hint(
    candidates: Sequence[Mapping[str, Json]], possible: Sequence[Mapping[str, Json]], text: str
) -> str:
    other = next(
        (candidate for candidate in candidates if text in (candidate["id"], candidate["name"])),
        None,
    )
    if other is not None:
        return f": it is a {_KINDS[other['kind']]}"
    known = {
        str(candidate[name]): str(candidate["id"])
        for candidate in possible
        for name in ("name", "id")
    }
    near = difflib.get_close_matches(text, known, n=1)
    return f"; did you mean {known[near[0]]!r}?" if near else ""


def zone_of(row: TriggerRow) -> tzinfo:
    """Return the time zone in which the times of a trigger are written and shown."""
    return zone_of_spec(decode(row.spec))


def _summary(connection: Connection, row: TriggerRow, now: int) -> dict[str, Json]:
    spec = decode(row.spec)
    recent = [
        _firing_document(firing) for firing in firing_rows.of_trigger(connection, row.id, RECENT)
    ]
    document: dict[str, Json] = {
        "id": row.id,
        "workflow": row.workflow,
        "version": row.workflow_version,
        "name": row.name,
        "kind": row.kind,
        "status": row.status,
        "pause_reason": row.pause_reason if row.status == TriggerStatus.PAUSED else None,
        "paused_until": to_iso(row.paused_until),
        "problem": row.problem,
        "timezone": zone_name(zone_of(row)),
        "next_at": _next_at(connection, row, now),
        "when": _when(row.kind, spec),
        "recent": recent,
    }
    if row.kind == SCHEDULE:
        return document | {"last_at": _last_at(recent, to_iso(now) or "")}
    return document | {
        "source": next((name for name in SOURCES if name in spec), ""),
        "polls": row.polls,
        "failures": row.failures,
        "last_ok_at": to_iso(row.last_ok_at),
        "last_item_at": to_iso(row.last_item_at) if recent else None,
        "last_error": row.last_error,
        "alert": row.alert,
    }


def _last_at(recent: list[dict[str, Json]], now: str) -> str | None:
    """Return the last instant that has its fate, or the last run that a person started."""
    times = (
        firing["until_at"] or firing["nominal_at"] or firing["recorded_at"] for firing in recent
    )
    return max((time for time in times if time <= now), default=None)


def _next_at(connection: Connection, row: TriggerRow, now: int) -> str | None:
    """Return when a trigger is due next; an instant that the operator skips does not count."""
    timing = _timing(row)
    if row.status != TriggerStatus.ACTIVE or row.next_at is None or timing is None:
        return to_iso(row.next_at) if row.status == TriggerStatus.ACTIVE else None
    upcoming = _upcoming(connection, row, timing, now, 1)
    return upcoming[0] if upcoming else None


def _upcoming(
    connection: Connection, row: TriggerRow, timing: Timing, now: int, most: int
) -> list[str]:
    """Return the next instants of an active schedule, with their jitter."""
    if row.status != TriggerStatus.ACTIVE:
        return []
    remarks: list[str] = []
    nominal = row.next_nominal
    for _ in range(most + _MOST_SKIPPED):
        if nominal is None or len(remarks) == most:
            break
        is_known = firing_rows.known_keys(connection, row.id, [instant_key(nominal)])
        if not is_known:
            remarks.append(to_iso(timing.due(nominal)) or "")
        # Overdue instants take one pass of the daemon, however many they are.
        nominal = timing.next_after(max(nominal, now))
    return remarks


def _timing(row: TriggerRow) -> Timing | None:
    """Return the instants of a schedule; None for a watcher, and for one that cannot be read."""
    try:
        if row.kind != SCHEDULE:
            return None
        return Timing.of(decode(row.spec), row.anchor_at, row.id)
    except Exception:
        return None


def _when(kind: str, spec: dict[str, Json]) -> str:
    """Return the timing of a trigger in one line, as its definition writes it."""
    every = spec.get("every_seconds")
    if kind != SCHEDULE:
        return f"every {format_duration(every)}" if every else ""
    if spec.get("cron"):
        return f"cron {spec['cron']}"
    return f"every {format_duration(every)}" if every else f"at {', '.join(map(str, spec['at']))}"


def _firing_document(row: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "key": row["key"],
        "status": row["status"],
        "reason": row["reason"],
        "nominal_at": to_iso(row["nominal_at"]),
        "due_at": to_iso(row["due_at"]),
        "until_at": to_iso(row["until_at"]),
        "count": row["count"],
        "task": row["task_id"],
        "recorded_at": to_iso(row["recorded_at"]),
    }
