"""When a turn fails: bad outcomes, fences, locks held by others, and a database that goes away."""

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
    """Keep the log from drawing tracebacks, which takes longer than the tests."""
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
    """What cannot be stored fails its step without retry; others in the turn are settled."""
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
    """An instant beyond 64 bits is the outcome's own fault, found by the database alone."""
    hand = Hand(postgres_database)
    first, second = hand.submit(graph(step("a"), name="bad"), graph(step("b"), name="good"))
    hand.settle({"a": Waiting(Timer(2**70), wake_at=2**70), "b": Succeeded(1)})
    assert hand.document(first)["error"]["code"] == "bad_outcome"
    assert hand.status(second) == "succeeded"
    hand.close()


def test_an_exception_that_cannot_be_written_down(engine: Engine, quiet: None) -> None:
    """A function's unspeakable error fails its task, and the worker goes on."""
    done = engine.run(graph(step("a", "blow_up", given={"message": "\\ud800"}), name="spoken"))
    assert "\\ud800" in done["error"]["message"]
    done = engine.run(graph(step("a", "unspeakable")))
    assert done["status"] == "failed"
    assert engine.run(graph(step("a"), name="after"))["status"] == "succeeded"


def test_a_submission_that_cannot_be_stored_is_refused(engine: Engine, quiet: None) -> None:
    """The submitter hears why; tasks submitted beside it are created."""
    with pytest.raises(Exception, match="input"):
        engine.submit(graph(step("a")), given={"x": LONE_SURROGATE})
    assert engine.run(graph(step("a")))["status"] == "succeeded"


def two_that_are_due(hand: Hand) -> tuple[str, str]:
    """Return two tasks whose steps wait for one instant, which has come."""
    first, second = hand.submit(graph(step("a"), name="bad"), graph(step("b"), name="good"))
    instant = hand.clock.now() + 10 * SECOND
    until = Waiting(Timer(instant), instant, {"until": instant})
    hand.settle({"a": until, "b": until})
    hand.skip(11)
    return first, second


def test_a_due_task_that_cannot_be_looked_at_stops_no_other(
    hand: Hand, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    """It is set aside for a while; what is due beside it, settles and comes new goes on."""
    bad, good = two_that_are_due(hand)
    before = rewrite(hand, bad, "waiting_on", "{broken")
    hand.turn()
    assert hand.names() == ["b"]
    hand.succeed("b")
    assert hand.status(good) == "succeeded"
    new = hand.start(graph(step("c"), name="new"))
    hand.succeed("c")
    assert hand.status(new) == "succeeded"
    turns = hand.committer.session.tx_number
    assert not hand.turn().result.has_more, "nobody looks at it again at once"
    assert hand.committer.session.tx_number == turns + 1
    rewrite(hand, bad, "waiting_on", before)
    hand.turn()
    assert hand.names() == []
    measured = hand.clock.monotonic
    monkeypatch.setattr(hand.clock, "monotonic", lambda: measured() + 61)
    hand.turn()
    assert hand.names() == ["a"]
    hand.succeed("a")
    assert hand.status(bad) == "succeeded"


def test_an_outcome_beside_a_due_task_that_cannot_be_looked_at(hand: Hand, quiet: None) -> None:
    """The half that claims fails; the half that settles commits alone, with what was returned."""
    running = hand.start(graph(step("c"), name="beside"))
    bad, _ = two_that_are_due(hand)
    before = rewrite(hand, bad, "waiting_on", "{broken")
    hand.succeed("c")
    assert hand.status(running) == "succeeded"
    assert hand.steps(running)["c"]["output"] == "c"
    rewrite(hand, bad, "waiting_on", before)


def test_a_step_whose_record_cannot_be_read_fails_alone(hand: Hand, quiet: None) -> None:
    """It was claimed and cannot be prepared: that is told as its failure, and its worker lives."""
    bad, good = two_that_are_due(hand)
    before = rewrite(hand, bad, "checkpoint", "{broken")
    hand.turn()
    assert hand.names() == ["b"]
    # It was committed twice: what the first transaction left of it is no longer true.
    assert hand.committer.cache.take([bad], hand.clock.now()) == {}
    hand.succeed("b")
    assert hand.status(good) == "succeeded"
    assert hand.document(bad)["error"]["code"] == "bad_record"
    rewrite(hand, bad, "checkpoint", before)


def test_a_dead_workers_turn_changes_nothing(hand: Hand) -> None:
    """The fence comes first: a worker that was declared dead writes nothing at all."""
    hand.start(graph(step("a")))
    with hand.database.connect("writer") as tx, tx.transaction():
        workers.retire(tx, hand.committer.worker_id, hand.clock.now(), "worker.died")
    before = hand.everything()
    with pytest.raises(FencedError):
        hand.succeed("a")
    assert hand.everything() == before


def test_a_fenced_worker_takes_a_new_identity(start: Start) -> None:
    """It stops its attempts, begins anew, and what it held is recovered and run again."""
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


def test_a_task_that_another_transaction_holds_is_carried(
    postgres_database: Database, emptied_postgres_url: str
) -> None:
    """A turn never waits for a lock: other tasks go on, and the outcome lands when it is free."""
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


def test_a_worker_goes_on_beside_a_held_task(
    postgres_database: Database, emptied_postgres_url: str
) -> None:
    """With a task locked by somebody, new tasks are created, run and ended meanwhile."""
    engine = Engine(postgres_database)
    gate = Gate()
    try:
        held = engine.submit(graph(step("a", "gated", given={"gate": gate.name}), name="held"))
        eventually(lambda: gate.entered == 1)
        with psycopg.connect(emptied_postgres_url) as holder:
            holder.execute("SELECT 1 FROM tasks WHERE id = %s FOR UPDATE", [held])
            gate.open()
            # Also when the outcome has been carried for so long that it is waited for.
            since = time.monotonic()
            while time.monotonic() - since < 3 * outbox.PATIENT_TRIES * RETRY_LOCKED_SECONDS + 1:
                assert engine.run(graph(step("b"), name="free"))["status"] == "succeeded"
            assert engine.status(held) == "running"
        engine.wait(held, "succeeded")
    finally:
        gate.open()
        engine.stop()
        engine.close()


def test_what_is_carried_for_long_is_waited_for_alone() -> None:
    """All of its task goes in one batch, in order; after a wait without success others go first."""
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
    entries[0].tries = outbox.PATIENT_TRIES
    alone = box.take()
    assert (alone.must_wait, alone.entries, alone.completions) == (
        True,
        entries[:1],
        completions[:1],
    )
    box.put_back(alone)
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
    """A database that a test can take away: every use of a connection fails while it is gone."""

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
    """Outcomes that come while the database is away are settled when it is back, once each."""
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


def test_an_idle_worker_outlives_an_outage(database: Database) -> None:
    """A worker with nothing to do finds the database again, and what was submitted meanwhile."""
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


def test_an_intent_its_failure_and_the_next_attempt_in_one_turn(hand: Hand) -> None:
    """An attempt that gave up while its intent waited for a turn leaves nothing unknown behind."""
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
    hand.turn(Batch(entries=notes, completions=[settle_of(claimed, RETRY)]))
    assert hand.claimed("a").attempt == 2
    found = hand.rows(
        "SELECT c.attempt, o.status FROM tool_calls AS c JOIN idempotency_outcomes AS o"
        " ON o.tool_call_id = c.id"
    )
    assert found == [(1, "failed")]
    hand.succeed("a")
