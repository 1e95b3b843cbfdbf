"""The reads of the engine, as set-based SQL, under the lock of the tasks that it reads.

A set is one JSON array, bound as a parameter. Callers choose the columns. Literal statuses let
PostgreSQL use the partial indexes.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.db.json_values import set_of

Rows = list[tuple[Any, ...]]
Statement = tuple[str, dict[str, Any]]
"""SQL and its parameters, for a round trip with other reads."""


def _columns(names: Sequence[str], table: str) -> str:
    return ", ".join(f'{table}."{name}"' for name in names)


@cache
def due_statement(_sql: Sql) -> str:
    """Select (id, priority, next_wake_time) of due tasks, without locking them."""
    # One range scan per priority with a literal: ordering by both would read every waiting task.
    parts = [
        "SELECT * FROM (SELECT id, priority, next_wake_time FROM tasks"
        f" WHERE status = 'running' AND priority = {priority} AND next_wake_time <= :now"
        f" ORDER BY next_wake_time LIMIT :most) AS p{priority}"
        for priority in (0, 1, 2)
    ]
    return " UNION ALL ".join(parts)


def due_tasks(connection: Connection, now: int, most: int) -> Rows:
    """Return the due tasks that `due_statement` selects."""
    return connection.query(due_statement(connection.sql), now=now, most=most)


@cache
def locking_statement(sql: Sql, columns: tuple[str, ...], *, is_waiting: bool = False) -> str:
    """Select tasks by id and lock them."""
    lock = sql.lock if is_waiting else sql.skip_locked
    # By id: two transactions that lock the same tasks never wait for each other.
    return (
        f"SELECT {_columns(columns, 'tasks')} FROM tasks WHERE id IN {sql.ids()} ORDER BY id {lock}"
    )


def lock_tasks(
    tx: Connection, columns: tuple[str, ...], task_ids: Sequence[str], *, is_waiting: bool = False
) -> Rows:
    """Lock tasks and return their rows as they are under the lock.

    A locking SELECT returns the newest version of each row; everything else of a task must be read
    in a later statement. Without waiting, tasks that other transactions hold are left out.
    """
    statement = locking_statement(tx.sql, columns, is_waiting=is_waiting)
    return tx.query(statement, ids=set_of(task_ids))


def tasks_at(connection: Connection, columns: tuple[str, ...], task_ids: Sequence[str]) -> Rows:
    """Return the rows of tasks, without a lock."""
    return connection.query(
        f"SELECT {_columns(columns, 'tasks')} FROM tasks WHERE id IN {connection.sql.ids()}",
        ids=set_of(task_ids),
    )


@cache
def addresses_statement(sql: Sql, columns: tuple[str, ...]) -> str:
    """Select steps by (task id, index, parallel index)."""
    addresses = sql.rows(task_id="text", index="int", parallel_index="int")
    return (
        f"SELECT {_columns(columns, 's')} FROM {addresses} JOIN steps AS s"
        ' ON s.task_id = r.task_id AND s."index" = r."index"'
        " AND s.parallel_index = r.parallel_index"
    )


def steps_at(tx: Connection, columns: tuple[str, ...], addresses: list[list[Any]]) -> Rows:
    """Return the steps at (task_id, index, parallel_index)."""
    return tx.query(addresses_statement(tx.sql, columns), rows=set_of(addresses))


@cache
def _first_steps(sql: Sql, columns: tuple[str, ...], condition: str, order: str) -> str:
    """Select the first steps of each task: without a limit per task, a wide task would take all."""
    chosen = f"s.task_id = {{}} AND {condition} ORDER BY {order} LIMIT :most"
    selected = _columns(columns, "s")
    if sql.name == "sqlite":
        return f"SELECT {selected} FROM steps AS s WHERE " + chosen.format(":task_id")
    return (
        f"SELECT {_columns(columns, 'l')} FROM {sql.rows(id='text')} CROSS JOIN LATERAL"
        f" (SELECT {selected} FROM steps AS s WHERE {chosen.format('r.id')}) AS l"
    )


def _first_of_each(
    tx: Connection, statement: str, task_ids: Sequence[str], **parameters: Any
) -> Rows:
    if tx.sql.name == "sqlite":
        rows: Rows = []
        for task_id in task_ids:
            rows += tx.query(statement, task_id=task_id, **parameters)
        return rows
    return tx.query(statement, rows=set_of([[task_id] for task_id in task_ids]), **parameters)


def due_steps(
    tx: Connection, columns: tuple[str, ...], task_ids: Sequence[str], now: int, most: int
) -> Rows:
    """Return due steps, at most `most` of each task, the longest due first."""
    statement = _first_steps(
        tx.sql, columns, "s.wake_at IS NOT NULL AND s.wake_at <= :now", 's.wake_at, s."index"'
    )
    return _first_of_each(tx, statement, task_ids, now=now, most=most)


def held_steps(tx: Connection, columns: tuple[str, ...], task_id: str, most: int) -> Rows:
    """Return the first held steps: those without a slot, groups without their items."""
    statement = _first_steps(
        tx.sql, columns, "s.held = 1 AND s.parallel_index < 0", 's."index", s.parallel_index'
    )
    return _first_of_each(tx, statement, [task_id], most=most)


@cache
def _held_items(columns: tuple[str, ...]) -> str:
    return (
        f"SELECT {_columns(columns, 'steps')} FROM steps WHERE task_id = :task_id"
        ' AND "index" = :index AND parallel_index >= 0 AND held = 1'
    )


def held_items(tx: Connection, columns: tuple[str, ...], task_id: str, index: int) -> Rows:
    """Return the held items of a group."""
    return tx.query(_held_items(columns), task_id=task_id, index=index)


@cache
def _open_steps(columns: tuple[str, ...]) -> str:
    return (
        f"SELECT {_columns(columns, 'steps')} FROM steps WHERE task_id = :task_id"
        " AND status IN ('pending', 'running', 'waiting', 'paused')"
        ' ORDER BY "index", parallel_index'
    )


def open_steps(tx: Connection, columns: tuple[str, ...], task_id: str) -> Rows:
    """Return all steps of a task that have not ended."""
    return tx.query(_open_steps(columns), task_id=task_id)


def owned_steps(tx: Connection, owner: str) -> Rows:
    """Return (id, task, isolation) of all steps that a worker has claimed, in a fixed order.

    Without a limit: they are at most as many as the worker had slots.
    """
    return tx.query(
        "SELECT id, task_id, alone FROM steps WHERE owner = :owner ORDER BY id", owner=owner
    )


@cache
def _claims(sql: Sql) -> str:
    return (
        "SELECT r.id, s.claim_token, s.owner, t.status, t.phase FROM "
        + sql.rows(id="text")
        + " JOIN steps AS s ON s.id = r.id JOIN tasks AS t ON t.id = s.task_id"
    )


def claims(tx: Connection, step_ids: Sequence[str]) -> Rows:
    """Return (step id, token, owner, the task's status and phase) of steps that are claimed."""
    return tx.query(_claims(tx.sql), rows=set_of([[step_id] for step_id in step_ids]))


def checkpoint_of(tx: Connection, step_id: str) -> str | None:
    """Return a step's checkpoint, as stored JSON."""
    ((checkpoint,),) = tx.query("SELECT checkpoint FROM steps WHERE id = :id", id=step_id)
    return None if checkpoint is None else str(checkpoint)


def group_items(tx: Connection, step_id: str) -> str:
    """Return the items of a group as JSON text."""
    return str(tx.query("SELECT items FROM steps WHERE id = :id", id=step_id)[0][0])


@cache
def _steps_by_id(sql: Sql, columns: tuple[str, ...]) -> str:
    return (
        f"SELECT {_columns(columns, 's')} FROM {sql.rows(id='text')} JOIN steps AS s ON s.id = r.id"
    )


def steps_by_id(tx: Connection, columns: tuple[str, ...], step_ids: Sequence[str]) -> Rows:
    """Return steps by their ids."""
    rows = set_of([[step_id] for step_id in step_ids])
    return tx.query(_steps_by_id(tx.sql, columns), rows=rows)


# One index lookup for each priority.
SOONEST: Final = " UNION ALL ".join(
    "SELECT * FROM (SELECT next_wake_time FROM tasks WHERE status = 'running'"
    f" AND priority = {priority} AND next_wake_time IS NOT NULL"
    f" ORDER BY next_wake_time LIMIT 1) AS p{priority}"
    for priority in (0, 1, 2)
)
"""Selects when the next task of each priority is due."""


def next_wake_time(connection: Connection) -> int | None:
    """Return when the next task is due."""
    return min((row[0] for row in connection.query(SOONEST)), default=None)


def begun_after(connection: Connection, instant: int) -> list[str]:
    """Return open tasks with a time limit, a wait, a question or a lease that began after an instant."""
    rows = connection.query(
        "SELECT s.task_id FROM steps AS s WHERE s.wake_at > :instant AND s.started_at > :instant"
        " UNION SELECT a.task_id FROM approvals AS a"
        " WHERE a.status = 'pending' AND a.created_at > :instant"
        " UNION SELECT w.task_id FROM work AS w"
        " WHERE w.status IN ('leased', 'running') AND w.leased_at > :instant"
        " UNION SELECT t.id FROM tasks AS t WHERE t.status IN ('running', 'paused')"
        " AND t.deadline > :instant AND t.started_at > :instant",
        instant=instant,
    )
    return [str(row[0]) for row in rows]


@cache
def _processes(sql: Sql) -> str:
    return (
        "SELECT s.process_id, s.process_started FROM steps AS s JOIN workers AS w ON w.id = s.owner"
        f" WHERE s.owner IN {sql.ids()} AND w.host = :host AND s.process_id IS NOT NULL"
    )


def processes_of(connection: Connection, owners: Sequence[str], host: str) -> Rows:
    """Return (process id, start time) of the processes that steps of these workers run on a machine."""
    if not owners:
        return []
    return connection.query(_processes(connection.sql), ids=set_of(owners), host=host)


@cache
def _attempts(sql: Sql) -> str:
    return f"SELECT id, status, attempt FROM steps WHERE id IN {sql.ids()}"


def step_attempts(connection: Connection, step_ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return (status, attempt) by step id; missing steps are left out."""
    ids = set_of(sorted(step_ids))
    return {
        row[0]: (row[1], row[2]) for row in connection.query(_attempts(connection.sql), ids=ids)
    }
