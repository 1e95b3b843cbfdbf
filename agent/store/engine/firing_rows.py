"""The SQL of firings: the fate of each instant of a schedule and each item of a watcher.

Firings are written under the lock of their trigger's row (`trigger_rows`). One row holds for one key
for ever: a second insert changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from agent.core.clock import CLOCK_ERROR_US
from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of

_TYPES: Final[Mapping[str, ColumnType]] = {
    "trigger_id": "text",
    "key": "text",
    "status": "text",
    "reason": "text",
    "nominal_at": "int",
    "due_at": "int",
    "task_id": "text",
    "run_id": "text",
    "input": "text",
    "context": "text",
    "workflow_version": "int",
    "spec_hash": "text",
    "until_at": "int",
    "count": "int",
    "recorded_at": "int",
    "seen_at": "int",
}
COLUMNS: Final = tuple(_TYPES)
_SELECTED: Final = ", ".join(f'f."{name}"' for name in COLUMNS)

DAY_US: Final = 86_400_000_000


def next_release(connection: Connection, now: int) -> int | None:
    """Return when the next queued run may start that waits for its time only."""
    rows = connection.query(
        "SELECT min(due_at) FROM firings WHERE status = 'queued' AND due_at > :now", now=now
    )
    return None if rows[0][0] is None else int(rows[0][0])


def releasable(connection: Connection, now: int) -> list[str]:
    """Return active triggers with a queued run that is due and, as far as can be seen, may start."""
    rows = connection.query(
        "SELECT DISTINCT f.trigger_id FROM firings AS f JOIN triggers AS t ON t.id = f.trigger_id"
        " WHERE f.status = 'queued' AND (f.due_at <= :now OR f.recorded_at > :ahead)"
        " AND t.status = 'active' ORDER BY f.trigger_id",
        now=now,
        ahead=now + CLOCK_ERROR_US,
    )
    return [str(row[0]) for row in rows]


def queued(tx: Connection, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the queued firings of triggers, in the order in which they may start."""
    rows = tx.query(
        f"SELECT {_SELECTED} FROM firings AS f WHERE f.status = 'queued'"
        f" AND f.trigger_id IN {tx.sql.ids()} ORDER BY f.due_at, f.nominal_at, f.key",
        ids=set_of(ids),
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def known_keys(connection: Connection, trigger_id: str, keys: Sequence[str]) -> set[str]:
    """Return which of these keys have a fate already."""
    rows = connection.query(
        f"SELECT key FROM firings WHERE trigger_id = :id AND key IN {connection.sql.ids()}",
        id=trigger_id,
        ids=set_of(keys),
    )
    return {str(row[0]) for row in rows}


def taken_keys(tx: Connection, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return which of these (trigger id, key) have a fate already."""
    if not pairs:
        return set()
    rows = tx.query(
        f"SELECT f.trigger_id, f.key FROM {tx.sql.rows(trigger_id='text', key='text')}"
        " JOIN firings AS f ON f.trigger_id = r.trigger_id AND f.key = r.key",
        rows=set_of(pairs),
    )
    return {(str(trigger_id), str(key)) for trigger_id, key in rows}


@cache
def _insert(sql: Sql) -> str:
    names = ", ".join(f'"{name}"' for name in _TYPES)
    picked = ", ".join(f'r."{name}"' for name in _TYPES)
    return (
        f"INSERT INTO firings ({names}) SELECT {picked} FROM {sql.rows(**_TYPES)}"
        " WHERE true ON CONFLICT DO NOTHING RETURNING trigger_id, key"
    )


def insert(tx: Connection, rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Insert firings whose keys have no fate yet; return (trigger id, key) of those inserted."""
    values = [[row.get(name) for name in _TYPES] for row in rows]
    inserted = tx.query(_insert(tx.sql), rows=set_of(values))
    return {(str(trigger_id), str(key)) for trigger_id, key in inserted}


def settle_queued(tx: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Give queued firings their fate: (trigger id, key, status, reason, task id)."""
    columns = tx.sql.rows(
        trigger_id="text", key="text", status="text", reason="text", task_id="text"
    )
    tx.defer(
        "UPDATE firings SET status = r.status, reason = r.reason, task_id = r.task_id,"
        f" input = NULL, context = NULL FROM {columns} WHERE firings.trigger_id = r.trigger_id"
        " AND firings.key = r.key AND firings.status = 'queued'",
        rows=set_of(rows),
    )


def mark_seen(tx: Connection, trigger_id: str, keys: Sequence[str], now: int) -> None:
    """Record that a poll showed these items; written once a day, since it only bounds pruning."""
    tx.defer(
        f"UPDATE firings SET seen_at = :now WHERE trigger_id = :id AND key IN {tx.sql.ids()}"
        " AND (seen_at IS NULL OR seen_at < :yesterday)",
        id=trigger_id,
        ids=set_of(keys),
        now=now,
        yesterday=now - DAY_US,
    )


def mark_unchanged(tx: Connection, trigger_id: str, since: int, now: int) -> None:
    """Record that everything which was seen since then is still shown."""
    tx.defer(
        "UPDATE firings SET seen_at = :now WHERE trigger_id = :id AND seen_at >= :since",
        id=trigger_id,
        since=since,
        now=now,
    )


def of_trigger(
    connection: Connection,
    trigger_id: str,
    most: int,
    before: tuple[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the latest firings of a trigger, the newest first: those before a time and key."""
    at, key = (2**62, "") if before is None else before
    rows = connection.query(
        f"SELECT {_SELECTED} FROM firings AS f WHERE f.trigger_id = :id"
        " AND (f.recorded_at, f.key) < (:at, :key)"
        " ORDER BY f.recorded_at DESC, f.key DESC LIMIT :most",
        id=trigger_id,
        at=at,
        key=key,
        most=most,
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def find(connection: Connection, trigger_id: str, key: str) -> dict[str, Any] | None:
    """Return one firing."""
    rows = connection.query(
        f"SELECT {_SELECTED} FROM firings AS f WHERE f.trigger_id = :id AND f.key = :key",
        id=trigger_id,
        key=key,
    )
    return dict(zip(COLUMNS, rows[0], strict=True)) if rows else None


def by_request(connection: Connection, trigger_id: str, request_key: str) -> int | None:
    """Return the instant that a request has given its fate already."""
    rows = connection.query(
        "SELECT nominal_at FROM firings WHERE trigger_id = :id AND run_id = :request"
        " AND status = 'skipped'",
        id=trigger_id,
        request=request_key,
    )
    return int(rows[0][0]) if rows else None


def count_instants(connection: Connection, trigger_id: str, after: int, until: int) -> int:
    """Return how many instants later than `after` and up to `until` have a row of their own."""
    rows = connection.query(
        "SELECT count(*) FROM firings WHERE trigger_id = :id AND until_at IS NULL"
        " AND nominal_at > :after AND nominal_at <= :until",
        id=trigger_id,
        after=after,
        until=until,
    )
    return int(rows[0][0])


def count_queued(connection: Connection, trigger_id: str) -> int:
    """Return how many firings of a trigger wait to start."""
    rows = connection.query(
        "SELECT count(*) FROM firings WHERE trigger_id = :id AND status = 'queued'", id=trigger_id
    )
    return int(rows[0][0])


def counts(connection: Connection) -> dict[str, int]:
    """Return how many firings have each status."""
    rows = connection.query("SELECT status, count(*) FROM firings GROUP BY status ORDER BY status")
    return {str(status): int(count) for status, count in rows}
