"""The SQL of triggers; that of their firings is `firing_rows`.

Lock order: tasks, budgets, triggers. Every change of a trigger happens under the lock of its row and
counts up its `version`; a firing holds only for the version that it was planned from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from agent.core.clock import CLOCK_ERROR_US
from agent.core.state_machine import TriggerStatus
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
    "pruned_until": "int",
    "not_listening": "text",
    "pause_kind": "text",
}
"""Every column but the cursor, which may be large and is read by the polls alone."""

_ROW: Final = ", ".join(f"t.{name}" for name in TRIGGER_TYPES)
_OPEN: Final = "('pending', 'running', 'paused')"
FAILURES: Final = "failures"
"""The `pause_kind` of a trigger that has paused itself because its tasks failed."""
RESTORE: Final = "restore"
"""The `pause_kind` of a trigger that a restore of the database holds."""


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
    pruned_until: int | None = None
    not_listening: str | None = None
    pause_kind: str | None = None

    def is_paused_for(self, kind: str) -> bool:
        """Whether it is paused for this cause. A worker of an earlier version leaves the kind when it resumes."""
        return self.status == TriggerStatus.PAUSED and self.pause_kind == kind


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
    """Record the problem of the definition of a workflow's triggers."""
    tx.execute(
        "UPDATE triggers SET problem = :problem WHERE workflow = :workflow"
        " AND status <> 'removed' AND (problem IS NULL OR problem <> :problem)",
        workflow=workflow,
        problem=problem,
    )


def set_listening(tx: Connection, reasons: Mapping[str, str | None]) -> None:
    """Record why watchers are only polled; None: they are listened to, or cannot be.

    It counts up no version: a poll under way stays valid.
    """
    update(tx, [(trigger_id, {"not_listening": reason}) for trigger_id, reason in reasons.items()])


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
    parameters = {"ids": set_of(sorted(left_out))} if left_out else {}
    return _read(
        connection.query(
            f"SELECT {_ROW} FROM triggers AS t WHERE {_DUE} AND t.kind = :kind"
            f" AND t.next_at <= :now{others} ORDER BY t.next_at LIMIT :most",
            kind=kind,
            now=now,
            most=most,
            **parameters,
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


def active_watchers(connection: Connection) -> list[tuple[str, str]]:
    """Return (id, hash of its source) of every watcher in use; each has a time for its next poll."""
    rows = connection.query(
        f"SELECT t.id, t.timing_hash FROM triggers AS t WHERE {_DUE} AND t.kind = 'watch'"
        " AND t.status = 'active'"
    )
    return [(str(trigger_id), str(timing_hash)) for trigger_id, timing_hash in rows]


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


def lease(
    tx: Connection,
    trigger_id: str,
    version: int,
    owner: str,
    now: int,
    until: int,
    ended: str | None = None,
) -> bool:
    """Take the right to poll a watcher, unless another daemon has it; return whether that worked.

    `ended` is an owner that polls no more.
    """
    changed = tx.execute(
        "UPDATE triggers SET owner = :owner, owned_until = :until WHERE id = :id"
        " AND version = :version AND (owner IS NULL OR owner IN (:owner, :ended)"
        " OR owned_until < :now OR owned_until > :furthest)",
        id=trigger_id,
        version=version,
        owner=owner,
        ended=ended or owner,
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
