"""When a commit fails: bad outcomes, fences, locks of other transactions, and database outages."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import structlog.testing

from agent.core import ids as keys
from agent.core.clock import SECOND, Clock
from agent.core.state_machine import CallStatus
from agent.core.waits import Signal, Timer
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.outcome import Failed, Retry, StepError, Succeeded, Waiting
from agent.store.db.database import Connection, Database, Role, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import workers, workflow_versions
from agent.tasks.commit.batch import Batch, Completion, JournalEntry
from agent.tasks.commit.faults import FencedError
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.settlement import Claim
from agent.tasks.worker import outbox
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.outbox import Outbox
from agent.tasks.worker.shutdown import RETRY_LOCKED_SECONDS
from tests.support.engine import (
    ERROR,
    FAILURE,
    RETRY,
    Engine,
    Hand,
    HandClock,
    Start,
    eventually,
    graph,
    settle_of,
    step,
)
from tests.support.interventions import rewrite
from tests.support.step_functions import Gate, runs

LONE_SURROGATE = "\ud800"


@pytest.fixture
def quiet() -> Iterator[None]:
    """Keep the log from formatting tracebacks, which takes longer than the tests."""
    with structlog.testing.capture_logs():
        yield


@pytest.mark.parametrize(
    "bad",
    [
        Failed(StepError("no", "code", LONE_SURROGATE)),
        Retry(ERROR, delay_seconds=float("inf")),
        Waiting(Signal(LONE_SURROGATE)),
        Succeeded({"key": LONE_SURROGATE}),
        Succeeded({"key": object()}),
        Succeeded(float("nan")),
    ],
    ids=["error", "delay", "wait", "surrogate", "object", "nan"],
)
def test_a_bad_outcome_fails_only_its_own_step(hand: Hand, bad: Any, quiet: None) -> None:
    """An outcome that cannot be stored fails its step without retry; the others are settled."""
    first, second = hand.submit(graph(step("a"), name="bad"), graph(step("b"), name="good"))
    hand.settle({"a": bad, "b": Succeeded(1)})
    assert hand.running == {}
    document = hand.document(first)
    assert document["status"] == "failed"
    assert document["error"]["code"] in ("bad_outcome", "bad_output")
    assert hand.status(second) == "succeeded"
    hand.start(graph(step("c")))
    hand.succeed("c")


def test_a_value_that_only_postgresql_refuses(postgres_database: Database) -> None:
    """An instant beyond 64 bits fails its own outcome; only the database detects it."""
    hand = Hand(postgres_database)
    first, second = hand.submit(graph(step("a"), name="bad"), graph(step("b"), name="good"))
    hand.settle({"a": Waiting(Timer(2**70), wake_at=2**70), "b": Succeeded(1)})
    assert hand.document(first)["error"]["code"] == "bad_outcome"
    assert hand.status(second) == "succeeded"
    hand.close()


def test_an_exception_that_cannot_be_stored_fails_its_task(engine: Engine, quiet: None) -> None:
    """The worker goes on after an error text that no database can store."""
    done = engine.run(graph(step("a", "blow_up", given={"message": "\\ud800"}), name="spoken"))
    assert "\\ud800" in done["error"]["message"]
    done = engine.run(graph(step("a", "unspeakable")))
    assert done["status"] == "failed"
    assert engine.run(graph(step("a"), name="after"))["status"] == "succeeded"


def test_a_submission_that_cannot_be_stored_is_refused(engine: Engine, quiet: None) -> None:
    """The submitter gets the reason; tasks submitted beside it are created."""
    with pytest.raises(Exception, match="input"):
        engine.submit(graph(step("a")), given={"x": LONE_SURROGATE})
    assert engine.run(graph(step("a")))["status"] == "succeeded"


def two_due_tasks(hand: Hand) -> tuple[str, str]:
    """Return two tasks whose steps wait for the same instant, which has passed."""
    first, second = hand.submit(graph(step("a"), name="bad"), graph(step("b"), name="good"))
    instant = hand.clock.now() + 10 * SECOND
    until = Waiting(Timer(instant), instant, {"until": instant})
    hand.settle({"a": until, "b": until})
    hand.skip(11)
    return first, second


def test_an_unreadable_due_task_delays_no_other(
    hand: Hand, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    """It is set aside for a minute; other due, settled and new tasks go on."""
    bad, good = two_due_tasks(hand)
    before = rewrite(hand, bad, "waiting_on", "{broken")
    hand.commit()
    assert hand.names() == ["b"]
    hand.succeed("b")
    assert hand.status(good) == "succeeded"
    new = hand.start(graph(step("c"), name="new"))
    hand.succeed("c")
    assert hand.status(new) == "succeeded"
    commits = hand.committer.session.tx_number
    assert not hand.commit().result.has_more, "it is not polled again at once"
    assert hand.committer.session.tx_number == commits + 1
    rewrite(hand, bad, "waiting_on", before)
    hand.commit()
    assert hand.names() == []
    measured = hand.clock.monotonic
    monkeypatch.setattr(hand.clock, "monotonic", lambda: measured() + 61)
    hand.commit()
    assert hand.names() == ["a"]
    hand.succeed("a")
    assert hand.status(bad) == "succeeded"


def test_an_outcome_is_settled_beside_an_unreadable_due_task(hand: Hand, quiet: None) -> None:
    """The part that claims fails; the part that settles commits by itself."""
    running = hand.start(graph(step("c"), name="beside"))
    bad, _ = two_due_tasks(hand)
    before = rewrite(hand, bad, "waiting_on", "{broken")
    hand.succeed("c")
    assert hand.status(running) == "succeeded"
    assert hand.steps(running)["c"]["output"] == "c"
    rewrite(hand, bad, "waiting_on", before)


def test_a_claimed_step_with_an_unreadable_record_fails(hand: Hand, quiet: None) -> None:
    """Its inputs cannot be prepared: it fails with `bad_record`, and the worker goes on."""
    bad, good = two_due_tasks(hand)
    before = rewrite(hand, bad, "checkpoint", "{broken")
    hand.commit()
    assert hand.names() == ["b"]
    # It was committed twice: what the first transaction left of it is no longer true.
    assert hand.committer.cache.take([bad], hand.clock.now()) == {}
    hand.succeed("b")
    assert hand.status(good) == "succeeded"
    assert hand.document(bad)["error"]["code"] == "bad_record"
    rewrite(hand, bad, "checkpoint", before)


def test_a_dead_workers_commit_changes_nothing(hand: Hand) -> None:
    """The fence comes first: a worker that was declared dead writes nothing."""
    hand.start(graph(step("a")))
    with hand.database.connect("writer") as tx, tx.transaction():
        workers.retire(tx, hand.committer.worker_id, hand.clock.now(), "worker.died")
    before = hand.everything()
    with pytest.raises(FencedError):
        hand.succeed("a")
    assert hand.everything() == before


def test_a_fenced_worker_takes_a_new_identity(start: Start) -> None:
    """It stops its attempts and enrolls again; its steps are recovered and run again."""
    engine = start(lease_seconds=1.0)
    gate = Gate()
    task_id = engine.submit(graph(step("a", "gated", given={"gate": gate.name, "value": 5})))
    eventually(lambda: gate.entered == 1)
    old = engine.worker.worker_id
    with engine.database.connect("writer") as tx, tx.transaction():
        assert workers.retire(tx, old, engine.clock.now(), "worker.died")
    eventually(lambda: engine.worker.worker_id != old)
    eventually(lambda: gate.entered == 2, "the step runs again, under the new identity")
    gate.open()
    done = engine.wait(task_id, "succeeded")
    assert done["steps"][0]["attempt"] == 2
    assert "step.lost" in engine.types(task_id)
    assert engine.rows("SELECT dead FROM workers WHERE id = :id", id=old) == [(1,)]


def test_an_outcome_of_a_locked_task_is_carried(
    postgres_database: Database, emptied_postgres_url: str
) -> None:
    """A commit never waits for a lock: other tasks go on, and the outcome follows later."""
    hand = Hand(postgres_database)
    held, free = hand.submit(graph(step("a"), name="held"), graph(step("b"), name="free"))
    with psycopg.connect(emptied_postgres_url) as holder:
        holder.execute("SELECT 1 FROM tasks WHERE id = %s FOR UPDATE", [held])
        result = hand.settle({"a": Succeeded(1), "b": Succeeded(2)}).result
        assert [settle.claim.task_id for settle in result.carried_completions] == [held]
        assert (hand.status(held), hand.status(free)) == ("running", "succeeded")
    hand.succeed("a")
    assert hand.status(held) == "succeeded"
    hand.close()


def test_a_worker_runs_other_tasks_beside_a_locked_one(
    postgres_database: Database, emptied_postgres_url: str
) -> None:
    """While another transaction locks a task, new tasks are created, run and ended."""
    engine = Engine(postgres_database)
    gate = Gate()
    try:
        held = engine.submit(graph(step("a", "gated", given={"gate": gate.name}), name="held"))
        eventually(lambda: gate.entered == 1)
        with psycopg.connect(emptied_postgres_url) as holder:
            holder.execute("SELECT 1 FROM tasks WHERE id = %s FOR UPDATE", [held])
            gate.open()
            # Also when the outcome was carried often enough that the worker waits for the lock.
            since = time.monotonic()
            while (
                time.monotonic() - since
                < 3 * outbox.TRIES_BEFORE_WAITING * RETRY_LOCKED_SECONDS + 1
            ):
                assert engine.run(graph(step("b"), name="free"))["status"] == "succeeded"
            assert engine.status(held) == "running"
        engine.wait(held, "succeeded")
    finally:
        gate.open()
        engine.stop()
        engine.close()


def test_a_task_carried_too_often_gets_a_batch_of_its_own() -> None:
    """All of the task goes in one batch, in order; after a failed wait other tasks go first."""
    box = Outbox()
    one = graph(step("a"))
    completions = [
        Completion(Claim(task_id, task_id, 0, -1, 1, 1), one, FAILURE) for task_id in "ab"
    ]
    entries = [JournalEntry(completion.claim, one, checkpoint="1") for completion in completions]
    for entry in entries:
        box.add_entry(entry)
    for completion in completions:
        box.add_completion(completion)
    entries[0].tries = outbox.TRIES_BEFORE_WAITING
    isolated = box.take()
    assert (isolated.must_wait, isolated.entries, isolated.completions) == (
        True,
        entries[:1],
        completions[:1],
    )
    box.requeue(isolated)
    together = box.take()
    assert (together.must_wait, together.entries, together.completions) == (
        False,
        entries,
        completions,
    )
    assert together.completions[0].tries < 0


def test_a_running_task_keeps_the_graph_it_started_with(engine: Engine) -> None:
    """A new version, and even the workflow's removal, change nothing for tasks in flight."""
    gate = Gate()

    def version(word: str) -> Any:
        return graph(
            step("a", "gated", given={"gate": gate.name}),
            step(word, "echo", after=["a"], given={"value": word}),
            name="versioned",
        )

    first = engine.submit(version("old"))
    eventually(lambda: gate.entered == 1)
    second = engine.submit(version("new"))
    with engine.database.connect("writer") as tx, tx.transaction():
        assert workflow_versions.remove(tx, "versioned", engine.clock.now())
    gate.open()
    documents = [engine.wait(task_id, "succeeded") for task_id in (first, second)]
    assert [found["version"] for found in documents] == [1, 2]
    assert [found["output"] for found in documents] == [{"old": "old"}, {"new": "new"}]
    assert engine.run(version("new"))["version"] == 2, "the same definition is no new version"


class Flaky(Database):
    """A database that a test can make unavailable: every use of a connection fails meanwhile."""

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__(url, clock=clock)
        self.is_gone = False
        self.refused = 0
        self._guard = threading.Lock()

    def connect(self, role: Role = "writer") -> Connection:
        self._check()
        connection = super().connect(role)
        for name in ("query", "execute", "query_each", "transaction"):
            setattr(connection, name, self._guarded(getattr(connection, name)))
        return connection

    def _guarded(self, function: Any) -> Any:
        def guarded(*arguments: Any, **given: Any) -> Any:
            self._check()
            return function(*arguments, **given)

        return guarded

    def _check(self) -> None:
        if self.is_gone:
            with self._guard:
                self.refused += 1
            raise StoreError(Fault.LOST, "the database is away")


def test_an_outage_loses_nothing(database: Database) -> None:
    """Outcomes that arrive during an outage are settled afterwards, once each."""
    flaky = Flaky(database.url, HandClock())
    engine = Engine(flaky, slots=2)
    engine.close()
    gate = Gate()
    given = {"gate": gate.name, "value": 1}
    tasks = [engine.submit(graph(step("a", "gated", given=given))) for _ in range(3)]
    eventually(lambda: gate.entered == 2)
    flaky.is_gone = True
    gate.open()
    eventually(lambda: flaky.refused >= 3, "the worker tries again")
    assert gate.entered == 2, "a slot is free only when its outcome is committed"
    flaky.is_gone = False
    reader = Hand(database)
    for task_id in tasks:
        assert reader.wait(task_id, "succeeded", "failed")["output"] == {"a": 1}
    assert len(runs[gate.name]) == 3
    engine.stop()
    reader.close()


def test_an_idle_worker_reconnects_after_an_outage(database: Database) -> None:
    """It runs what was submitted meanwhile."""
    flaky = Flaky(database.url, HandClock())
    engine = Engine(flaky)
    engine.close()
    reader = Hand(database)
    flaky.is_gone = True
    eventually(lambda: flaky.refused >= 2)
    task_id = reader.operator.submit(Submission(graph=graph(step("a"))))
    flaky.is_gone = False
    assert reader.wait(task_id, "succeeded")["status"] == "succeeded"
    engine.stop()
    reader.close()


def test_an_intent_its_failure_and_the_next_attempt_in_one_commit(hand: Hand) -> None:
    """An attempt that gave up while its intent waited for a commit leaves no unknown call."""
    task_id = hand.start(graph(step("a")))
    claimed = hand.claimed("a")
    digest = keys.request_hash({})
    key = keys.idempotency_key(task_id, claimed.step_id, 1, "pay#1", digest)
    intent = Intent(
        call_id=keys.new_id(),
        number=1,
        action="pay#1",
        request={},
        request_hash=digest,
        idempotency_key=key,
        remote_key="r",
        on_unknown="ask",
        send_by=hand.clock.now(),
        expires_at=hand.clock.now(),
    )
    result = CallResult(intent.call_id, key, CallStatus.FAILED, error=ERROR)
    notes = [
        JournalEntry(claim_of(claimed), claimed.graph, intent=intent),
        JournalEntry(claim_of(claimed), claimed.graph, result=result),
    ]
    hand.commit(Batch(entries=notes, completions=[settle_of(claimed, RETRY)]))
    assert hand.claimed("a").attempt == 2
    found = hand.rows(
        "SELECT c.attempt, o.status FROM tool_calls AS c JOIN idempotency_outcomes AS o"
        " ON o.tool_call_id = c.id"
    )
    assert found == [(1, "failed")]
    hand.succeed("a")
