"""The SQL of budgets: rows are inserted, locked and changed by differences, one statement each.

Lock order: tasks, then budgets by id, then the day. So no two transactions wait for each other.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Rows

_AMOUNTS: Final = ("tokens_used", "microusd_used", "tokens_reserved", "microusd_reserved")
_DAILY_AMOUNTS: Final = (*_AMOUNTS, "ms_used", "ms_reserved")


@cache
def _ensure(sql: Sql) -> str:
    rows = sql.rows(id="text", task_id="text", tokens_limit="int", microusd_limit="int")
    return (
        "INSERT INTO budgets (id, task_id, tokens_limit, microusd_limit,"
        f" {', '.join(_AMOUNTS)}) SELECT r.id, r.task_id, r.tokens_limit, r.microusd_limit,"
        f" 0, 0, 0, 0 FROM {rows} WHERE true ORDER BY r.id ON CONFLICT (id) DO NOTHING"
    )


def ensure(tx: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Insert missing budgets: (id, task id, limit of tokens, limit of money)."""
    tx.defer(_ensure(tx.sql), rows=set_of(rows))


def lock(tx: Connection, ids: Iterable[str]) -> Rows:
    """Lock budgets; return (id, limits of tokens and money, used and reserved amount of each)."""
    return tx.query(
        "SELECT id, tokens_limit, microusd_limit, tokens_used + tokens_reserved,"
        f" microusd_used + microusd_reserved FROM budgets WHERE id IN {tx.sql.ids()}"
        f" ORDER BY id {tx.sql.lock}",
        ids=set_of(sorted(ids)),
    )


def lock_day(tx: Connection, day: str) -> tuple[int, int, int]:
    """Lock a day's row, inserted if missing; return the same as `of_day`."""
    tx.execute(
        f"INSERT INTO daily_spend (day, {', '.join(_DAILY_AMOUNTS)})"
        " VALUES (:day, 0, 0, 0, 0, 0, 0) ON CONFLICT (day) DO NOTHING",
        day=day,
    )
    return of_day(tx, day, tx.sql.lock)


def of_day(connection: Connection, day: str, lock: str = "") -> tuple[int, int, int]:
    """Return the tokens, the money and the milliseconds used and reserved on a day."""
    rows = connection.query(
        "SELECT tokens_used + tokens_reserved, microusd_used + microusd_reserved,"
        f" ms_used + ms_reserved FROM daily_spend WHERE day = :day {lock}",
        day=day,
    )
    tokens, microusd, ms = rows[0] if rows else (0, 0, 0)
    return int(tokens), int(microusd), int(ms)


@cache
def _add(sql: Sql, table: str, key: str, amounts: tuple[str, ...]) -> str:
    columns: dict[str, ColumnType] = {key: "text", **dict.fromkeys(amounts, "int")}
    changes = ", ".join(f"{name} = {table}.{name} + r.{name}" for name in amounts)
    return f"UPDATE {table} SET {changes} FROM {sql.rows(**columns)} WHERE {table}.{key} = r.{key}"


def add(tx: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Change budgets by (id, tokens used, money used, tokens reserved, money reserved)."""
    tx.defer(_add(tx.sql, "budgets", "id", _AMOUNTS), rows=set_of(rows))


def add_to_days(tx: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Add the amounts of `add` to days, and the milliseconds used and reserved."""
    tx.defer(_add(tx.sql, "daily_spend", "day", _DAILY_AMOUNTS), rows=set_of(rows))


def ancestors(tx: Connection, task_id: str) -> Rows:
    """Return (id, workflow, version, index of the waiting step) of a task's ancestors, nearest first."""
    return tx.query(
        "WITH RECURSIVE above(id, parent, step, waiting, name, version, distance) AS ("
        "SELECT t.id, t.parent_task_id, t.parent_step_id, CAST(NULL AS text), t.workflow_name,"
        " t.workflow_version, 0 FROM tasks AS t WHERE t.id = :id UNION ALL"
        " SELECT t.id, t.parent_task_id, t.parent_step_id, a.step, t.workflow_name,"
        " t.workflow_version, a.distance + 1 FROM above AS a JOIN tasks AS t ON t.id = a.parent"
        " WHERE a.distance < 100)"
        ' SELECT a.id, a.name, a.version, s."index" FROM above AS a'
        " LEFT JOIN steps AS s ON s.id = a.waiting WHERE a.distance > 0 ORDER BY a.distance",
        id=task_id,
    )


def set_limits(tx: Connection, name: str, tokens: int | None, microusd: int | None) -> None:
    """Set a budget's limits; None leaves one as it is."""
    tx.execute(
        "UPDATE budgets SET tokens_limit = coalesce(CAST(:tokens AS bigint), tokens_limit),"
        " microusd_limit = coalesce(CAST(:microusd AS bigint), microusd_limit) WHERE id = :id",
        id=name,
        tokens=tokens,
        microusd=microusd,
    )


def of_task(connection: Connection, task_id: str) -> Rows:
    """Return the budgets of a task and its steps, as `lock` does."""
    return connection.query(
        "SELECT id, tokens_limit, microusd_limit, tokens_used + tokens_reserved,"
        " microusd_used + microusd_reserved FROM budgets WHERE task_id = :id ORDER BY id",
        id=task_id,
    )


def step_started_at(tx: Connection, task_id: str, index: int) -> int | None:
    """Return when a step was claimed for the first time; of a group, its latest item."""
    ((started_at,),) = tx.query(
        "SELECT max(f.at) FROM (SELECT min(e.at) AS at FROM events AS e JOIN steps AS s"
        " ON s.id = e.step_id WHERE e.task_id = :id AND e.type = 'step.claimed'"
        ' AND s."index" = :index GROUP BY s.id) AS f',
        id=task_id,
        index=index,
    )
    return None if started_at is None else int(started_at)


def is_paused_for_budget(tx: Connection, task_id: str) -> bool:
    """Whether a task is paused because a budget is used up; read without a lock."""
    condition = "id = :id AND status = 'paused' AND pause_kind = 'budget'"
    return bool(tx.query(f"SELECT 1 FROM tasks WHERE {condition}", id=task_id))


def usage(connection: Connection, task_id: str) -> tuple[int, int, int, int, int]:
    """Return a task's own calls of models: their number, tokens in and out, money, money reserved.

    The last is the money reserved for calls whose use was never recorded.
    """
    ((calls, tokens_in, tokens_out, microusd, still_open),) = connection.query(
        "SELECT count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0),"
        " coalesce(sum(cost_microusd), 0),"
        " coalesce(sum(CASE WHEN tokens_out IS NULL THEN reserved_microusd ELSE 0 END), 0)"
        " FROM tool_calls WHERE task_id = :id AND model IS NOT NULL",
        id=task_id,
    )
    return int(calls), int(tokens_in), int(tokens_out), int(microusd), int(still_open)
