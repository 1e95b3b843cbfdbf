"""The cost of models: by day, and by workflow and model over a time."""

from dataclasses import dataclass
from typing import Final

from agent.core.ids import first_id_at
from agent.store.db.database import Connection

MAX_CALLS: Final = 10_000
"""The newest calls of models that are added up."""


@dataclass(frozen=True, slots=True)
class DaySpend:
    """One day (UTC)."""

    day: str
    tokens: int
    microusd: int
    ms: int


@dataclass(frozen=True, slots=True)
class CallSpend:
    """The calls of one model in the tasks of one workflow."""

    workflow: str
    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    microusd: int


def by_day(connection: Connection, first_day: str) -> list[DaySpend]:
    """Return the use of each day since one, reservations of unknown calls included."""
    rows = connection.query(
        "SELECT day, tokens_used + tokens_reserved, microusd_used + microusd_reserved,"
        " ms_used + ms_reserved FROM daily_spend WHERE day >= :day ORDER BY day",
        day=first_day,
    )
    return [DaySpend(str(day), int(tokens), int(money), int(ms)) for day, tokens, money, ms in rows]


def by_workflow_and_model(connection: Connection, since: int) -> tuple[list[CallSpend], bool]:
    """Return the use of calls since an instant, and whether older ones were left out.

    Ids are ordered by time, so the primary key finds the calls. Inherited calls are counted in the
    task that made them.
    """
    rows = connection.query(
        "SELECT t.workflow_name, c.model, count(*), coalesce(sum(c.tokens_in), 0),"
        " coalesce(sum(c.tokens_out), 0), coalesce(sum(c.cost_microusd), 0) FROM"
        " (SELECT task_id, model, tokens_in, tokens_out, cost_microusd FROM tool_calls"
        " WHERE id >= :first AND model IS NOT NULL AND attempt > 0 ORDER BY id DESC LIMIT :limit)"
        " AS c JOIN tasks AS t ON t.id = c.task_id GROUP BY t.workflow_name, c.model"
        " ORDER BY 6 DESC, 3 DESC, 1, 2",
        first=first_id_at(since),
        limit=MAX_CALLS,
    )
    spent = [
        CallSpend(str(name), str(model), int(calls), int(tokens_in), int(tokens_out), int(money))
        for name, model, calls, tokens_in, tokens_out, money in rows
    ]
    return spent, sum(row.calls for row in spent) >= MAX_CALLS


def paused_by_budget(connection: Connection, limit: int) -> list[tuple[str, str, str | None]]:
    """Return (id, workflow, reason) of tasks that a budget paused, the newest first."""
    rows = connection.query(
        "SELECT id, workflow_name, pause_reason FROM tasks WHERE status = 'paused'"
        " AND pause_kind = 'budget' ORDER BY id DESC LIMIT :limit",
        limit=limit,
    )
    return [(str(task_id), str(name), reason) for task_id, name, reason in rows]
