"""Plans for triggers as parts of a worker's commit: many in one, carried, split, and followed up."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog.testing

from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from agent.store.engine import trigger_rows
from agent.tasks.commit.batch import Batch
from agent.tasks.rules.firings.trigger_update import FireResult, Run, TriggerUpdate
from tests.support.engine import PATIENCE_SECONDS, Engine, eventually, settle_of, step
from tests.support.step_functions import Gate
from tests.support.trigger_bench import TriggerBench

LONE_SURROGATE = "\ud800"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep the log from drawing tracebacks."""
    with structlog.testing.capture_logs():
        yield


def define(bench: TriggerBench, *names: str, overlap: str = "allow", **options: Any) -> None:
    """Define schedules that no pass of these tests finds due."""
    specs = [{"id": name, "every_seconds": 1e6, "overlap": overlap} for name in names]
    bench.define(*specs, **options)


def plan(bench: TriggerBench, name: str, *runs: Run) -> TriggerUpdate:
    """Return a plan from a trigger as it is now."""
    row = trigger_rows.find(bench._connection, f"tested:{name}")
    assert row is not None
    return TriggerUpdate(row.id, row.version, runs=list(runs))


def test_plans_of_many_triggers_are_one_commit(bench: TriggerBench) -> None:
    """Their tasks are created and claimed in the transaction that records the firings."""
    define(bench, "a", "b", "c")
    plans = [plan(bench, name, bench.run_of(0)) for name in "abc"]
    done = bench.commit(Batch(trigger_updates=plans))
    assert [result.status for _, result in done.result.fired] == ["applied"] * 3
    assert {claimed.task.id for claimed in done.attempts} == set(bench.task_ids())
    assert [fate for _, fate in bench.fates()] == ["started"] * 3


def test_the_second_plan_of_a_trigger_is_carried(bench: TriggerBench) -> None:
    """One commit applies one plan a trigger; the other one is made stale by it."""
    define(bench, "a")
    plans = [plan(bench, "a", bench.run_of(0)), plan(bench, "a", bench.run_of(1))]
    bench.at(1)
    done = bench.commit(Batch(trigger_updates=plans))
    assert done.result.carried_updates == [plans[1]]
    again = bench.commit(Batch(trigger_updates=done.result.carried_updates))
    assert [result.status for _, result in again.result.fired] == ["stale"]
    assert bench.fates() == [(0, "started")]


def test_a_locked_trigger_is_carried_and_not_waited_for(postgres_database: Database) -> None:
    """Another transaction holds a trigger: the commit applies the others, and this one later."""
    bench = TriggerBench(postgres_database)
    try:
        define(bench, "free", "held")
        plans = [plan(bench, name, bench.run_of(0)) for name in ("free", "held")]
        with postgres_database.connect("writer") as tx, tx.transaction():
            trigger_rows.lock(tx, ["tested:held"])
            done = bench.commit(Batch(trigger_updates=plans))
            assert [update for update, _ in done.result.fired] == [plans[0]]
            assert done.result.carried_updates == [plans[1]]
        again = bench.commit(Batch(trigger_updates=done.result.carried_updates))
        assert [result.status for _, result in again.result.fired] == ["applied"]
        assert len(bench.task_ids()) == 2
    finally:
        bench.close()


def test_the_operator_waits_for_a_locked_trigger(postgres_database: Database) -> None:
    """A command's own transaction applies its plan after the one that holds the trigger."""
    bench = TriggerBench(postgres_database)
    try:
        define(bench, "held")
        update = plan(bench, "held", bench.run_of(0))
        results: list[FireResult] = []
        thread = threading.Thread(target=lambda: results.append(bench.fire(update)))
        with postgres_database.connect("writer") as tx, tx.transaction():
            trigger_rows.lock(tx, ["tested:held"])
            thread.start()
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            eventually(lambda: bench.rows(waiting) != [(0,)], "it waits for the lock")
            assert results == []
        thread.join(PATIENCE_SECONDS)
        assert [result.status for result in results] == ["applied"]
    finally:
        bench.close()


def test_a_task_that_cannot_be_created_is_recorded_as_skipped(bench: TriggerBench) -> None:
    """A bad plan costs only itself: its run is skipped with the reason, and its cursor moves on."""
    define(bench, "bad", "good")
    bad = plan(bench, "bad", bench.run_of(0))
    run = Run((("0", bench.now),), bench.now, {"x": LONE_SURROGATE}, {}, 1)
    bad.runs, bad.values = [run], {"cursor": '"next"'}
    good = plan(bench, "good", bench.run_of(0))
    done = bench.commit(Batch(trigger_updates=[bad, good]))
    fates = {update.trigger_id: result.fates for update, result in done.result.fired}
    assert fates == {"tested:bad": {"0": "skipped"}, "tested:good": {"0": "started"}}
    (reason,) = [each["reason"] for each in bench.firings() if each["status"] == "skipped"]
    assert reason.startswith("its task could not be created: ")
    assert len(bench.task_ids()) == 1
    assert trigger_rows.cursor_of(bench._connection, "tested:bad") == '"next"'


def test_a_queued_run_that_cannot_be_created_is_skipped(bench: TriggerBench) -> None:
    """A bad run that waits does not stop the notices of its trigger for ever."""
    define(bench, "a", overlap="queue")
    bench.commit(Batch(trigger_updates=[plan(bench, "a", bench.run_of(0))]))
    bench.at(1)
    bench.commit(Batch(trigger_updates=[plan(bench, "a", bench.run_of(1))]))
    with bench.database.connect("writer") as tx, tx.transaction():
        text = json.dumps({"x": LONE_SURROGATE})
        tx.execute("UPDATE firings SET input = :text WHERE status = 'queued'", text=text)
    (first,) = bench.task_ids()
    done = bench.succeed("work", task_id=first)
    assert done.result.ended_triggers == ["tested:a"]
    bench.commit(Batch(trigger_updates=[TriggerUpdate("tested:a")]))
    assert bench.fates() == [(0, "started"), (1, "skipped")]


def test_an_end_in_the_same_commit_starts_the_queued_run_later(bench: TriggerBench) -> None:
    """A run that comes with the end of the task before it is queued, and the notice starts it."""
    define(bench, "a", overlap="queue")
    bench.commit(Batch(trigger_updates=[plan(bench, "a", bench.run_of(0))]))
    bench.at(1)
    (first,) = bench.task_ids()
    ended = settle_of(bench.claimed("work", first), Succeeded(None))
    due = plan(bench, "a", bench.run_of(1))
    done = bench.commit(Batch(completions=[ended], trigger_updates=[due]))
    assert bench.fates() == [(0, "started"), (1, "queued")]
    for trigger_id in done.result.ended_triggers:
        bench.commit(Batch(trigger_updates=[TriggerUpdate(trigger_id)]))
    assert bench.fates() == [(0, "started"), (1, "started")]


class Running:
    """A worker that runs beside the test, with a bench that defines and reads."""

    def __init__(self, database: Database) -> None:
        self.bench = TriggerBench(database)
        self.engine = Engine(database)
        self.gate = Gate()

    def define(self, overlap: str) -> None:
        """Define a schedule whose tasks wait at the gate."""
        steps = [step("work", "gated", given={"gate": self.gate.name})]
        define(self.bench, "a", overlap=overlap, steps=steps)

    def fire(self, *runs: Run) -> FireResult:
        """Let the worker apply a plan."""
        work = self.engine.worker.fire(plan(self.bench, "a", *runs))
        return asyncio.run_coroutine_threadsafe(work, self.engine.loop).result(PATIENCE_SECONDS)

    def close(self) -> None:
        """Stop the worker."""
        self.gate.open()
        self.engine.stop()
        self.engine.close()
        self.bench.close()


@pytest.fixture
def running(database: Database) -> Iterator[Running]:
    """Return a running worker."""
    running = Running(database)
    yield running
    running.close()


def test_the_worker_starts_the_queued_run_when_a_task_ends(running: Running) -> None:
    """The end of a task is passed to its trigger, without a pass of the daemon."""
    running.define("queue")
    bench = running.bench
    first = running.fire(bench.run_of(0)).started["0"]
    bench.at(1)
    assert running.fire(bench.run_of(1)).fates == {"1": "queued"}
    running.gate.open()
    bench.wait(first, "succeeded")
    eventually(lambda: len(bench.task_ids()) == 2, bench.fates)
    bench.wait(bench.task_ids()[1], "succeeded")
    assert bench.fates() == [(0, "started"), (1, "started")]


@pytest.mark.parametrize("by", ["operator", "overlap"])
def test_a_cancelled_task_makes_room(running: Running, by: str) -> None:
    """An operator's cancellation starts the queued run; so does that of `cancel_other`."""
    running.define("queue" if by == "operator" else "cancel_other")
    bench = running.bench
    first = running.fire(bench.run_of(0)).started["0"]
    bench.at(1)
    running.fire(bench.run_of(1))
    if by == "operator":
        bench.operator.cancel(first, "enough")
    bench.wait(first, "canceled")
    eventually(lambda: len(bench.task_ids()) == 2, bench.fates)
    assert bench.fates() == [(0, "started"), (1, "started")]


def test_a_stale_plan_is_answered(running: Running) -> None:
    """The caller of a plan that changed nothing is answered so."""
    running.define("allow")
    bench = running.bench
    stale = plan(bench, "a", bench.run_of(1))
    running.fire(bench.run_of(0))
    work = running.engine.worker.fire(stale)
    done = asyncio.run_coroutine_threadsafe(work, running.engine.loop).result(PATIENCE_SECONDS)
    assert done.status == "stale"
