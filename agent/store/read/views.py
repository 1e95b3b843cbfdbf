"""What the API, the command line and chats read: tasks, steps, events and logs by column name."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.engine.writes import STEP_TYPES, TASK_TYPES
from agent.store.read import activity

Found = dict[str, Any]

_TASK_NAMES: Final = tuple(TASK_TYPES)
_STEP_NAMES: Final = tuple(name for name in STEP_TYPES if name != "items")


def named(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[Found]:
    """Return rows by the names of their columns."""
    return [dict(zip(names, row, strict=True)) for row in rows]


def selected(names: tuple[str, ...], table: str) -> str:
    """Return the columns of a table, for a SELECT."""
    return ", ".join(f'{table}."{name}"' for name in names)


def task(connection: Connection, task_id: str) -> Found | None:
    """Return a task's row, with its activity."""
    rows = connection.query(
        f"SELECT {selected(_TASK_NAMES, 't')}, {activity.expression(connection.sql, 't')}"
        " FROM tasks AS t WHERE id = :id",
        id=task_id,
    )
    return named((*_TASK_NAMES, "activity"), rows)[0] if rows else None


def steps(connection: Connection, task_id: str) -> list[Found]:
    """Return a task's steps in order, the items of a group after it."""
    rows = connection.query(
        f"SELECT {selected(_STEP_NAMES, 'steps')} FROM steps WHERE task_id = :id"
        ' ORDER BY "index", parallel_index',
        id=task_id,
    )
    return named(_STEP_NAMES, rows)


def unknown_effects(connection: Connection, task_id: str) -> list[Found]:
    """Return the effects of an ended task without a verdict, which may have happened, in order.

    A task that was retried has none: its retry asks about them.
    """
    names = ("step_id", "name", "parallel_index", "action", "id", "created_at")
    rows = connection.query(
        "SELECT s.id, s.name, s.parallel_index, c.action, c.id, c.created_at FROM tool_calls AS c"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        " JOIN steps AS s ON s.id = c.step_id JOIN tasks AS t ON t.id = c.task_id"
        " WHERE c.task_id = :id AND o.status = 'unknown' AND c.on_unknown <> 'retry'"
        " AND t.status IN ('failed', 'canceled')"
        " AND NOT EXISTS (SELECT 1 FROM tasks AS r WHERE r.retry_of = t.id)"
        ' ORDER BY s."index", s.parallel_index, c.number, c.id',
        id=task_id,
    )
    return named(names, rows)


def retried_as(connection: Connection, task_ids: Iterable[str]) -> dict[str, Found]:
    """Return the last task of the line of retries of each of some tasks: its id and its status."""
    rows = connection.query(
        "WITH RECURSIVE line(first_id, id, status, distance) AS (SELECT retry_of, id, status, 1"
        f" FROM tasks WHERE retry_of IN {connection.sql.ids()} UNION ALL"
        " SELECT l.first_id, t.id, t.status, l.distance + 1 FROM line AS l"
        " JOIN tasks AS t ON t.retry_of = l.id)"
        " SELECT first_id, id, status FROM line ORDER BY distance",
        ids=json.dumps(list(task_ids)),
    )
    return {first_id: {"id": task_id, "status": status} for first_id, task_id, status in rows}


def delays(connection: Connection, task_id: str) -> dict[str, str]:
    """Return the stores that running steps of a task wait for, by step id."""
    rows = connection.query(
        f"SELECT e.step_id, e.data {delayed_events(':id')} ORDER BY e.seq", id=task_id
    )
    return {str(step_id): str(data) for step_id, data in rows}


def delayed_events(task_id: str) -> str:
    """Return the events of steps that wait for a store now."""
    return (
        "FROM events AS e JOIN steps AS s ON s.id = e.step_id"
        f" WHERE e.task_id = {task_id} AND e.type = 'step.delayed' AND s.status = 'running'"
        " AND NOT EXISTS (SELECT 1 FROM events AS later WHERE later.task_id = e.task_id"
        " AND later.seq > e.seq AND later.step_id = e.step_id"
        " AND later.type IN ('step.proceeded', 'step.claimed'))"
    )


_OPEN_FAMILY: Final = """
WITH RECURSIVE family(id, status, pause_reason, pause_command) AS (
  SELECT t.id, t.status, t.pause_reason, t.pause_command
  FROM steps AS s JOIN tasks AS t ON t.parent_step_id = s.id
  WHERE s.task_id = :id AND s.status = 'waiting' AND t.status IN ('pending', 'running', 'paused')
  UNION ALL
  SELECT t.id, t.status, t.pause_reason, t.pause_command FROM family AS f
  JOIN steps AS s ON s.task_id = f.id JOIN tasks AS t ON t.parent_step_id = s.id
  WHERE s.status = 'waiting' AND t.status IN ('pending', 'running', 'paused')
)
SELECT f.id, f.status, f.pause_reason, f.pause_command, s.name, s.parallel_index, s.status,
  s.waiting_on
FROM family AS f LEFT JOIN steps AS s ON s.task_id = f.id
AND (s.status IN ('running', 'waiting') OR s.status = 'pending' AND s.wake_at IS NOT NULL)
ORDER BY f.id, s."index", s.parallel_index
"""


def open_family(connection: Connection, task_id: str) -> list[Found]:
    """Return the open steps of a task's open descendants, each with its task; nulls for none."""
    names = ("task_id", "task_status", "pause_reason", "pause_command")
    step_names = ("name", "parallel_index", "status", "waiting_on")
    rows = connection.query(_OPEN_FAMILY, id=task_id)
    return named((*names, *step_names), rows)


def newest_task(connection: Connection, workflow: str) -> str | None:
    """Return the newest task of a workflow, or of all if it is empty; children are left out."""
    rows = connection.query(
        "SELECT id FROM tasks WHERE parent_task_id IS NULL"
        f"{' AND workflow_name = :workflow' if workflow else ''} ORDER BY id DESC LIMIT 1",
        **({"workflow": workflow} if workflow else {}),
    )
    return str(rows[0][0]) if rows else None


def tasks_like(connection: Connection, text: str) -> list[str]:
    """Return a few tasks whose ids are, begin with, or end with a text."""
    exact = connection.query("SELECT id FROM tasks WHERE id = :text", text=text)
    if exact:
        return [str(exact[0][0])]
    rows = connection.query(
        "SELECT id FROM tasks WHERE id LIKE :begins OR id LIKE :ends ORDER BY id DESC LIMIT 5",
        begins=f"{text}%",
        ends=f"%{text}",
    )
    return [str(task_id) for (task_id,) in rows]


@cache
def _events(sql: Sql, *, has_task: bool, is_newest: bool) -> str:
    condition = "e.task_id = :task_id AND " if has_task else ""
    # On SQLite the order of ids is the order of commits.
    after, order = "e.id > :id", "e.id"
    if sql.name == "postgresql":
        # Below the snapshot's xmin no transaction can still commit: no event is missed.
        is_visible_to_all = "e.xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        after, order = f"(e.xid, e.id) > (:xid, :id) AND {is_visible_to_all}", "e.xid, e.id"
    if is_newest:
        # The events of a task are numbered in their order: its own index ends with the newest.
        order = (
            "e.seq DESC"
            if has_task
            else ", ".join(f"{column} DESC" for column in order.split(", "))
        )
    return (
        "SELECT e.xid, e.id, e.task_id, e.seq, e.type, s.name, s.parallel_index, e.attempt, e.at,"
        " e.data FROM events AS e LEFT JOIN steps AS s ON s.id = e.step_id"
        f" WHERE {condition}{after} ORDER BY {order} LIMIT :limit"
    )


def events(
    connection: Connection,
    xid: int,
    event_id: int,
    task_id: str | None,
    limit: int,
    *,
    is_newest: bool = False,
) -> list[Found]:
    """Return events after a cursor, of one task or of all: the first of them, or the newest."""
    statement = _events(connection.sql, has_task=task_id is not None, is_newest=is_newest)
    params: dict[str, Any] = {"task_id": task_id} if task_id is not None else {}
    if connection.sql.name == "postgresql":
        params["xid"] = xid
    rows = connection.query(statement, id=event_id, limit=limit, **params)
    if is_newest:
        rows.reverse()
    names = ("xid", "id", "task_id", "seq", "type", "step_name", "parallel_index", "attempt")
    return [_with_item(row) for row in named((*names, "at", "data"), rows)]


def latest_event(connection: Connection) -> tuple[int, int]:
    """Return the cursor (xid, id) of the newest event that a reader can see."""
    statement = "SELECT 0, id FROM events ORDER BY id DESC LIMIT 1"
    if connection.sql.name == "postgresql":
        statement = (
            "SELECT xid, id FROM events"
            " WHERE xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
            " ORDER BY xid DESC, id DESC LIMIT 1"
        )
    rows = connection.query(statement)
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def has_task(connection: Connection, task_id: str) -> bool:
    """Whether a task exists."""
    return bool(connection.query("SELECT 1 FROM tasks WHERE id = :id", id=task_id))


def has_step(connection: Connection, task_id: str, step: str) -> bool:
    """Whether a task has a step, or an item, of this name."""
    return step_named(connection, task_id, step) is not None


_CALL_NAMES: Final = (
    "id",
    "number",
    "attempt",
    "action",
    "created_at",
    "request",
    "response",
    "error",
    "model",
    "tokens_in",
    "tokens_out",
    "cost_microusd",
    "latency_ms",
    "stop_reason",
    "request_id",
    "remote_key",
)


def calls(
    connection: Connection,
    task_id: str,
    *,
    step_id: str | None = None,
    kinds: list[str] | None = None,
    after: str = "",
) -> list[Found]:
    """Return the calls of one step, or of all of some kinds, in the order in which they were made."""
    conditions = ["c.task_id = :task_id", "c.id > :after"]
    params: dict[str, Any] = {"task_id": task_id, "after": after}
    if step_id is not None:
        conditions.append("c.step_id = :step_id")
        params["step_id"] = step_id
    if kinds is not None:
        conditions.append(f"s.kind IN {connection.sql.ids()}")
        params["ids"] = json.dumps(kinds)
    rows = connection.query(
        f"SELECT s.name, s.parallel_index, o.status, {selected(_CALL_NAMES, 'c')}"
        " FROM tool_calls AS c JOIN steps AS s ON s.id = c.step_id"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        f" WHERE {' AND '.join(conditions)} ORDER BY c.number, c.attempt, c.id",
        **params,
    )
    names = ("step_name", "parallel_index", "status", *_CALL_NAMES)
    return [_with_item(row) for row in named(names, rows)]


def usage(connection: Connection, task_id: str) -> list[tuple[Any, ...]]:
    """Return (step id, calls of models, uses of tools, tokens in, out, money) of a task's steps.

    Inherited calls are counted in the task that the retry continues.
    """
    return connection.query(
        "SELECT step_id, count(model),"
        " sum(CASE WHEN action LIKE 'tool.%' OR action LIKE 'tool#%' THEN 1 ELSE 0 END),"
        " coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0),"
        " coalesce(sum(cost_microusd), 0)"
        " FROM tool_calls WHERE task_id = :id AND attempt > 0 GROUP BY step_id",
        id=task_id,
    )


def step_named(connection: Connection, task_id: str, step: str) -> Found | None:
    """Return (id, kind, status, attempt) of a step by its name, or of an item by its number too."""
    name, _, number = step.rstrip("]").partition("[")
    names = ("id", "kind", "status", "attempt")
    rows = connection.query(
        f"SELECT {selected(names, 'steps')} FROM steps"
        " WHERE task_id = :id AND name = :name AND parallel_index = :number",
        id=task_id,
        name=name,
        number=int(number) if number.isdigit() and len(number) < 10 else -1,
    )
    return named(names, rows)[0] if rows else None


# An item's name as people write it: the step's name and its number.
_ITEM_NAME: Final = (
    "CASE WHEN s.parallel_index < 0 THEN s.name"
    " ELSE s.name || '[' || CAST(s.parallel_index AS text) || ']' END"
)


def logs(
    connection: Connection,
    task_id: str,
    step: str | None,
    attempt: int | None,
    after: int,
    limit: int,
    before: int | None = None,
    search: str = "",
) -> list[tuple[Any, ...]]:
    """Return pieces of logs after a given one; with `before`, the newest that precede one.

    With `search` only those that have this text, in any case. Configurations are not among them.
    Each is (id, step, attempt, at, stream, text): a log may have hundreds of thousands of them.
    """
    conditions = ["l.task_id = :task_id", "l.id > :after", "l.stream <> 'config'"]
    params: dict[str, Any] = {"task_id": task_id, "after": after, "limit": limit}
    order = "l.id"
    if before is not None:
        conditions.append("l.id < :before")
        params["before"] = before
        order = "l.id DESC"
    if step is not None:
        name, _, number = step.rstrip("]").partition("[")
        conditions.append("s.name = :name")
        params["name"] = name
        if number.isdigit():
            conditions.append("s.parallel_index = :number")
            params["number"] = int(number) if len(number) < 10 else -2
    if attempt is not None:
        conditions.append("l.attempt = :attempt")
        params["attempt"] = attempt
    if search:
        conditions.append(f"{connection.sql.position}(lower(l.text), lower(:search)) > 0")
        params["search"] = search
    rows = connection.query(
        f"SELECT l.id, {_ITEM_NAME}, l.attempt, l.at, l.stream, l.text"
        " FROM step_logs AS l JOIN steps AS s ON s.id = l.step_id"
        f" WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :limit",
        **params,
    )
    if before is not None:
        rows.reverse()
    return rows


def _with_item(row: Found) -> Found:
    """Return an item's name as people write it: the step's name and its number."""
    number = row.pop("parallel_index")
    if number is not None and number >= 0:
        row["step_name"] = f"{row['step_name']}[{number}]"
    return row
