"""Spend: the cost of models by day, workflow and model, and the rest of the budgets."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agent.core.clock import SECOND
from agent.core.money import MICROUSD
from agent.server.pages.drawings.charts import column_chart, shares
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.store.db.database import Connection
from agent.store.read import spend
from agent.store.read.spend import CallSpend, DaySpend
from agent.tasks.read_models import spending

Document = dict[str, Any]

pages = PageRegistry("spend")

EVERY_SECONDS: Final = 30
_PERIODS: Final = {"7": 7, "30": 30, "90": 90}
_MOST_ROWS: Final = 20
_MOST_PAUSED: Final = 20


@pages.page("/spend", "spend.html", every_seconds=EVERY_SECONDS)
def spend_page(connection: Connection, request: PageRequest) -> Document:
    """Return the use in the chosen number of days."""
    days = _PERIODS.get(request.query.get("days", ""), 30)
    now = request.context.database.clock.now()
    today = datetime.fromtimestamp(now / SECOND, UTC).date()
    first = today - timedelta(days=days - 1)
    by_day = {spent.day: spent for spent in spend.by_day(connection, first.isoformat())}
    listed = [
        by_day.get(day := (first + timedelta(days=number)).isoformat(), DaySpend(day, 0, 0, 0))
        for number in range(days)
    ]
    limits = request.context.settings.budget
    since = int(datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp()) * SECOND
    calls, is_cut = spend.by_workflow_and_model(connection, since)
    return {
        "days": days,
        "periods": [
            (period, request.url(days=period), _PERIODS[period] == days) for period in _PERIODS
        ],
        "today": spending.day_document(connection, limits, now),
        "money": column_chart(
            [(spent.day, spent.microusd / MICROUSD) for spent in listed], limits.daily_usd or None
        ),
        "tokens": column_chart(
            [(spent.day, float(spent.tokens)) for spent in listed], limits.daily_tokens or None
        ),
        "total_usd": sum(spent.microusd for spent in listed) / MICROUSD,
        "total_tokens": sum(spent.tokens for spent in listed),
        "workflows": _table(calls, "workflow"),
        "models": _table(calls, "model"),
        "is_cut": is_cut,
        "most_calls": spend.MAX_CALLS,
        "paused": spend.paused_by_budget(connection, _MOST_PAUSED),
    }


def _table(calls: Sequence[CallSpend], key: str) -> list[Document]:
    """Return the use of each workflow or model, the most expensive first."""
    rows: dict[str, Document] = {}
    for call in calls:
        name = getattr(call, key)
        row = rows.setdefault(name, {"name": name, "calls": 0, "tokens": 0, "usd": 0.0})
        row["calls"] += call.calls
        row["tokens"] += call.tokens_in + call.tokens_out
        row["usd"] += call.microusd / MICROUSD
    ordered = sorted(rows.values(), key=lambda row: (-row["usd"], -row["tokens"], row["name"]))
    # Where nothing has a price, tokens tell the shares.
    measure = "usd" if any(row["usd"] for row in ordered) else "tokens"
    parts = shares([row[measure] for row in ordered])
    return [row | {"share": part} for row, part in zip(ordered, parts, strict=True)][:_MOST_ROWS]
