"""A function in a thread that outlives its attempt: the task ends at its time, the thread keeps its slot."""

from typing import Any

import pytest

from agent.store.db.database import Database
from agent.store.engine import workers
from agent.workflows.graph import RetryPolicy, Step
from tests.support.engine import Engine, Start, eventually, graph, step
from tests.support.step_functions import Gate, runs

ONCE = RetryPolicy(max_attempts=1)
REMARK = "tests.support.step_functions:stubborn still runs in its thread"


def stubborn(gate: Gate, name: str = "slow", **options: Any) -> Step:
    """Return a step whose function ignores everything until the gate opens."""
    return step(name, "stubborn", given={"gate": gate.name}, **options)


def let_end(engine: Engine, gate: Gate) -> None:
    """Let the thread end, and wait until its slot is free."""
    gate.open()
    eventually(lambda: engine.worker.running == 0)
    assert engine.worker.health.messages() == {}


def test_a_step_without_another_attempt_fails_at_its_time(start: Start) -> None:
    """Its error names the thread and the remedy; the slot is free again when the function returns."""
    engine, gate = start(slots=1), Gate()
    failed = engine.run(graph(stubborn(gate, timeout_seconds=0.1, retry=ONCE)))
    message = failed["steps"][0]["error"]["message"]
    assert failed["status"] == "failed"
    assert "longer than 0.1 s" in message and REMARK in message and "executor: process" in message
    assert "executor: process" in engine.worker.health.messages()["threads"]
    waiting = engine.submit(graph(step("one")))
    assert engine.worker.running == 1
    assert engine.statuses(waiting) == {"one": "pending"}
    let_end(engine, gate)
    engine.wait(waiting, "succeeded")
    assert engine.types(failed["id"])[-1] == "step.abandoned"
    assert engine.status(failed["id"]) == "failed"


def test_a_function_that_heeds_the_end_soon_ends_as_any_attempt(start: Start) -> None:
    """Clean-up follows it, and no event tells of its thread."""
    engine, hold, go = start(), Gate(), Gate()
    flying = step("flying", "heeding", given={"gate": hold.name, "pause_seconds": 0.3})
    failing = step("failing", "gated_failure", given={"gate": go.name}, retry=ONCE)
    sweep = step("sweep", "record", after=["flying"], run_on="always", given={"token": hold.name})
    task_id = engine.submit(graph(flying, failing, sweep))
    eventually(lambda: hold.entered)
    go.open()
    engine.wait(task_id, "failed")
    assert runs[hold.name][0] == "stopped"
    assert len(runs[hold.name]) == 2
    assert "step.abandoned" not in engine.types(task_id)


def test_no_other_attempt_starts_while_the_thread_lives(start: Start) -> None:
    """The step says what it waits for, from the end of its time on."""
    engine, gate = start(), Gate()
    task_id = engine.submit(graph(stubborn(gate, timeout_seconds=0.1)))
    delay = eventually(lambda: engine.steps(task_id)["slow"]["delay"])
    assert delay["thread"] == "tests.support.step_functions:stubborn"
    assert "longer than 0.1 s" in delay["error"] and REMARK in delay["error"]
    assert engine.run(graph(step("one")))["status"] == "succeeded"
    assert [attempt for _, _, attempt in runs[gate.name]] == [1]
    let_end(engine, gate)
    assert engine.wait(task_id, "succeeded")["steps"][0]["attempt"] == 2


@pytest.mark.parametrize("why", ["sibling", "deadline"])
def test_what_ends_the_task_does_not_wait_for_the_thread(start: Start, why: str) -> None:
    """A failed sibling, or the end of the task's time."""
    engine, gate, go = start(), Gate(), Gate()
    if why == "sibling":
        failing = step("failing", "gated_failure", given={"gate": go.name}, retry=ONCE)
        task_id = engine.submit(graph(stubborn(gate), failing))
        eventually(lambda: runs[gate.name])
        go.open()
        ended = engine.wait(task_id, "failed")
        assert ended["steps"][0]["status"] == "skipped"
    else:
        task_id = engine.submit(graph(stubborn(gate), timeout_seconds=0.5))
        ended = engine.wait(task_id, "failed")
        assert ended["error"]["code"] == "deadline_exceeded"
    assert engine.worker.running == 1
    let_end(engine, gate)


def test_a_canceled_task_is_left_once(start: Start) -> None:
    """The one late outcome is that of the thread."""
    engine, gate = start(), Gate()
    task_id = engine.submit(graph(stubborn(gate)))
    eventually(lambda: runs[gate.name])
    engine.operator.cancel(task_id)
    eventually(lambda: "threads" in engine.worker.health.messages())
    let_end(engine, gate)
    assert engine.types(task_id).count("step.abandoned") == 1


def test_a_step_that_waits_for_its_thread_ends_with_its_task(start: Start) -> None:
    """Its time was over before a sibling failed."""
    engine, gate, go = start(), Gate(), Gate()
    failing = step("failing", "gated_failure", given={"gate": go.name}, retry=ONCE)
    task_id = engine.submit(graph(stubborn(gate, timeout_seconds=0.1), failing))
    eventually(lambda: engine.steps(task_id)["slow"]["delay"])
    go.open()
    engine.wait(task_id, "failed")
    assert engine.worker.running == 1
    let_end(engine, gate)


def test_a_late_result_of_a_call_is_recorded(start: Start) -> None:
    """An effect of the thread is no more unknown when its function has returned."""
    engine, gate = start(), Gate()
    slow = step("slow", "call_stubbornly", given={"gate": gate.name}, retry=ONCE)
    task_id = engine.submit(graph(slow, timeout_seconds=0.5))
    engine.wait(task_id, "failed")
    ledger = "SELECT status FROM idempotency_outcomes"
    assert engine.rows(ledger) == [("unknown",)]
    let_end(engine, gate)
    eventually(lambda: engine.rows(ledger) == [("succeeded",)])


def test_a_step_that_is_claimed_again_beside_its_thread_is_returned(checked: Database) -> None:
    """A worker that was declared dead gets its step back while the old thread still runs."""
    engine, gate = Engine(checked, lease_seconds=1.0, solo_seconds=0.2), Gate()
    try:
        task_id = engine.submit(graph(stubborn(gate)))
        eventually(lambda: runs[gate.name])
        with checked.connect("writer") as tx, tx.transaction():
            workers.retire(tx, engine.worker.worker_id, engine.clock.now(), "worker.died")
        eventually(lambda: "step.returned" in engine.types(task_id))
        assert len(runs[gate.name]) == 1
        gate.open()
        eventually(lambda: engine.worker.running == 0)
        engine.skip(20)
        engine.wait(task_id, "succeeded")
        assert len(runs[gate.name]) == 2
    finally:
        gate.open()
        engine.stop()
        engine.close()
