"""A task's calls of models and its budgets, as documents."""

from agent.config.models import BudgetSettings
from agent.core.clock import to_iso
from agent.core.money import MICROUSD
from agent.core.plain_json import Json
from agent.store.db.database import Connection
from agent.store.engine import budget_rows as store
from agent.store.engine import task_rows
from agent.tasks.state.graph_cache import GraphCache


def budget_document(
    connection: Connection, task_id: str, graphs: GraphCache | None = None
) -> dict[str, Json]:
    """Return what a task's own calls used, and its budgets with what is used of each.

    A task's budget counts its children too, and the reservations of calls whose use is unknown.
    """
    calls, tokens_in, tokens_out, microusd, still_open = store.usage(connection, task_id)
    budgets = store.of_task(connection, task_id)
    names = {}
    if any("/" in key for key, *_ in budgets):
        # The graph has the names; parsing a large one takes longer than all the rest.
        workflow = task_rows.workflow_of(connection, task_id)
        graph = (graphs or GraphCache()).get(connection, *workflow)
        names = {str(index): step.name for index, step in enumerate(graph.steps)}
    return {
        "task": task_id,
        "calls": calls,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "usd": microusd / MICROUSD,
        "usd_of_unknown_calls": still_open / MICROUSD,
        "budgets": [
            {
                "step": names[key.rpartition("/")[2]] if "/" in key else None,
                "tokens": tokens,
                "tokens_limit": tokens_limit,
                "usd": taken / MICROUSD,
                "usd_limit": None if limit is None else limit / MICROUSD,
            }
            for key, tokens_limit, limit, tokens, taken in budgets
        ],
    }


def day_document(connection: Connection, limits: BudgetSettings, now: int) -> dict[str, Json]:
    """Return what is taken of the day's budget, unknown calls included, and how much it allows."""
    day = (to_iso(now) or "")[:10]
    tokens, microusd, ms = store.of_day(connection, day)
    return {
        "day": day,
        "tokens": tokens,
        "tokens_limit": limits.daily_tokens or None,
        "usd": microusd / MICROUSD,
        "usd_limit": limits.daily_usd or None,
        "seconds": ms / 1000,
        "seconds_limit": limits.daily_seconds or None,
    }
