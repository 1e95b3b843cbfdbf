"""The SQL of `state`: values, their history, and the versions that steps have read.

Lock order: tasks, budgets, triggers, state. A transaction that writes a value holds the lock of its name until
the end of the transaction. On PostgreSQL that is an advisory lock, because a name that was never
written has no row to lock. Workers never wait for it, so a commit cannot deadlock over state.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from agent.core.state_names import KEPT_VERSIONS, StateKey
from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Rows
from agent.store.engine.writes import insert_rows

_TYPES: Final[dict[str, ColumnType]] = {
    "scope": "text",
    "name": "text",
    "version": "int",
    "value": "text",
    "task_id": "text",
    "step_id": "text",
    "call_id": "text",
    "written_by": "text",
    "written_at": "int",
}
COLUMNS: Final = tuple(_TYPES)
_REPLACED: Final = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[2:])


class StateRow(NamedTuple):
    """One version of a value, in the order of the columns."""

    scope: str
    name: str
    version: int
    value: str | None
    task_id: str | None
    step_id: str | None
    call_id: str | None
    written_by: str
    written_at: int


def _lock_number(key: StateKey) -> int:
    """Return the number of a name's advisory lock; a collision only makes one commit wait."""
    digest = hashlib.blake2b("\0".join(("state", *key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


@cache
def _try_locks(sql: Sql) -> str:
    rows = sql.rows(scope="text", name="text", number="int")
    return f"SELECT r.scope, r.name, pg_try_advisory_xact_lock(r.number) FROM {rows}"


@cache
def _wait_locks(sql: Sql) -> str:
    rows = sql.rows(scope="text", name="text", number="int")
    return f"SELECT r.scope, r.name, pg_advisory_xact_lock(r.number) IS NOT NULL FROM {rows}"


@cache
def _current(sql: Sql) -> str:
    return (
        f"SELECT v.scope, v.name, v.version, v.value FROM {sql.rows(scope='text', name='text')}"
        " JOIN state_values AS v ON v.scope = r.scope AND v.name = r.name"
    )


def lock(
    tx: Connection, keys: Collection[StateKey], *, is_waiting: bool
) -> tuple[set[StateKey], Rows]:
    """Lock names until the end of the transaction; return those locked, and (scope, name, version, value).

    Without `is_waiting`, a name that another transaction holds is left out. A later statement reads
    the values, so that they are not older than the locks.
    """
    ordered = sorted(keys)
    read = (_current(tx.sql), {"rows": set_of([list(key) for key in ordered])})
    if tx.sql.name == "sqlite":
        # The transaction already excludes every other writer.
        return set(ordered), tx.query(read[0], **read[1])
    locks = _wait_locks(tx.sql) if is_waiting else _try_locks(tx.sql)
    numbers = set_of([[*key, _lock_number(key)] for key in ordered])
    locked, rows = tx.query_each([(locks, {"rows": numbers}), read])
    return {(scope, name) for scope, name, is_locked in locked if is_locked}, rows


def count_names(tx: Connection, scope: str) -> tuple[int, int]:
    """Return how many values a scope has, and how many names it has ever used."""
    ((values, names),) = tx.query(
        "SELECT count(value), count(*) FROM state_values WHERE scope = :scope", scope=scope
    )
    return int(values), int(names)


_PRUNE: Final = (
    "DELETE FROM state_history WHERE scope = :scope AND name = :name AND version <= :version"
)


def write(tx: Connection, versions: Sequence[StateRow]) -> None:
    """Write new versions: all into the history, the last of each name as its value."""
    insert_rows(tx, "state_history", _TYPES, versions)
    latest = {(row.scope, row.name): row for row in versions}
    ordered = [latest[key] for key in sorted(latest)]
    ending = f"ON CONFLICT (scope, name) DO UPDATE SET {_REPLACED}"
    insert_rows(tx, "state_values", _TYPES, ordered, ending)
    for row in ordered:
        if row.version > KEPT_VERSIONS:
            tx.defer(
                _PRUNE,
                scope=row.scope,
                name=row.name,
                version=row.version - KEPT_VERSIONS,
            )


@cache
def _record_reads(sql: Sql) -> str:
    rows = sql.rows(step_id="text", scope="text", name="text")
    is_sqlite = sql.name == "sqlite"
    pair = f"{'json_array' if is_sqlite else 'json_build_array'}(v.version, v.value)"
    group = f"{'json_group_object' if is_sqlite else 'json_object_agg'}(r.name, {pair})"
    return (
        f"UPDATE steps SET state_read = g.document FROM (SELECT r.step_id, CAST({group} AS text)"
        f" AS document FROM {rows} LEFT JOIN state_values AS v ON v.scope = r.scope"
        " AND v.name = r.name GROUP BY r.step_id) AS g"
        " WHERE steps.id = g.step_id AND steps.state_read IS NULL"
    )


def record_reads(tx: Connection, rows: Iterable[tuple[str, str, str]]) -> None:
    """Record what steps read, given as (step id, scope, name), unless that is on record already.

    The database itself takes the values, so a worker's transaction has nothing to wait for.
    """
    tx.defer(_record_reads(tx.sql), rows=set_of(rows))


@cache
def _recorded_reads(sql: Sql) -> str:
    return f"SELECT s.id, s.state_read FROM {sql.rows(id='text')} JOIN steps AS s ON s.id = r.id"


def recorded_reads(connection: Connection, step_ids: Iterable[str]) -> Rows:
    """Return (id, recorded reads) of steps."""
    rows = set_of([[step_id] for step_id in step_ids])
    return connection.query(_recorded_reads(connection.sql), rows=rows)


def values(
    connection: Connection,
    scope: str | None,
    name: str | None,
    after: tuple[str, ...] | None,
    most: int,
) -> list[StateRow]:
    """Return the current values in order: of a scope, of a name, after one; or of all."""
    conditions, params = ["value IS NOT NULL"], dict[str, Any](most=most)
    if scope is not None:
        conditions.append("scope = :scope")
        params["scope"] = scope
    if name is not None:
        conditions.append("name = :name")
        params["name"] = name
    if after is not None:
        conditions.append("(scope, name) > (:last_scope, :last_name)")
        params["last_scope"], params["last_name"] = after
    rows = connection.query(
        f"SELECT {', '.join(COLUMNS)} FROM state_values WHERE {' AND '.join(conditions)}"
        " ORDER BY scope, name LIMIT :most",
        **params,
    )
    return [StateRow(*row) for row in rows]


def reads_of_task(connection: Connection, task_id: str) -> Rows:
    """Return (step id, recorded reads) of a task's steps."""
    return connection.query(
        "SELECT id, state_read FROM steps WHERE task_id = :id AND state_read IS NOT NULL",
        id=task_id,
    )


def changes_of_task(connection: Connection, task_id: str) -> Rows:
    """Return (step id, data) of a task's events about its writes, in order."""
    return connection.query(
        "SELECT step_id, data FROM events WHERE task_id = :id AND type = 'state.changed'"
        " ORDER BY seq",
        id=task_id,
    )


def history(connection: Connection, key: StateKey) -> list[StateRow]:
    """Return the versions of a value that are kept, the newest first."""
    scope, name = key
    rows = connection.query(
        f"SELECT {', '.join(COLUMNS)} FROM state_history WHERE scope = :scope AND name = :name"
        " ORDER BY version DESC",
        scope=scope,
        name=name,
    )
    return [StateRow(*row) for row in rows]
