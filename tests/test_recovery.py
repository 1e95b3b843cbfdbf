"""The startup pass recovers what dead workers left; it executes and guesses nothing."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent import recovery
from agent.config.execution import EngineSettings
from agent.config.models import BudgetSettings
from agent.core.clock import SECOND
from agent.core.ids import idempotency_key, new_id, request_hash
from agent.core.state_machine import CallStatus
from agent.core.waits import ChildRequest
from agent.recovery import Recovered
from agent.steps.process import processes
from agent.steps.process.processes import start_time
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.outcome import Failed, StepError, Waiting
from agent.store.db.database import Connection, Database, Role, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.operator.operator import Operator
from agent.tasks.rescue import peer_takeover
from agent.tasks.rescue.failure_detector import FailureDetector
from agent.tasks.rules.creation import Submission
from agent.tasks.worker import failures
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import Graph, RetryPolicy, Step
from tests.crash import functions
from tests.support.approvals import question, say
from tests.support.engine import Engine, Hand, HandClock, find_violations, step
from tests.support.step_functions import Gate, runs

PATIENCE_SECONDS = 60
REQUEST = {"to": "the world"}
AT_ONCE = RetryPolicy(max_attempts=3, delay_seconds=0, jitter=False)


class Dying(Hand):
    """A worker that dies, and the startup pass after it."""

    def die(self) -> Recovered:
        """Declare the worker dead, as a start or other workers would, and recover."""
        self.committer.session.disconnect()
        with self.database.connect("writer") as connection, connection.transaction():
            workers.retire(connection, self.committer.worker_id, self.clock.now(), "worker.died")
        return self.recover()

    def begin_again(self) -> None:
        """Let a new worker claim what is due."""
        self.running.clear()
        self.committer.enroll()
        self.commit()

    def recover(self) -> Recovered:
        """Run the startup pass."""
        return recovery.recover(self.database, self.clock)

    def note(self, claimed: AttemptInput, **entry: Any) -> None:
        """Let an attempt record something."""
        self.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, **entry)]))

    def row(self, task_id: str, name: str, columns: str) -> tuple[Any, ...]:
        """Return columns of a step's row."""
        (found,) = self.rows(
            f"SELECT {columns} FROM steps WHERE task_id = :id AND name = :name",
            id=task_id,
            name=name,
        )
        return found


@pytest.fixture
def dying(database: Database) -> Iterator[Dying]:
    """Return a worker that can die; the database must be sound whatever it left."""
    database.clock = HandClock()
    worker = Dying(database)
    yield worker
    assert find_violations(database) == []
    worker.close()


def intent_of(claimed: AttemptInput, now: int, **options: Any) -> Intent:
    """Return the intent of a step's one call."""
    digest = request_hash(REQUEST)
    key = idempotency_key(claimed.task.id, claimed.step_id, claimed.attempt, "post#1", digest)
    return Intent(
        call_id=new_id(),
        number=1,
        action="post#1",
        request=REQUEST,
        request_hash=digest,
        idempotency_key=key,
        remote_key="remote",
        on_unknown=options.pop("on_unknown", "ask"),
        send_by=now + 10 * SECOND,
        expires_at=now + 70 * SECOND,
        settles_step=True,
        **options,
    )


def result_of(
    intent: Intent, status: CallStatus, response: Any = None, *, is_final: bool = False
) -> CallResult:
    """Return the result of an intent."""
    error = None
    if status is CallStatus.FAILED:
        error = StepError("refused", "remote", "no", is_final)
    return CallResult(intent.call_id, intent.idempotency_key, status, response, error)


def two_steps(**options: Any) -> Graph:
    """Return a task whose second step needs the first."""
    return Graph(name="two", steps=[step("send", **options), step("after", after=["send"])])


def test_a_recorded_result_is_applied(dying: Dying) -> None:
    """The step takes the recorded response of its call; the task goes on."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    dying.note(claimed, result=result_of(intent, CallStatus.SUCCEEDED, {"id": 7}))
    assert dying.die().steps == 1
    assert dying.statuses(task_id) == {"send": "succeeded", "after": "pending"}
    assert dying.steps(task_id)["send"]["output"] == {"id": 7}
    assert dying.row(task_id, "after", "deps_remaining") == (0,)
    assert "tool_call.unknown" not in dying.types(task_id)


def test_a_response_without_its_body_is_no_success(dying: Dying) -> None:
    """A recorded response that was too large to store is left to the next attempt, which fails."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    response = {"status": 200, "headers": {}, "body": None, "truncated": True}
    dying.note(claimed, result=result_of(intent, CallStatus.SUCCEEDED, response))
    assert dying.die().steps == 1
    assert dying.statuses(task_id) == {"send": "pending", "after": "pending"}


@pytest.mark.parametrize("response", [{"body": {"truncated": True}}, '"truncated"', ["truncated"]])
def test_a_response_that_mentions_truncation_is_a_success(dying: Dying, response: Any) -> None:
    """Only the response's own field counts, not the word elsewhere in it."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    dying.note(claimed, result=result_of(intent, CallStatus.SUCCEEDED, response))
    assert dying.die().steps == 1
    assert dying.steps(task_id)["send"]["output"] == response


@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_a_recorded_final_failure_is_applied(
    dying: Dying, max_attempts: int, schema: dict[str, Any] | None
) -> None:
    """The step fails with the recorded error, without another attempt, and its task with it."""
    retry = AT_ONCE.model_copy(update={"max_attempts": max_attempts})
    task_id = dying.start(two_steps(output_schema=schema, retry=retry))
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    dying.note(claimed, result=result_of(intent, CallStatus.FAILED, is_final=True))
    assert dying.die().steps == 1
    assert dying.statuses(task_id) == {"send": "failed", "after": "skipped"}
    error = {"code": "refused", "class": "remote", "message": "no", "attempt": 1}
    assert dying.steps(task_id)["send"]["error"] == error
    assert (dying.status(task_id), dying.document(task_id)["error"]["step"]) == ("failed", "send")
    assert "step.lost" not in dying.types(task_id)


def test_another_worker_applies_a_recorded_final_failure(dying: Dying) -> None:
    """Takeover by a running worker uses the same function: the recorded result decides."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    dying.note(claimed, result=result_of(intent, CallStatus.FAILED, is_final=True))
    survivor, liveness = Hand(dying.database), FailureDetector(lease_seconds=1.0)
    for second in range(10):
        peer_takeover.watch(survivor.committer, liveness, float(second))
    assert dying.statuses(task_id) == {"send": "failed", "after": "skipped"}
    survivor.close()


@pytest.mark.parametrize("lost", [1, 3])
def test_a_call_that_failed_for_good_is_not_repeated(dying: Dying, lost: int) -> None:
    """The next attempt applies the recorded failure of one call among others, however many were lost.

    An operator who retries the task wants it done: the new task makes the call.
    """
    counted = Gate().name
    task_id = dying.start(Graph(name="one", steps=[step("send", "post", given={"token": counted})]))
    claimed = dying.claimed("send")
    intent = replace(intent_of(claimed, dying.clock.now()), settles_step=False)
    dying.note(claimed, intent=intent)
    dying.note(claimed, result=result_of(intent, CallStatus.FAILED, is_final=True))
    assert dying.die().steps == 1
    for _ in range(lost - 1):
        dying.begin_again()
        assert dying.die().steps == 1
    engine = Engine(dying.database)
    try:
        assert engine.wait(task_id, "failed")["error"]["code"] == "refused"
        assert runs[counted] == []
        again = engine.operator.retry(task_id).task_id
        assert engine.wait(again, "succeeded", "failed")["status"] == "succeeded"
    finally:
        engine.stop()
        engine.close()
    assert len(runs[counted]) == 1


def test_a_success_without_a_stored_response_fails_the_step(dying: Dying) -> None:
    """The attempt failed for that reason: the next one fails alike, and no step succeeds with null."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    error = StepError("bad_response", "code", "it is no JSON")
    key = intent.idempotency_key
    result = CallResult(intent.call_id, key, CallStatus.SUCCEEDED, error=error)
    dying.note(claimed, result=result)
    dying.die()
    assert dying.row(task_id, "send", "status, attempt") == ("pending", 2)


def test_an_intent_without_a_result_is_unknown(dying: Dying) -> None:
    """It is no success and no failure: one more attempt may find out."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    assert dying.die().steps == 1
    assert dying.row(task_id, "send", "status, attempt, owner, alone") == ("pending", 2, None, 1)
    assert dying.types(task_id, "send")[-2:] == ["tool_call.unknown", "step.lost"]
    assert dying.rows("SELECT status FROM idempotency_outcomes") == [("unknown",)]
    ((expires_at,),) = dying.rows("SELECT expires_at FROM tool_calls")
    # Where the process is surely gone nothing of it is on its way; elsewhere its time must pass.
    assert (expires_at <= dying.clock.now()) == dying.database.is_sqlite


def test_a_remote_is_not_asked_before_the_call_expires(dying: Dying) -> None:
    """The remote may still be processing the request, and would deny that it happened."""
    dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now(), on_unknown="reconcile")
    dying.note(claimed, intent=intent)
    assert dying.die().steps == 1
    ((expires_at,),) = dying.rows("SELECT expires_at FROM tool_calls")
    assert expires_at >= intent.expires_at


def test_an_unknown_call_of_a_silent_worker_waits_for_its_expiry(dying: Dying) -> None:
    """A stopped worker may still be sending: its step is released, its unknown call waits."""
    task_id = dying.start(two_steps())
    claimed = dying.claimed("send")
    intent = intent_of(claimed, dying.clock.now())
    dying.note(claimed, intent=intent)
    survivor, liveness = Hand(dying.database), FailureDetector(lease_seconds=1.0)
    taken = [peer_takeover.watch(survivor.committer, liveness, float(now))[0] for now in range(10)]
    assert sum(taken) == 1
    assert dying.row(task_id, "send", "status, attempt") == ("pending", 2)
    ((expires_at,),) = dying.rows("SELECT expires_at FROM tool_calls")
    assert expires_at >= intent.expires_at
    survivor.close()


@pytest.mark.parametrize("what", ["failure", "unchecked output", "no call"])
def test_other_recorded_results_are_left_to_the_next_attempt(dying: Dying, what: str) -> None:
    """The pass decides nothing: the next attempt treats the recorded result as the first would."""
    schema = {"type": "object"} if what == "unchecked output" else None
    task_id = dying.start(two_steps(output_schema=schema))
    claimed = dying.claimed("send")
    if what != "no call":
        intent = intent_of(claimed, dying.clock.now())
        dying.note(claimed, intent=intent)
        status = CallStatus.FAILED if what == "failure" else CallStatus.SUCCEEDED
        dying.note(claimed, result=result_of(intent, status, 1))
    dying.die()
    assert dying.row(task_id, "send", "status, attempt") == ("pending", 2)
    assert dying.types(task_id, "send")[-1] == "step.lost"
    assert "tool_call.unknown" not in dying.types(task_id)


@pytest.mark.parametrize("kind", ["wait", "gate"])
def test_crashes_while_a_step_waits_use_no_attempt(dying: Dying, kind: str) -> None:
    """Only attempts that act count: one that waits or asks may be lost any number of times."""
    once = RetryPolicy(max_attempts=1, delay_seconds=0, jitter=False)
    counted = Gate().name
    parked = step("it", "record", given={"token": counted, "value": 1}, retry=once)
    parked = parked.model_copy(update={"approval": {"message": "May it?"}})
    if kind == "wait":
        parked = Step(name="it", kind="wait", config={"duration": 3600.0}, retry=once)
    task_id = dying.start(Graph(name="parked", steps=[parked]))
    assert dying.die().steps == 1
    for _ in range(2):
        dying.begin_again()
        assert dying.die().steps == 1
    engine = Engine(dying.database)
    try:
        engine.wait_step(task_id, "it", "waiting")
        if kind == "wait":
            dying.skip(3601)
        else:
            found = question(dying, task_id)
            say(dying, found, "approve")
        assert engine.wait(task_id, "succeeded", "failed")["error"] is None
    finally:
        engine.stop()
        engine.close()
    assert runs[counted] == ([] if kind == "wait" else [("it", None, 4)])
    assert dying.types(task_id, "it").count("step.lost") == 3


def test_a_second_pass_finds_nothing(dying: Dying) -> None:
    """Recovery may be repeated, also after it was interrupted."""
    dying.start(two_steps())
    assert dying.die().steps == 1
    before = dying.everything()
    assert dying.recover().is_empty
    assert dying.everything() == before
    with capture_logs() as logged:
        recovery.recover_triggers(dying.database, dying.clock, BudgetSettings())
    levels = {entry["event"]: entry["log_level"] for entry in logged}
    assert levels == {"schedules.recovered": "debug", "watchers.recovered": "debug"}, "no news"


def test_an_unreadable_task_keeps_no_other_from_recovery(dying: Dying) -> None:
    """The start goes on without it; once it can be read again, it is recovered too."""
    bad, good = dying.submit(
        Graph(name="bad", steps=[step("a")]), Graph(name="good", steps=[step("b")])
    )
    change = "UPDATE workflows SET graph = :text WHERE name = 'bad'"
    ((text,),) = dying.rows("SELECT graph FROM workflows WHERE name = 'bad'")
    with dying.database.connect("writer") as tx, tx.transaction():
        tx.execute(change, text='{"name": "bad", "steps": 3}')
    assert dying.die().steps == 1
    assert dying.row(good, "b", "status, attempt") == ("pending", 2)
    assert dying.row(bad, "a", "status, attempt") == ("running", 1)
    with dying.database.connect("writer") as tx, tx.transaction():
        tx.execute(change, text=text)
    assert dying.recover().steps == 1
    assert dying.row(bad, "a", "status, attempt") == ("pending", 2)


def test_steps_of_a_failing_task_are_not_retried(dying: Dying) -> None:
    """A step that was stopped because another failed is skipped, and the clean-up runs."""
    task_id = dying.start(
        Graph(
            name="failing",
            steps=[
                step("bad"),
                step("beside"),
                step("tidy", after=["bad"], run_on="always"),
            ],
        )
    )
    dying.fail("bad")
    assert dying.statuses(task_id)["beside"] == "running"
    dying.die()
    assert dying.statuses(task_id) == {"bad": "failed", "beside": "skipped", "tidy": "pending"}
    assert dying.row(task_id, "tidy", "wake_at IS NOT NULL") in ((1,), (True,))


def test_live_workers_keep_their_steps(postgres_database: Database) -> None:
    """On PostgreSQL a start beside live workers takes over only from dead ones."""
    postgres_database.clock = HandClock()
    alive, dead = Dying(postgres_database), Dying(postgres_database)
    kept, lost = alive.start(two_steps()), dead.start(two_steps())
    assert dead.die().steps == 1
    assert alive.status(kept) == "running"
    assert alive.row(kept, "send", "status, attempt") == ("running", 1)
    assert alive.row(lost, "send", "status, attempt") == ("pending", 2)
    alive.close()
    dead.close()
    assert find_violations(postgres_database) == []


def test_orphaned_processes_are_ended(dying: Dying) -> None:
    """A command that outlived its worker is ended with its group; other processes are not."""
    script = "sleep 600 & wait"
    orphan = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    stranger = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    try:
        task_id = dying.start(Graph(name="two", steps=[step("send"), step("other")]))
        for name, process in (("send", orphan), ("other", stranger)):
            claimed = dying.claimed(name)
            started = start_time(process.pid)
            if process is stranger:
                started = "another process had this number then"
            intent = intent_of(
                claimed, dying.clock.now(), process_id=process.pid, process_started=started
            )
            dying.note(claimed, intent=intent)
        assert dying.die().processes == [orphan.pid]
        assert orphan.wait(PATIENCE_SECONDS) < 0
        assert stranger.poll() is None
        assert dying.row(task_id, "send", "status, process_id") == ("pending", None)
    finally:
        for process in (orphan, stranger):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _sleeper(step_id: str, attempt: int, agent: str) -> "subprocess.Popen[bytes]":
    """Start a process as an attempt of a step would have."""
    marks = {**processes.marks(step_id, attempt), processes.AGENT: agent}
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, **marks})


def test_unrecorded_orphans_are_ended(dying: Dying) -> None:
    """A process is known by its mark: its step is of this database, and its agent has gone."""
    task_id = dying.start(Graph(name="two", steps=[step("send"), step("other")]))
    dying.succeed("other")
    (lost,) = dying.row(task_id, "send", "id")
    (ended,) = dying.row(task_id, "other", "id")
    gone = subprocess.Popen(["true"])
    gone.wait()
    agents = {"gone": f"{gone.pid} then", "alive": processes.marks("", 0)[processes.AGENT]}
    orphans = [_sleeper(lost, 1, agents["gone"]), _sleeper(ended, 0, agents["gone"])]
    others = [
        _sleeper(lost, 1, agents["alive"]),
        # What a step that succeeded has left running was left on purpose.
        _sleeper(ended, 1, agents["gone"]),
        _sleeper("a step of another database", 1, agents["gone"]),
    ]
    try:
        assert dying.die().processes == sorted(process.pid for process in orphans)
        assert [process.wait(PATIENCE_SECONDS) for process in orphans] == [-signal.SIGTERM] * 2
        assert [process.poll() for process in others] == [None] * 3
    finally:
        for process in orphans + others:
            process.kill()
            process.wait()


@pytest.mark.parametrize("parent", ["has ended", "goes on"])
def test_abandoned_children_are_cancelled(dying: Dying, parent: str) -> None:
    """A worker may die before it cancels a child: the next start cancels it."""
    child = Graph(name="child", steps=[step("inner")])
    operator = Operator(dying.database, dying.clock)
    operator.cancel(operator.submit(Submission(graph=child)))
    tidy = step("tidy", after=["bad"], run_on="always" if parent == "goes on" else "success")
    sub = Step(name="sub", kind="workflow", config={"name": "child"}, retry=AT_ONCE)
    task_id = dying.start(Graph(name="parent", steps=[sub, step("bad"), tidy]))
    dying.settle({"sub": Waiting(ChildRequest("child", {}))})
    ((child_id,),) = dying.rows("SELECT id FROM tasks WHERE parent_task_id = :id", id=task_id)
    # `fail_fast` skips the step that waits; the worker dies before it cancels the child.
    dying.settle({"bad": Failed(StepError("no", "code", "no"))})
    assert dying.status(task_id) == ("failed" if parent == "has ended" else "running")
    assert dying.status(child_id) == "running"
    assert dying.die().children == 1
    assert dying.status(child_id) == "canceled"


class OutOfReach(Database):
    """A database that can become unavailable."""

    is_away = False
    fault = Fault.LOST

    def connect(self, role: Role = "writer") -> Connection:
        """Open a connection that begins nothing while the database is out of reach."""
        self._check()
        connection = super().connect(role)
        begin = connection._begin

        def begin_if_there() -> None:
            self._check()
            begin()

        connection._begin = begin_if_there  # type: ignore[method-assign]
        return connection

    def _check(self) -> None:
        if self.is_away:
            raise StoreError(self.fault, "out of reach")


def lose_a_result(database: OutOfReach) -> None:
    """Let a worker end whose database became unavailable during an effect."""

    async def story() -> None:
        worker = Worker(database, EngineSettings(poll_seconds=0.05, shutdown_seconds=0.2))

        def lose() -> str:
            database.is_away = True
            if database.fault is Fault.LOST:
                worker.stop()
            return "done"

        functions.scripts[database.url] = lose
        config = {"call": "tests.crash.functions:act_by_script", "with": {"name": database.url}}
        graph = Graph(name="one", steps=[Step(name="act", kind="python", config=config)])
        running = asyncio.create_task(worker.run())
        await worker.submit(Submission(graph=graph))
        async with asyncio.timeout(PATIENCE_SECONDS):
            if database.fault is Fault.LOST:
                await running
            else:
                with pytest.raises(StoreError):
                    await running

    asyncio.run(story())
    database.is_away = False


@pytest.fixture
def away(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutOfReach:
    """Return a database that can become unavailable, with a directory for its files."""
    monkeypatch.setattr(failures, "PAUSE_SECONDS", 0.01)
    found = OutOfReach(database.url)
    found.directory = tmp_path / "kept"
    return found


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.READONLY, Fault.CORRUPT])
def test_a_result_spilled_at_exit_is_settled_at_the_next_start(
    away: OutOfReach, fault: Fault
) -> None:
    """A result that could not be committed is in a file, also if the worker had to end."""
    away.fault = fault
    lose_a_result(away)
    with away.connect("reader") as reader:
        assert reader.query("SELECT status FROM idempotency_outcomes") == [("unknown",)]
    assert recovery.recover(away, away.clock).calls == 1
    with away.connect("reader") as reader:
        assert reader.query("SELECT status FROM idempotency_outcomes") == [("succeeded",)]
        assert reader.query("SELECT response FROM tool_calls") == [(json.dumps("done"),)]
    assert recovery.recover(away, away.clock).is_empty
    assert find_violations(away) == []
    assert away.directory is not None
    assert list(away.directory.iterdir()) == []


def test_unreadable_spilled_results_do_not_stop_the_start(away: OutOfReach) -> None:
    """Their effects stay unknown in the ledger; a broken file is renamed."""
    assert away.directory is not None
    # There is a file where the directory would be: nothing can be kept in it.
    away.directory.write_text("")
    lose_a_result(away)
    away.directory.unlink()
    assert recovery.recover(away, away.clock).calls == 0
    lose_a_result(away)
    (left,) = away.directory.iterdir()
    left.write_text(left.read_text()[:-9])
    assert recovery.recover(away, away.clock).calls == 0
    (aside,) = away.directory.iterdir()
    assert aside.suffix == ".unreadable"
    with away.connect("reader") as reader:
        assert reader.query("SELECT status FROM idempotency_outcomes") == [("unknown",)] * 2
