"""The SQL of triggers and firings.

Lock order: tasks, budgets, triggers. Every change of a trigger happens under the lock of its row and
counts up its `version`; a firing holds only for the version that it was planned from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Rows
from agent.store.engine.writes import insert_rows, update_statement

TRIGGER_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "workflow": "text",
    "name": "text",
    "kind": "text",
    "spec": "text",
    "spec_hash": "text",
    "timing_hash": "text",
    "workflow_version": "int",
    "status": "text",
    "version": "int",
    "pause_reason": "text",
    "paused_until": "int",
    "resumed_at": "int",
    "problem": "text",
    "next_at": "int",
    "next_nominal": "int",
    "last_nominal": "int",
    "anchor_at": "int",
    "polls": "int",
    "failures": "int",
    "last_ok_at": "int",
    "last_item_at": "int",
    "last_error": "text",
    "skip_items": "text",
    "alert": "text",
    "owner": "text",
    "owned_until": "int",
    "directory": "text",
    "created_at": "int",
    "removed_at": "int",
}
"""Every column but the cursor, which may be large and is read by the polls alone."""

_FIRING_TYPES: Final[Mapping[str, ColumnType]] = {
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
FIRING_COLUMNS: Final = tuple(_FIRING_TYPES)

_ROW: Final = ", ".join(f"t.{name}" for name in TRIGGER_TYPES)
_OPEN: Final = "('pending', 'running', 'paused')"
DAY_US: Final = 86_400_000_000
CLOCK_ERROR_US: Final = 60_000_000
"""What was recorded later than this from now was recorded by a clock that ran ahead."""


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A stored trigger, without its cursor."""

    id: str
    workflow: str
    name: str
    kind: str
    spec: str
    spec_hash: str
    timing_hash: str
    workflow_version: int
    status: str
    version: int
    pause_reason: str | None
    paused_until: int | None
    resumed_at: int | None
    problem: str | None
    next_at: int | None
    next_nominal: int | None
    last_nominal: int | None
    anchor_at: int
    polls: int
    failures: int
    last_ok_at: int | None
    last_item_at: int | None
    last_error: str | None
    skip_items: str | None
    alert: str | None
    owner: str | None
    owned_until: int | None
    directory: str | None
    created_at: int
    removed_at: int | None


def _read(rows: Rows) -> list[TriggerRow]:
    return [TriggerRow(*row) for row in rows]


def lock(tx: Connection, ids: Sequence[str], *, is_waiting: bool = False) -> list[TriggerRow]:
    """Lock triggers in the order of their ids; without waiting, locked ones are left out."""
    words = tx.sql.lock if is_waiting else tx.sql.skip_locked
    return _read(
        tx.query(
            f"SELECT {_ROW} FROM triggers AS t WHERE t.id IN {tx.sql.ids()} ORDER BY t.id {words}",
            ids=set_of(ids),
        )
    )


def existing(tx: Connection, ids: Sequence[str]) -> set[str]:
    """Return which of these triggers exist."""
    rows = tx.query(f"SELECT id FROM triggers WHERE id IN {tx.sql.ids()}", ids=set_of(ids))
    return {str(row[0]) for row in rows}


def find(connection: Connection, trigger_id: str) -> TriggerRow | None:
    """Return one trigger."""
    rows = connection.query(f"SELECT {_ROW} FROM triggers AS t WHERE t.id = :id", id=trigger_id)
    return _read(rows)[0] if rows else None


def all_rows(connection: Connection, kind: str | None = None) -> list[TriggerRow]:
    """Return every trigger, or those of one kind, by id."""
    if kind is None:
        return _read(connection.query(f"SELECT {_ROW} FROM triggers AS t ORDER BY t.id"))
    return _read(
        connection.query(
            f"SELECT {_ROW} FROM triggers AS t WHERE t.kind = :kind ORDER BY t.id", kind=kind
        )
    )


def active_versions(connection: Connection) -> dict[str, int]:
    """Return the version of every trigger in use."""
    rows = connection.query("SELECT id, version FROM triggers WHERE status = 'active'")
    return {str(trigger_id): int(version) for trigger_id, version in rows}


def active_watchers(connection: Connection) -> list[tuple[str, str]]:
    """Return (id, hash of its source) of every watcher in use."""
    rows = connection.query(
        "SELECT id, timing_hash FROM triggers WHERE kind = 'watch' AND status = 'active'"
    )
    return [(str(trigger_id), str(timing_hash)) for trigger_id, timing_hash in rows]


def find_all(connection: Connection, ids: Sequence[str]) -> list[TriggerRow]:
    """Return these triggers, by id."""
    if not ids:
        return []
    return _read(
        connection.query(
            f"SELECT {_ROW} FROM triggers AS t WHERE t.id IN {connection.sql.ids()} ORDER BY t.id",
            ids=set_of(ids),
        )
    )


def of_workflow(connection: Connection, workflow: str) -> list[TriggerRow]:
    """Return the triggers of one workflow, removed ones too."""
    return _read(
        connection.query(
            f"SELECT {_ROW} FROM triggers AS t WHERE t.workflow = :workflow ORDER BY t.id",
            workflow=workflow,
        )
    )


def defined_by(connection: Connection, directory: str) -> set[str]:
    """Return the workflows of a directory that have triggers in use."""
    rows = connection.query(
        "SELECT DISTINCT workflow FROM triggers WHERE directory = :directory"
        " AND status <> 'removed'",
        directory=directory,
    )
    return {str(row[0]) for row in rows}


def set_problem(tx: Connection, workflow: str, problem: str) -> None:
    """Record what is wrong with the definition of a workflow's triggers."""
    tx.execute(
        "UPDATE triggers SET problem = :problem WHERE workflow = :workflow"
        " AND status <> 'removed' AND (problem IS NULL OR problem <> :problem)",
        workflow=workflow,
        problem=problem,
    )


def cursor_of(connection: Connection, trigger_id: str) -> str | None:
    """Return where a watcher's next poll starts."""
    rows = connection.query("SELECT cursor FROM triggers WHERE id = :id", id=trigger_id)
    return rows[0][0] if rows else None


_DUE: Final = "t.status IN ('active', 'paused') AND t.next_at IS NOT NULL"


def due(
    connection: Connection, kind: str, now: int, most: int, left_out: Collection[str] = ()
) -> list[TriggerRow]:
    """Return triggers of one kind whose time has come, the longest due first."""
    others = f" AND t.id NOT IN {connection.sql.ids()}" if left_out else ""
    given = {"ids": set_of(sorted(left_out))} if left_out else {}
    return _read(
        connection.query(
            f"SELECT {_ROW} FROM triggers AS t WHERE {_DUE} AND t.kind = :kind"
            f" AND t.next_at <= :now{others} ORDER BY t.next_at LIMIT :most",
            kind=kind,
            now=now,
            most=most,
            **given,
        )
    )


def next_time(connection: Connection, kind: str, after: int = -(2**62)) -> int | None:
    """Return when the next trigger of one kind is due, later than `after`."""
    rows = connection.query(
        f"SELECT t.next_at FROM triggers AS t WHERE {_DUE} AND t.kind = :kind"
        " AND t.next_at > :after ORDER BY t.next_at LIMIT 1",
        kind=kind,
        after=after,
    )
    return None if not rows else int(rows[0][0])


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


def insert(tx: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert triggers; missing columns are null."""
    values = [[row.get(name) for name in TRIGGER_TYPES] for row in rows]
    insert_rows(tx, "triggers", TRIGGER_TYPES, values, "ON CONFLICT DO NOTHING")


@cache
def _update(sql: Sql, names: tuple[str, ...]) -> str:
    types: dict[str, ColumnType] = {**TRIGGER_TYPES, "cursor": "text"}
    columns = (("id", types["id"]), *((name, types[name]) for name in names))
    return update_statement(sql, "triggers", columns)


def update(tx: Connection, changed: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Write columns of locked triggers, given as (id, values)."""
    shapes: dict[tuple[str, ...], list[list[Any]]] = {}
    for trigger_id, values in changed:
        names = tuple(sorted(values))
        shapes.setdefault(names, []).append([trigger_id, *(values[name] for name in names)])
    for names, rows in shapes.items():
        tx.defer(_update(tx.sql, names), rows=set_of(rows))


def open_tasks(tx: Connection, ids: Sequence[str]) -> Rows:
    """Return (trigger id, task id, whether it only waits for a person) of tasks that have not ended."""
    return tx.query(
        "SELECT k.trigger_id, k.id, k.steps_running = 0 AND EXISTS (SELECT 1 FROM approvals AS a"
        " WHERE a.task_id = k.id AND a.status = 'pending')"
        f" FROM tasks AS k WHERE k.trigger_id IS NOT NULL AND k.status IN {_OPEN}"
        f" AND k.trigger_id IN {tx.sql.ids()} ORDER BY k.id",
        ids=set_of(ids),
    )


def last_endings(tx: Connection, trigger_id: str, since: int, most: int) -> list[str]:
    """Return how the last tasks of a trigger ended, the newest first."""
    rows = tx.query(
        "SELECT status FROM tasks WHERE trigger_id = :id AND created_at >= :since"
        " AND status IN ('succeeded', 'failed') ORDER BY id DESC LIMIT :most",
        id=trigger_id,
        since=since,
        most=most,
    )
    return [str(row[0]) for row in rows]


@cache
def _firing_columns() -> str:
    return ", ".join(f'f."{name}"' for name in FIRING_COLUMNS)


def queued(tx: Connection, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the queued firings of triggers, in the order in which they may start."""
    rows = tx.query(
        f"SELECT {_firing_columns()} FROM firings AS f WHERE f.status = 'queued'"
        f" AND f.trigger_id IN {tx.sql.ids()} ORDER BY f.due_at, f.nominal_at, f.key",
        ids=set_of(ids),
    )
    return [dict(zip(FIRING_COLUMNS, row, strict=True)) for row in rows]


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
def _insert_firings(sql: Sql) -> str:
    names = ", ".join(f'"{name}"' for name in _FIRING_TYPES)
    picked = ", ".join(f'r."{name}"' for name in _FIRING_TYPES)
    return (
        f"INSERT INTO firings ({names}) SELECT {picked} FROM {sql.rows(**_FIRING_TYPES)}"
        " WHERE true ON CONFLICT DO NOTHING RETURNING trigger_id, key"
    )


def insert_firings(tx: Connection, rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Insert firings whose keys have no fate yet; return (trigger id, key) of those inserted."""
    values = [[row.get(name) for name in _FIRING_TYPES] for row in rows]
    inserted = tx.query(_insert_firings(tx.sql), rows=set_of(values))
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


def firings_of(
    connection: Connection,
    trigger_id: str,
    most: int,
    before: tuple[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the latest firings of a trigger, the newest first: those before a time and key."""
    at, key = (2**62, "") if before is None else before
    rows = connection.query(
        f"SELECT {_firing_columns()} FROM firings AS f WHERE f.trigger_id = :id"
        " AND (f.recorded_at, f.key) < (:at, :key)"
        " ORDER BY f.recorded_at DESC, f.key DESC LIMIT :most",
        id=trigger_id,
        at=at,
        key=key,
        most=most,
    )
    return [dict(zip(FIRING_COLUMNS, row, strict=True)) for row in rows]


def firing(connection: Connection, trigger_id: str, key: str) -> dict[str, Any] | None:
    """Return one firing."""
    rows = connection.query(
        f"SELECT {_firing_columns()} FROM firings AS f WHERE f.trigger_id = :id AND f.key = :key",
        id=trigger_id,
        key=key,
    )
    return dict(zip(FIRING_COLUMNS, rows[0], strict=True)) if rows else None


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


def lease(tx: Connection, trigger_id: str, version: int, owner: str, now: int, until: int) -> bool:
    """Take the right to poll a watcher, unless another daemon has it; return whether that worked."""
    changed = tx.execute(
        "UPDATE triggers SET owner = :owner, owned_until = :until WHERE id = :id"
        " AND version = :version AND (owner IS NULL OR owner = :owner OR owned_until < :now"
        " OR owned_until > :furthest)",
        id=trigger_id,
        version=version,
        owner=owner,
        now=now,
        until=until,
        # A lease that is longer than any was taken by a clock that ran ahead.
        furthest=until + CLOCK_ERROR_US,
    )
    return changed > 0


def free_leases(tx: Connection, now: int | None) -> int:
    """End the leases of daemons that are gone: all of them, or those that are over."""
    if now is None:
        return tx.execute(
            "UPDATE triggers SET owner = NULL, owned_until = NULL WHERE owner IS NOT NULL"
        )
    return tx.execute(
        "UPDATE triggers SET owner = NULL, owned_until = NULL"
        " WHERE owner IS NOT NULL AND owned_until < :now",
        now=now,
    )


def watcher_counts(connection: Connection) -> tuple[int, int, int]:
    """Return how many watchers there are, how many have a cursor, and how many items were seen."""
    rows = connection.query(
        "SELECT count(*), count(cursor), (SELECT count(*) FROM firings AS f JOIN triggers AS t"
        " ON t.id = f.trigger_id WHERE t.kind = 'watch') FROM triggers"
        " WHERE kind = 'watch' AND status <> 'removed'"
    )
    watchers, cursors, seen = rows[0]
    return int(watchers), int(cursors), int(seen)


def failing(connection: Connection) -> dict[str, int]:
    """Return the failures in a row of watchers that fail."""
    rows = connection.query(
        "SELECT id, failures FROM triggers WHERE kind = 'watch' AND failures > 0"
        " AND status = 'active' ORDER BY id"
    )
    return {str(trigger_id): int(failures) for trigger_id, failures in rows}


def counts(connection: Connection) -> dict[str, int]:
    """Return how many firings have each status."""
    rows = connection.query("SELECT status, count(*) FROM firings GROUP BY status ORDER BY status")
    return {str(status): int(count) for status, count in rows}
