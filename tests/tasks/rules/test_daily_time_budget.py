"""A daily time budget: reserved like tokens and money, settled with the time that calls took."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config.models import BudgetSettings, LlmSettings
from agent.core.state_machine import CallStatus
from agent.models.registry import registry_of
from agent.steps.types.call_records import Spend
from agent.steps.types.outcome import Paused, Retry, StepError, Succeeded
from agent.store.db.database import Database
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.read_models.spending import day_document
from agent.tasks.rescue import rescue_steps, spilled_results
from agent.tasks.worker.attempts import claim_of
from tests.support.engine import Engine, Hand, Start, eventually, find_violations, graph
from tests.support.model_servers import Provider, Say, Stall, providing
from tests.support.model_steps import ask, catalog
from tests.support.reservations import DAY, begin_at_noon, intend, intent_of, result_of


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Return a stand-in for a provider."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with providing(Say("hello", tokens_in=60, tokens_out=40)) as provider:
        yield provider


def times(reader: Hand | Engine) -> list[tuple[int, ...]]:
    """Return the milliseconds used and reserved of each day."""
    return reader.rows("SELECT ms_used, ms_reserved FROM daily_spend ORDER BY day")


def lose(hand: Hand) -> None:
    """Let the worker die and another one take its steps over."""
    with hand.database.connect("writer") as tx:
        owner = hand.committer.worker_id
        rescue_steps.take_over(tx, hand.committer.graphs, hand.clock, [owner], is_process_gone=True)
    hand.running.clear()
    hand.committer.enroll()
    hand.commit()


def test_a_daily_time_budget_holds_across_tasks_and_workers(
    start: Start, server: Provider, checked: Database
) -> None:
    """Only calls whose timeouts fit together are sent; the next day lets the rest go on."""
    begin_at_noon(checked)
    server.gate = threading.Event()
    models = catalog(server, daily_ms=200_000)  # three calls of a minute fit, and a fourth does not
    engine = start(models=models)
    if not checked.is_sqlite:
        start(models=models)
    tasks = [
        engine.submit(graph(ask("it", timeout_seconds=60.0), name=f"task{number}"))
        for number in range(8)
    ]
    count = "SELECT count(*) FROM tasks WHERE status = :status"
    eventually(lambda: engine.rows(count, status="paused") == [(5,)])
    eventually(lambda: len(server.requests) == 3)
    assert times(engine) == [(0, 180_000)]
    (reason,) = {
        engine.document(task)["pause_reason"] for task in tasks if engine.status(task) == "paused"
    }
    assert "allows models 3m20s, 20s is left" in reason
    assert "may take up to 1m, its timeout; it may go on tomorrow (`agent resume`)" in reason
    server.gate.set()
    eventually(lambda: engine.rows(count, status="succeeded") == [(3,)])
    ((used, reserved),) = times(engine)
    assert 0 < used < 180_000 and reserved == 0
    assert len(server.requests) == 3
    ((latency, reserved),) = engine.rows("SELECT sum(latency_ms), sum(reserved_ms) FROM tool_calls")
    assert (latency, reserved) == (used, 180_000)
    engine.skip(86_400)
    for task in tasks:
        if engine.status(task) == "paused":
            engine.operator.resume(task)
            engine.wait(task, "succeeded")
    assert len(server.requests) == 8
    assert len(times(engine)) == 2


def test_a_lost_call_counts_with_its_timeout(hand: Hand) -> None:
    """A reservation that a crash left counts for all tasks of that day, and not of the next."""
    first = hand.start(graph(ask("it"), name="first"))
    claimed = hand.claimed("it", first)
    given: dict[str, Any] = {"ms": 60_000, "daily_ms": 100_000}
    assert intend(hand, (claimed, intent_of(claimed, 10, **given)))[0].refusal is None
    assert times(hand) == [(0, 60_000)]
    lose(hand)
    assert times(hand) == [(0, 60_000)]
    second = hand.start(graph(ask("it"), name="second"))
    other = hand.claimed("it", second)
    (note,) = intend(hand, (other, intent_of(other, 10, **given)))
    assert note.refusal is not None and "40s is left" in note.refusal.message
    assert hand.status(second) == "paused"
    assert hand.rows("SELECT count(*) FROM tool_calls") == [(1,)]
    hand.settle({"it": Paused()}, second)
    hand.operator.resume(second)
    hand.commit()
    other = hand.claimed("it", second)
    tomorrow = intent_of(other, 10, **given, day="2030-02-01")
    assert intend(hand, (other, tomorrow))[0].refusal is None
    assert times(hand) == [(0, 60_000), (0, 60_000)]


def test_calls_of_one_commit_see_each_other(hand: Hand) -> None:
    """Two calls that fit separately and not together: one is sent, and one is refused."""
    hand.start(graph(ask("one"), ask("two")))
    one, two = hand.claimed("one"), hand.claimed("two")
    given: dict[str, Any] = {"ms": 60_000, "daily_ms": 100_000}
    notes = intend(hand, (one, intent_of(one, 10, **given)), (two, intent_of(two, 10, **given)))
    assert [note.refusal is None for note in notes] == [True, False]
    assert times(hand) == [(0, 60_000)]


def test_a_failed_call_keeps_its_tokens_and_frees_its_time(hand: Hand) -> None:
    """A call that does not report its usage keeps its token reservation."""
    hand.start(graph(ask("it")))
    claimed = hand.claimed("it")
    intent = intent_of(claimed, 400, ms=60_000, daily_ms=100_000)
    intend(hand, (claimed, intent))
    error = StepError("timeout", "timeout", "no answer")
    result = result_of(intent, None, status=CallStatus.FAILED, error=error, latency_ms=1500)
    note = JournalEntry(claim_of(claimed), claimed.graph, result=result)
    for _ in range(2):
        hand.commit(Batch(entries=[note]))
        assert times(hand) == [(1500, 0)], "a result counts once"
    (spent,) = hand.rows("SELECT tokens_used, tokens_reserved FROM daily_spend")
    assert spent == (0, 400)
    hand.settle({"it": Retry(error)})


def test_time_beyond_the_reservation_counts_in_full(hand: Hand) -> None:
    """An answer that took longer than its timeout counts with its real duration."""
    hand.start(graph(ask("it")))
    claimed = hand.claimed("it")
    intent = intent_of(claimed, 10, ms=1000, daily_ms=5000)
    intend(hand, (claimed, intent))
    result = result_of(intent, Spend(5, 5, 10), latency_ms=4500)
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)]))
    assert times(hand) == [(4500, 0)]
    again = intent_of(claimed, 10, number=2, ms=1000, daily_ms=5000)
    (note,) = intend(hand, (claimed, again))
    assert note.refusal is not None and "500ms is left" in note.refusal.message
    hand.settle({"it": Succeeded()})


def test_an_exhausted_day_can_fail_the_step(start: Start, server: Provider) -> None:
    """With `on_exhausted: fail` the message names no command, since none would help."""
    engine = start(models=catalog(server, daily_ms=1000))
    step = ask("it", timeout_seconds=60.0)
    task = engine.run(graph(step, budget={"on_exhausted": "fail"}))
    assert (task["status"], task["error"]["code"]) == ("failed", "budget_exhausted")
    assert task["error"]["message"].endswith("its timeout; [budget] in the configuration sets it")
    assert server.requests == []


def test_a_call_longer_than_a_whole_days_budget(start: Start, server: Provider) -> None:
    """The message does not advise to wait for tomorrow."""
    models = catalog(server, daily_ms=1000)
    models.daily_tokens = 100_000
    engine = start(models=models)
    task_id = engine.submit(graph(ask("it", timeout_seconds=60.0)))
    reason = engine.wait(task_id, "paused")["pause_reason"]
    assert "1s is left" in reason
    assert reason.endswith(
        "no day has room for it: give it a shorter `timeout`, or raise [budget] in the configuration"
    )
    assert "tomorrow" not in reason


def test_a_call_without_a_response_counts_its_waiting_time(start: Start, server: Provider) -> None:
    """A timeout counts with the time that was waited."""
    server.replies = [Stall(), Say("hello", tokens_in=60, tokens_out=40)]
    engine = start(models=catalog(server, daily_ms=100_000))
    task = engine.run(graph(ask("it", timeout_seconds=1.0)))
    assert task["status"] == "succeeded"
    ((used, reserved),) = times(engine)
    assert 900 <= used < 60_000 and reserved == 0


def test_a_spilled_result_is_settled_later(hand: Hand, tmp_path: Path) -> None:
    """A result that was written to a file frees the time, and keeps the failure's message."""
    hand.start(graph(ask("it")))
    claimed = hand.claimed("it")
    intent = intent_of(claimed, 400, ms=60_000)
    intend(hand, (claimed, intent))
    error = StepError("status_400", "remote", "no such thing", is_final=True)
    result = result_of(
        intent, Spend(), status=CallStatus.FAILED, error=error, latency_ms=1500, response=None
    )
    note = JournalEntry(claim_of(claimed), claimed.graph, result=result)
    hand.database.directory = tmp_path
    assert spilled_results.write_file(hand.database, [note]) is not None
    with hand.database.connect("writer") as connection:
        assert spilled_results.replay(hand.database, connection, hand.committer.graphs) == 1
    assert times(hand) == [(1500, 0)]
    ((error,),) = hand.rows("SELECT error FROM tool_calls")
    assert "no such thing" in error and "final" in error
    hand.settle({"it": Succeeded()})


def test_the_checker_reports_missing_time(hand: Hand) -> None:
    """It finds time that a call took and its day does not count."""
    hand.start(graph(ask("it")))
    claimed = hand.claimed("it")
    intend(hand, (claimed, intent_of(claimed, 10, ms=60_000)))
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE daily_spend SET ms_reserved = 59000")
    assert find_violations(hand.database) == [
        "the budgets of days have ms_reserved 59000, and the calls of models have 60000"
    ]
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE daily_spend SET ms_reserved = 60000")


def test_the_document_of_a_day(hand: Hand) -> None:
    """Amounts include reservations; a limit that is not set is null."""
    hand.start(graph(ask("it")))
    claimed = hand.claimed("it")
    intend(hand, (claimed, intent_of(claimed, 400, ms=60_000)))
    limits = BudgetSettings(daily_seconds=90.5)
    with hand.database.connect("reader") as reader:
        noon = 1_896_091_200_000_000  # of the day of the reservation
        document = day_document(reader, limits, noon)
        tomorrow = day_document(reader, limits, noon + 86_400_000_000)
    assert document == {
        "day": DAY,
        "tokens": 400,
        "tokens_limit": None,
        "usd": 0.0004,
        "usd_limit": None,
        "seconds": 60.0,
        "seconds_limit": 90.5,
    }
    assert (tomorrow["tokens"], tomorrow["seconds"]) == (0, 0)


def test_a_tiny_limit_is_rounded_up() -> None:
    """Only 0 means no limit."""
    tiny = BudgetSettings(daily_tokens=1, daily_usd=1e-9, daily_seconds=1e-9)
    found = registry_of({}, LlmSettings(), tiny)
    assert (found.daily_tokens, found.daily_microusd, found.daily_ms) == (1, 1, 1)
    none = registry_of({}, LlmSettings(), BudgetSettings())
    assert (none.daily_tokens, none.daily_microusd, none.daily_ms) == (None, None, None)
