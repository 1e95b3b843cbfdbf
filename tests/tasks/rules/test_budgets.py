"""Budgets: no call is sent that exceeds them, however many run in parallel, and after any crash."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agent.store.db.database import Database
from agent.tasks.operator import budget_pause
from agent.tasks.rules.creation import Submission
from agent.workflows.graph import Fanout, Graph, Step
from tests.support.engine import NOW, Start, eventually, graph, other
from tests.support.model_servers import Provider, Say, providing
from tests.support.model_steps import ask, catalog, used
from tests.support.reservations import begin_at_noon


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Return a stand-in for a provider whose answers use 60 tokens in and 40 out."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with providing(Say("hello", tokens_in=60, tokens_out=40)) as provider:
        yield provider


def many(count: int, **options: Any) -> Graph:
    """Return a workflow that calls the model `count` times in parallel."""
    config = {"prompt": "hello", "max_tokens": 200}
    step = Step(name="all", kind="llm", config=config, retry=NOW, fanout=Fanout(count=count))
    return graph(step, **options)


def test_a_call_is_recorded_with_its_usage(start: Start, server: Provider) -> None:
    """The row has model, prompt hash, tokens, cost, latency, reservation, request and stop reason."""
    engine = start(models=catalog(server))
    task = engine.run(graph(ask("it")))
    assert task["output"] == {"it": "hello"}
    (row,) = engine.rows(
        "SELECT action, model, length(prompt_hash), tokens_in, tokens_out, cost_microusd,"
        " reserved_tokens, reserved_microusd, request_id, stop_reason FROM tool_calls"
    )
    assert row[:6] == ("model#1", "priced", 64, 60, 40, 100)
    assert 200 < row[6] < 300 and row[7] == row[6]
    assert row[8:] == ("req_openai", "end")
    assert used(engine, task["id"]) == (100, 100, 0, 0)
    ((tokens, reserved),) = engine.rows("SELECT tokens_used, tokens_reserved FROM daily_spend")
    assert (tokens, reserved) == (100, 0)
    types = engine.types(task["id"])
    assert types.index("budget.reserved") < types.index("tool_call.succeeded")


def test_a_budget_holds_under_parallel_steps(start: Start, server: Provider) -> None:
    """Only the parallel calls that fit are sent; then the task is paused with the reason."""
    server.gate = threading.Event()
    engine = start(models=catalog(server))
    limit = 900  # three reservations of some 235 fit, and a fourth does not
    task_id = engine.submit(many(12, budget={"tokens": limit}))
    engine.wait(task_id, "paused")
    eventually(lambda: list(engine.statuses(task_id).values()).count("paused") == 9)
    eventually(lambda: len(server.requests) == 3)
    tokens, _, reserved, _ = used(engine, task_id)
    assert tokens + reserved <= limit
    server.gate.set()
    eventually(lambda: used(engine, task_id)[2] == 0)
    assert len(server.requests) == 3
    assert used(engine, task_id)[0] == 300
    reason = engine.document(task_id)["pause_reason"]
    assert reason.startswith("budget: the task's budget allows 900 tokens")
    assert "agent budget" in reason
    assert "budget.exhausted" in engine.types(task_id)
    budget_pause.raise_budget(engine.operator, task_id, tokens=1000 + 12 * 300)
    task = engine.wait(task_id, "succeeded", "failed")
    assert task["output"] == {"all": ["hello"] * 12}
    assert len(server.requests) == 12, "what was answered before the pause is not asked again"
    assert used(engine, task_id) == (1200, 1200, 0, 0)


def test_a_money_budget_can_fail_the_task(start: Start, server: Provider) -> None:
    """`on_exhausted: fail` fails the step; the error names the rest and the amount needed."""
    engine = start(models=catalog(server))
    budget = {"usd": 0.0003, "on_exhausted": "fail"}
    task = engine.run(graph(ask("one"), ask("two", after=["one"]), budget=budget))
    assert task["status"] == "failed"
    assert task["error"]["code"] == "budget_exhausted"
    assert "allows $0.0003, $0.0002 is left" in task["error"]["message"]
    # A task that has ended takes no more: the command that raises a budget is no advice.
    assert task["error"]["message"].endswith("`budget` in the workflow sets it")
    assert len(server.requests) == 1


def test_a_negative_token_count_frees_no_budget(start: Start, server: Provider) -> None:
    """If a provider counts wrongly, the reservation counts as spent."""
    server.replies = [Say("hello", tokens_in=-1_000_000, tokens_out=-1_000_000)]
    engine = start(models=catalog(server))
    task = engine.run(graph(ask("it"), budget={"tokens": 10_000}))
    assert task["status"] == "succeeded"
    tokens, _, reserved, _ = used(engine, task["id"])
    assert tokens == 0 and 200 < reserved < 300


def test_a_model_without_a_price_is_refused_where_money_is_capped(
    start: Start, server: Provider
) -> None:
    """Its cost cannot be limited; its tokens can."""
    engine = start(models=catalog(server))
    step = ask("it", config={"model": "unpriced"})
    task = engine.run(graph(step, budget={"usd": 5}))
    assert (task["status"], task["error"]["code"]) == ("failed", "unpriced_model")
    # By the section in the configuration, where the price belongs; not by the provider's name.
    assert "model unpriced has no price" in task["error"]["message"]
    assert "in [models.unpriced] of the configuration" in task["error"]["message"]
    assert "usd_per_million_in" in task["error"]["message"]
    assert server.requests == []
    assert engine.run(graph(step, budget={"tokens": 5000}))["status"] == "succeeded"


def test_a_steps_budget_covers_all_its_items(start: Start, server: Provider) -> None:
    """It holds beside the task's, for all items of a group together, and is raised by its name."""
    engine = start(models=catalog(server))
    group = Step(
        name="all",
        kind="llm",
        config={"prompt": "hello", "max_tokens": 200},
        retry=NOW,
        fanout=Fanout(count=3, concurrency=1),
        budget={"tokens": 350},
    )
    task_id = engine.submit(graph(group, ask("other")))
    engine.wait(task_id, "paused")
    assert "the budget of step 'all'" in engine.document(task_id)["pause_reason"]
    budget_pause.raise_budget(engine.operator, task_id, step="all", tokens=10_000)
    assert engine.wait(task_id, "succeeded")["status"] == "succeeded"
    assert used(engine, f"{task_id}/0")[0] == 300


def test_a_daily_budget_pauses_or_fails(start: Start, server: Provider, checked: Database) -> None:
    """It limits all tasks together; a call beyond it pauses or fails its task, as the task says."""
    begin_at_noon(checked)
    engine = start(models=catalog(server, daily_tokens=300))
    assert engine.run(graph(ask("it")))["status"] == "succeeded"
    task = engine.run(graph(ask("it"), budget={"on_exhausted": "fail"}))
    assert task["status"] == "failed" and "the day's budget" in task["error"]["message"]
    assert task["error"]["message"].endswith("; [budget] in the configuration sets it")
    task_id = engine.submit(graph(ask("it")))
    assert "the day's budget" in engine.wait(task_id, "paused")["pause_reason"]
    engine.skip(86_400)
    engine.operator.resume(task_id)
    assert engine.wait(task_id, "succeeded")["status"] == "succeeded"


def test_a_daily_budget_holds_across_tasks_and_workers(
    start: Start, server: Provider, checked: Database
) -> None:
    """Many tasks, on PostgreSQL run by two workers, together send no more than the day allows."""
    begin_at_noon(checked)
    server.gate = threading.Event()
    engine = start(models=catalog(server, daily_tokens=900))
    if not checked.is_sqlite:
        start(models=catalog(server, daily_tokens=900))
    for number in range(12):
        engine.submit(graph(ask("it"), name=f"task{number}"))
    count = "SELECT count(*) FROM tasks WHERE status = :status"
    eventually(lambda: engine.rows(count, status="paused") == [(9,)])
    eventually(lambda: len(server.requests) == 3)
    server.gate.set()
    eventually(lambda: engine.rows(count, status="succeeded") == [(3,)])
    assert len(server.requests) == 3
    spent = engine.rows("SELECT tokens_used, tokens_reserved FROM daily_spend")
    assert spent == [(300, 0)]


def test_a_childs_calls_count_in_the_roots_budget(start: Start, server: Provider) -> None:
    """Raising the root's budget lets the child go on."""
    engine = start(models=catalog(server))
    engine.run(graph(ask("one"), ask("two", after=["one"]), name="child"))
    count = len(server.requests)
    child = other("run", "workflow", config={"name": "child"})
    root = engine.submit(graph(child, name="root", budget={"tokens": 300}))
    assert "allows 300 tokens" in engine.wait(root, "paused")["pause_reason"]
    (child_id,) = engine.document(root)["children"]
    assert f"the budget of task {root}" in engine.wait(child_id, "paused")["pause_reason"]
    assert len(server.requests) == count + 1
    budget_pause.raise_budget(engine.operator, root, tokens=1000)
    assert engine.wait(root, "succeeded")["status"] == "succeeded"
    assert used(engine, root)[0] == used(engine, child_id)[0] == 200


def test_children_are_paused_when_their_parents_time_is_over(
    start: Start, server: Provider
) -> None:
    """They go on with their parent."""
    engine = start(models=catalog(server))
    engine.operator.submit(Submission(graph=graph(other("w", "wait", config={"signal": "go"}),
                                                  name="child")))  # fmt: skip
    budget = {"time_seconds": 3600.0, "on_exhausted": "pause"}
    child = other("run", "workflow", config={"name": "child"})
    root = engine.submit(graph(child, name="root", budget=budget, timeout_seconds=3600.0))
    (child_id,) = eventually(lambda: engine.document(root)["children"])
    engine.wait_step(child_id, "w", "waiting")
    engine.skip(3601)
    engine.wait(root, "paused")
    engine.wait(child_id, "paused")
    budget_pause.raise_budget(engine.operator, root, seconds=10_000)
    assert engine.status(root) == engine.status(child_id) == "running"
    engine.operator.signal(child_id, "go")
    assert engine.wait(root, "succeeded")["status"] == "succeeded"


def test_steps_without_models_write_no_budgets(start: Start) -> None:
    """A task without model calls leaves no row in the budgets."""
    engine = start()
    engine.run(graph(other("nap", "wait", config={"duration": 0.001}), budget={"tokens": 5}))
    assert engine.rows("SELECT count(*) FROM budgets") == [(0,)]
