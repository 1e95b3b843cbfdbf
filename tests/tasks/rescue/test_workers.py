"""Workers that start, stop, fall silent or share a database, and checks of their claims."""

import os
import signal
import subprocess
from typing import Any

import pytest

from agent import recovery
from agent.core.clock import SECOND, Clock
from agent.core.waits import ChildRequest
from agent.steps.attempt.outcome_rules import DECLARED_DEAD
from agent.steps.process import processes
from agent.steps.types.outcome import Waiting
from agent.store.db.database import Database
from agent.store.engine import reads, workers
from agent.tasks.operator.operator import Operator
from agent.tasks.rescue import rescue_steps
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.attempts import claim_of
from tests.support.child_tasks import child_of, register
from tests.support.engine import (
    PATIENCE_SECONDS,
    Engine,
    Hand,
    HandClock,
    Start,
    eventually,
    find_violations,
    graph,
    other,
    step,
)
from tests.support.interventions import lose
from tests.support.step_functions import Gate, runs


def test_a_worker_that_stops_releases_its_steps(start: Start) -> None:
    """A graceful stop costs no attempt: the next worker starts the step as if it were new."""
    first = start()
    gate = Gate()
    task_id = first.submit(graph(step("a", "gated", given={"gate": gate.name, "value": 1})))
    eventually(lambda: gate.entered == 1)
    first.stop()
    assert first.statuses(task_id) == {"a": "pending"}
    assert "step.returned" in first.types(task_id)
    assert first.rows("SELECT count(*) FROM workers WHERE dead = 0") == [(0,)]
    gate.open()
    second = start()
    done = second.wait(task_id, "succeeded")
    assert (done["output"], done["steps"][0]["attempt"]) == ({"a": 1}, 1)


def test_an_attempt_that_ends_during_the_grace_period_is_recorded(start: Start) -> None:
    """An attempt in a thread that finishes while its worker stops keeps its result."""
    engine = start(shutdown_seconds=60.0)
    gate = Gate()
    given = {"gate": gate.name}
    task_id = engine.submit(graph(step("a", "heeding", given=given), step("b", after=["a"])))
    eventually(lambda: gate.entered == 1)
    engine.stop()
    assert engine.statuses(task_id) == {"a": "succeeded", "b": "pending"}
    assert engine.steps(task_id)["a"]["output"] == "stopped"


def test_an_attempt_that_outlasts_the_grace_period_is_released(start: Start) -> None:
    """A step that began no call loses no attempt, however late its worker stopped."""
    first = start(shutdown_seconds=0.5)
    token = Gate().name
    task_id = first.submit(graph(step("a", "slow_to_stop", given={"token": token})))
    eventually(lambda: runs[token])
    first.stop()
    assert first.statuses(task_id) == {"a": "pending"}
    assert first.types(task_id, "a") == ["step.claimed", "step.returned"]


def test_an_effect_that_outlasts_the_grace_period_is_unknown(start: Start) -> None:
    """A worker that stops in order keeps no claim, and no effect counts as done."""
    first = start(shutdown_seconds=0.0)
    token = Gate().name
    task_id = first.submit(graph(step("a", "acting", given={"token": token})))
    eventually(lambda: runs[token])
    first.stop()
    assert first.statuses(task_id) == {"a": "pending"}
    assert first.types(task_id, "a")[-2:] == ["tool_call.unknown", "step.lost"]
    # It crashed no worker, so other steps may run beside it.
    assert first.rows("SELECT alone FROM steps WHERE task_id = :id", id=task_id) == [(0,)]
    second = start()
    waiting = second.wait_step(task_id, "a", "waiting")
    assert waiting["attempt"] == 2
    assert len(runs[token]) == 1


def test_a_thread_that_outlasts_the_grace_period_keeps_its_claim(start: Start) -> None:
    """While code runs that cannot be stopped, no other worker gets its step."""
    first = start(shutdown_seconds=0.0)
    gate = Gate()
    task_id = first.submit(graph(step("a", "stubborn", given={"gate": gate.name})))
    eventually(lambda: gate.entered == 1)
    first.stop()
    assert first.statuses(task_id) == {"a": "running"}
    assert first.rows("SELECT count(*) FROM workers WHERE dead = 0") == [(0,)]
    gate.open()
    recovery.recover(first.database, first.clock)
    second = start()
    assert second.wait(task_id, "succeeded")["steps"][0]["attempt"] == 2


def test_a_live_workers_step_is_not_taken_over(engine: Engine) -> None:
    """A step that runs for long is checked again and again, and keeps its claim."""
    gate = Gate()
    task_id = engine.submit(graph(step("a", "gated", given={"gate": gate.name})))
    eventually(lambda: gate.entered == 1)
    for _ in range(2):
        engine.skip(300)
        eventually(
            lambda: engine.rows(
                "SELECT 1 FROM steps WHERE task_id = :id AND wake_at > :now",
                id=task_id,
                now=engine.clock.now(),
            )
        )
    gate.open()
    done = engine.wait(task_id, "succeeded")
    assert done["steps"][0]["attempt"] == 1
    assert engine.types(task_id, "a") == ["step.claimed", "step.succeeded"]


def test_timers_and_deadlines_work_without_a_free_slot(start: Start) -> None:
    """With every slot taken, timers still wake steps and deadlines still end tasks."""
    engine = start(slots=1)
    gate = Gate()
    waiting = engine.submit(graph(other("wait", "wait", config={"duration": "1h"}), name="waiting"))
    engine.wait_step(waiting, "wait", "waiting")
    busy = engine.submit(graph(step("a", "gated", given={"gate": gate.name}), name="busy"))
    eventually(lambda: gate.entered == 1)
    late = engine.submit(graph(step("a"), name="late", timeout_seconds=600.0))
    engine.skip(7200)
    assert engine.wait(late, "failed")["error"]["code"] == "deadline_exceeded"
    engine.wait_step(waiting, "wait", "pending")
    gate.open()
    for task_id in (waiting, busy):
        engine.wait(task_id, "succeeded")


def test_an_attempt_of_a_pruned_task_frees_its_slot(start: Start) -> None:
    """The late outcome of a cancelled task that was pruned meanwhile is dropped."""
    engine = start(slots=1)
    gate = Gate()
    task_id = engine.submit(graph(step("a", "stubborn", given={"gate": gate.name})))
    eventually(lambda: gate.entered == 1)
    engine.operator.cancel(task_id)
    with engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("DELETE FROM tasks WHERE id = :id", id=task_id)
    gate.open()
    assert engine.run(graph(step("b"), name="next"))["status"] == "succeeded"


def test_two_workers_share_the_work(postgres_database: Database) -> None:
    """Every step of every task runs once, on either worker, and both shut down."""
    token = Gate().name
    engines = [Engine(postgres_database), Engine(postgres_database)]
    chain = graph(
        step("a", "record", given={"token": token}),
        step("b", "record", after=["a"], given={"token": token}),
    )
    try:
        tasks = [engines[number % 2].submit(chain) for number in range(30)]
        for task_id in tasks:
            assert engines[0].wait(task_id, "succeeded", "failed")["status"] == "succeeded"
        assert sorted(runs[token]) == [("a", None, 1)] * 30 + [("b", None, 1)] * 30
    finally:
        for engine in engines:
            engine.stop()
            engine.close()
    assert find_violations(postgres_database) == []


def test_a_silent_workers_steps_are_taken_over(postgres_database: Database) -> None:
    """A worker without a heartbeat for one lease is declared dead, and its step runs on another."""
    postgres_database.clock = HandClock()
    silent = Hand(postgres_database)
    task_id = silent.start(graph(step("a", "echo", given={"value": 3})))
    engine = Engine(postgres_database, lease_seconds=1.0)
    try:
        done = engine.wait(task_id, "succeeded")
        assert (done["output"], done["steps"][0]["attempt"]) == ({"a": 3}, 2)
        assert engine.types(task_id, "a").count("step.lost") == 1
        dead = engine.rows("SELECT id FROM workers WHERE dead = 1")
        assert dead == [(silent.committer.worker_id,)]
    finally:
        engine.stop()
        engine.close()
        silent.close()
    assert find_violations(postgres_database) == []


def test_a_worker_with_a_wrong_clock_follows_the_databases_clock(
    postgres_database: Database,
) -> None:
    """Work of other processes is due at once, although the worker's clock was set back."""
    clock = postgres_database.clock = Clock()
    engine = Engine(postgres_database, lease_seconds=1.0)
    try:
        clock.set_to(clock.now() - 3600 * SECOND)
        task_id = Operator(postgres_database, Clock()).submit(Submission(graph=graph(step("a"))))
        engine.wait(task_id, "succeeded")
    finally:
        engine.stop()
        engine.close()


def test_a_takeover_ends_the_processes_of_a_killed_worker(
    postgres_database: Database,
) -> None:
    """No worker starts a step again beside the process of its lost attempt."""
    postgres_database.clock = HandClock()
    silent = Hand(postgres_database)
    task_id = silent.start(graph(step("a", "echo")))
    gone = subprocess.Popen(["true"])
    gone.wait()
    marks = {
        **processes.marks(silent.claimed("a").step_id, 1),
        processes.AGENT: f"{gone.pid} then",
    }
    orphan = subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, **marks})
    engine = Engine(postgres_database, lease_seconds=1.0)
    try:
        engine.wait(task_id, "succeeded")
        assert orphan.wait(PATIENCE_SECONDS) == -signal.SIGTERM
    finally:
        orphan.kill()
        engine.stop()
        engine.close()
        silent.close()


def test_a_busy_worker_detects_dead_workers(postgres_database: Database) -> None:
    """It checks the others although it is never idle."""
    postgres_database.clock = HandClock()
    silent = Hand(postgres_database)
    task_id = silent.start(graph(step("a")))
    engine = Engine(postgres_database, lease_seconds=1.0, poll_seconds=30.0)
    try:
        # Each of these wakes the worker before its own poll.
        eventually(
            lambda: (
                engine.submit(graph(step("b"), name="busy"))
                and engine.status(task_id) == "succeeded"
            )
        )
    finally:
        engine.stop()
        engine.close()
        silent.close()
    assert find_violations(postgres_database) == []


def test_a_worker_that_has_committed_is_not_declared_dead(checked: Database) -> None:
    """An observer that saw an earlier commit number must not declare it dead."""
    hand = Hand(checked)
    task_id = hand.start(graph(step("a")))
    seen = hand.committer.session.tx_number - 1
    with checked.connect("writer") as tx, tx.transaction():
        assert not workers.declare_dead(tx, hand.committer.worker_id, seen, hand.clock.now())
    hand.succeed("a")
    assert hand.status(task_id) == "succeeded"
    hand.close()


def test_a_child_that_a_dead_worker_was_to_cancel_is_cancelled(
    postgres_database: Database,
) -> None:
    """The worker that detects the death cancels it."""
    postgres_database.clock = HandClock()
    silent = Hand(postgres_database)
    register(silent, graph(other("ask", "wait", config={"signal": "go"}), name="child"))
    task_id = silent.start(graph(other("run", "workflow"), step("bad"), name="parent"))
    silent.settle({"run": Waiting(ChildRequest("child", {}))})
    child_id = child_of(silent, task_id)
    silent.fail("bad")
    assert (silent.status(task_id), silent.status(child_id)) == ("failed", "running")
    engine = Engine(postgres_database, lease_seconds=1.0)
    try:
        engine.wait(child_id, "canceled")
    finally:
        engine.stop()
        engine.close()
        silent.close()
    assert find_violations(postgres_database) == []


def test_two_workers_take_over_at_once(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second to take over a step leaves it to the worker that runs it by then."""
    postgres_database.clock = HandClock()
    dead, first, second = (Hand(postgres_database) for _ in range(3))
    task_id = dead.start(graph(step("a")))
    with postgres_database.connect("writer") as tx, tx.transaction():
        workers.retire(tx, dead.committer.worker_id, dead.clock.now(), "worker.died")
    lock_tasks = reads.lock_tasks

    def take(hand: Hand) -> int:
        return rescue_steps.take_over(
            hand.committer.connection,
            hand.committer.graphs,
            hand.clock,
            [dead.committer.worker_id],
            is_process_gone=False,
        )

    def be_late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(reads, "lock_tasks", lock_tasks)
        assert take(first) == 1
        first.skip(60)
        first.commit()
        return lock_tasks(*arguments, **options)

    # The second has found the step, and has not locked its task yet.
    monkeypatch.setattr(reads, "lock_tasks", be_late)
    assert take(second) == 0
    assert first.names() == ["a"]
    first.succeed("a")
    assert (first.status(task_id), first.steps(task_id)["a"]["attempt"]) == ("succeeded", 2)
    for hand in (dead, first, second):
        hand.close()
    assert find_violations(postgres_database) == []


def test_a_takeover_leaves_locked_tasks_for_the_next_pass(postgres_database: Database) -> None:
    """It releases every step that it can lock, and waits for no other transaction."""
    postgres_database.clock = HandClock()
    dead, survivor = Hand(postgres_database), Hand(postgres_database)
    task_ids = [dead.start(graph(step("a"))) for _ in range(3)]
    owner = dead.committer.worker_id
    with postgres_database.connect("writer") as tx, tx.transaction():
        workers.retire(tx, owner, dead.clock.now(), "worker.died")

    def take_over() -> int:
        committer = survivor.committer
        return rescue_steps.take_over(
            committer.connection, committer.graphs, dead.clock, [owner], is_process_gone=False
        )

    with postgres_database.connect("writer") as tx, tx.transaction():
        assert len(reads.lock_tasks(tx, ("id",), task_ids[1:2])) == 1
        assert take_over() == 2
        statuses = [survivor.statuses(task_id)["a"] for task_id in task_ids]
        assert statuses == ["pending", "running", "pending"]
    assert take_over() == 1
    for hand in (dead, survivor):
        hand.close()
    assert find_violations(postgres_database) == []


def test_a_worker_that_comes_back_learns_from_a_poll_that_it_was_declared_dead(hand: Hand) -> None:
    """Its attempts then leave their jobs to the next ones; those of a canceled task stop theirs."""
    canceled_id, _ = hand.submit(graph(step("canceled")), graph(step("lost")))
    canceled, lost = (claim_of(hand.claimed(name)) for name in ("canceled", "lost"))
    hand.operator.cancel(canceled_id)
    lose(hand)
    assert hand.committer.poll([canceled, lost]).lost_claims == {
        canceled.step_id: "the task no longer wants this attempt",
        lost.step_id: DECLARED_DEAD,
    }
