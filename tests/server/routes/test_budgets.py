"""Budgets over HTTP: `read` shows them, `approve` raises them."""

import re

import httpx
import pytest

from agent.server.schemas.budgets import BudgetDocument, DayDocument
from agent.store.engine import budget_rows as store
from agent.tasks.read_models import spending
from tests.support.server import Running


@pytest.fixture
def task(client: httpx.Client) -> str:
    """Return a task that waits."""
    return str(client.post("/api/v1/workflows/signalled/tasks").json()["id"])


def test_a_budget_is_shown_and_raised(running: Running, client: httpx.Client, task: str) -> None:
    """The document equals the command line's; a new limit applies at once."""
    address = f"/api/v1/tasks/{task}/budget"
    assert client.get(address).json()["budgets"] == []
    with running.client(running.token_with("operate")) as program:
        assert program.post(address, json={"usd": 5}).status_code == 403
    with running.client(running.token_with("approve")) as person:
        raised = person.post(address, json={"usd": 2.5, "tokens": 900, "seconds": 86_400})
    assert (raised.status_code, raised.json()["changed"]) == (200, True)
    document = client.get(address).json()
    BudgetDocument.model_validate(document)
    (budget,) = document["budgets"]
    assert (budget["usd_limit"], budget["tokens_limit"]) == (2.5, 900)
    with running.database.connect("reader") as connection:
        assert document == spending.budget_document(connection, task)
    assert client.get(f"/api/v1/tasks/{task}").json()["deadline"] is not None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 422),
        ({"usd": 0}, 422),
        ({"tokens": 0}, 422),
        ({"seconds": -1}, 422),
        ({"step": "ask", "seconds": 5}, 409),
        ({"step": "none", "usd": 1}, 404),
        ({"seconds": 0.000001}, 409),
    ],
)
def test_invalid_budgets_are_refused(
    client: httpx.Client, task: str, body: dict[str, object], code: int
) -> None:
    """An invalid budget is refused and changes nothing."""
    assert client.post(f"/api/v1/tasks/{task}/budget", json=body).status_code == code
    assert client.get(f"/api/v1/tasks/{task}/budget").json()["budgets"] == []


def test_a_day(running: Running, client: httpx.Client) -> None:
    """`read` shows what all tasks have used today."""
    document = client.get("/api/v1/budget").json()
    DayDocument.model_validate(document)
    limits = running.settings.budget
    with running.database.connect("reader") as connection:
        assert document == spending.day_document(connection, limits, running.database.clock.now())


def test_an_unknown_task(client: httpx.Client) -> None:
    """The budget of a missing task is 404."""
    assert client.get("/api/v1/tasks/none/budget").status_code == 404
    assert client.post("/api/v1/tasks/none/budget", json={"usd": 1}).status_code == 404


def _figures(client: httpx.Client) -> dict[str, float]:
    figures = re.findall(
        r"^(agent_[a-z_]+) ([0-9.e+-]+)$", client.get("/metrics").text, re.MULTILINE
    )
    return {name: float(value) for name, value in figures}


def test_metrics_and_the_day_agree(running: Running, client: httpx.Client) -> None:
    """The day's gauges equal the day's document, unknown calls included; counters only grow."""
    today = client.get("/api/v1/budget").json()["day"]
    with running.database.connect("writer") as tx, tx.transaction():
        for day in (today, "2020-01-01"):
            store.lock_day(tx, day)
        # Used, then set aside: tokens and millionths of a dollar; at last milliseconds.
        used_and_open = (700, 1_250_001, 90, 40_000, 3500, 60_000)
        store.add_to_days(tx, [(today, *used_and_open), ("2020-01-01", 5, 7, 0, 0, 1000, 0)])
    figures, day = _figures(client), client.get("/api/v1/budget").json()
    assert figures["agent_model_tokens_today"] == day["tokens"] == 790
    assert figures["agent_spend_usd_today"] == day["usd"] == 1.290001
    assert figures["agent_model_seconds_today"] == day["seconds"] == 63.5
    assert figures["agent_model_tokens_total"] == 705
    assert figures["agent_model_usd_total"] == 1.250008
    assert figures["agent_model_seconds_total"] == 4.5
    with running.database.connect("writer") as tx, tx.transaction():
        # What was set aside turns out to have been used in part.
        store.add_to_days(tx, [(today, 10, 1, -90, -40_000, 500, -60_000)])
    figures, day = _figures(client), client.get("/api/v1/budget").json()
    assert figures["agent_model_tokens_today"] == day["tokens"] == 710
    assert figures["agent_model_tokens_total"] == 715
