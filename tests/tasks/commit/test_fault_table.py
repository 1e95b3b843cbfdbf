"""Every cell of the table of failures: phase x cause -> response, and what the response does."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog.testing

from agent.config.execution import EngineSettings
from agent.steps.types.outcome import Succeeded
from agent.store.artifacts.artifact_rows import NotFetchedError
from agent.store.db.database import CommitUnknownError, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import reads
from agent.tasks.commit import transaction
from agent.tasks.commit.attempt_loader import AttemptLoader
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.faults import (
    NEED_NEW_CONNECTION,
    RESPONSES,
    AnyCause,
    Cause,
    DroppedError,
    FencedError,
    Phase,
    Response,
    cause_of,
)
from agent.tasks.commit.pipeline import InFlightTx
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.worker import failures
from agent.tasks.worker.worker import Worker
from tests.support.engine import Hand, find_violations, graph, settle_of, step

ONE_STEP = graph(step("a"))
CAPACITY = ClaimCapacity(slots=10, running=0, lease_us=30_000_000)

IMPOSSIBLE = {
    Phase.ENROLL: set(Cause) - {Cause.CODE},
    Phase.COMMIT: {Cause.NOT_FETCHED},
    Phase.PART: {Cause.DROPPED, Cause.NOT_FETCHED},
    Phase.LOAD: {Cause.FENCED, Cause.DROPPED, Cause.CONFIRMED_LATE},
    Phase.LOAD_ONE: {Cause.FENCED, Cause.DROPPED, Cause.CONFIRMED_LATE},
    Phase.POLL: set(Cause) - {Cause.CODE},
}
"""Causes that cannot occur in a phase: only a batch has a place in the pipeline and a fence, and only
attempts need values from outside the database."""


def cells(*phases: Phase) -> list[tuple[Phase, AnyCause]]:
    """Return the cells of some phases, in the same order in every process."""
    causes = {phase: sorted(RESPONSES[phase], key=lambda cause: cause.name) for phase in phases}
    return [(phase, cause) for phase in phases for cause in causes[phase]]


def error_of(cause: AnyCause) -> Exception:
    """Return an error that the table finds under a cause."""
    errors: dict[AnyCause, Exception] = {
        Cause.FENCED: FencedError("this worker"),
        Cause.DROPPED: DroppedError(),
        Cause.NOT_FETCHED: NotFetchedError(),
        Cause.CODE: ValueError("a defect"),
    }
    error = StoreError(cause, "it broke") if isinstance(cause, Fault) else errors[cause]
    assert cause_of(error) is cause
    return error


class FailOnce:
    """Wraps a function: its nth call raises, all others pass."""

    def __init__(self, function: Callable[..., Any], error: Exception | None, at: int = 1) -> None:
        self.calls = 0
        self._function, self._error, self._at = function, error, at

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self._at and self._error is not None:
            raise self._error
        return self._function(*arguments, **options)

    def __get__(self, instance: Any, _: type) -> Any:
        return lambda *arguments, **options: self(instance, *arguments, **options)


@pytest.fixture
def hand(sqlite_database: Database) -> Iterator[Hand]:
    """Return a worker on SQLite whose commits are made by hand, with one attempt running."""
    hand = Hand(sqlite_database)
    with structlog.testing.capture_logs():
        yield hand
    hand.close()
    assert find_violations(sqlite_database) == []


def succeed(hand: Hand) -> Batch:
    """Return a batch in which the running attempt succeeds."""
    return Batch(completions=[settle_of(hand.claimed("a"), Succeeded(1))])


def lose_acknowledgement(hand: Hand, monkeypatch: pytest.MonkeyPatch, at: int = 1) -> None:
    """Let a COMMIT take effect without an answer."""
    connection = hand.committer.connection
    commit, calls = connection._commit, 0

    def unknown() -> None:
        nonlocal calls
        calls += 1
        commit()
        if calls == at:
            raise CommitUnknownError(Fault.LOST, "no answer")

    monkeypatch.setattr(connection, "_commit", unknown)


def assert_given_up(hand: Hand, cause: AnyCause, generation: int) -> None:
    """Check what every failure does: the cache is empty, and a useless connection is closed."""
    assert hand.committer.cache.generation > generation
    if cause in NEED_NEW_CONNECTION:
        assert hand.committer.session._connection is None


def test_the_table_is_complete() -> None:
    """Each phase has a response to each cause that can occur in it, and to no other."""
    everything = {*Fault, *Cause}
    for phase in Phase:
        assert set(RESPONSES[phase]) == everything - IMPOSSIBLE[phase]


@pytest.mark.parametrize(("phase", "cause"), cells(Phase.COMMIT))
def test_the_response_to_a_failed_batch(
    phase: Phase, cause: AnyCause, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the committer does with a batch whose transaction failed."""
    task_id = hand.start(ONE_STEP)
    batch, generation = succeed(hand), hand.committer.cache.generation
    response = RESPONSES[phase][cause]
    if cause is Cause.CONFIRMED_LATE:
        lose_acknowledgement(hand, monkeypatch)
        hand.commit(batch)
    elif cause is Cause.DROPPED:
        failing = FailOnce(transaction.run, StoreError(Fault.BUSY, "the one before"))
        monkeypatch.setattr(transaction, "run", failing)
        first = hand.committer.send(Batch(), CAPACITY)
        second = hand.committer.send(batch, CAPACITY)
        with pytest.raises(StoreError, match="the one before"):
            hand.committer.complete(first)
        with pytest.raises(DroppedError):
            hand.committer.complete(second)
    else:
        failing = FailOnce(transaction.run, error_of(cause))
        monkeypatch.setattr(transaction, "run", failing)
        if response in (Response.RELOAD, Response.SPLIT):
            hand.commit(batch)
            assert failing.calls == 2
        else:
            with pytest.raises(type(error_of(cause))):
                hand.commit(batch)
            assert_given_up(hand, cause, generation)
    is_committed = response in (Response.PROCEED, Response.RELOAD, Response.SPLIT)
    assert hand.status(task_id) == ("succeeded" if is_committed else "running")
    assert hand.committer.cache.generation > generation
    if not is_committed:
        hand.commit(batch)
        assert hand.status(task_id) == "succeeded", "the batch can be sent again"


@pytest.mark.parametrize(("phase", "cause"), cells(Phase.PART))
def test_the_response_to_a_failed_part_of_a_batch(
    phase: Phase, cause: AnyCause, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that cannot be stored is replaced by a failure; any other error is the batch's."""
    task_id = hand.start(ONE_STEP)
    batch, response = succeed(hand), RESPONSES[phase][cause]
    if cause is Cause.CONFIRMED_LATE:
        lose_acknowledgement(hand, monkeypatch)
        whole = FailOnce(transaction.run, StoreError(Fault.DATA, "the whole"))
        monkeypatch.setattr(transaction, "run", whole)
        hand.commit(batch)
        assert hand.status(task_id) == "succeeded"
        return
    whole = FailOnce(transaction.run, StoreError(Fault.DATA, "the whole"))
    monkeypatch.setattr(transaction, "run", FailOnce(whole, error_of(cause), at=2))
    if response is Response.REFUSE:
        hand.commit(batch)
        assert hand.document(task_id)["error"]["code"] == "bad_outcome"
        return
    generation = hand.committer.cache.generation
    with pytest.raises(type(error_of(cause))):
        hand.commit(batch)
    assert_given_up(hand, cause, generation)
    hand.commit(batch)
    assert hand.status(task_id) == "succeeded", "the batch can be sent again"


@pytest.mark.parametrize(("phase", "cause"), cells(Phase.LOAD, Phase.LOAD_ONE))
def test_the_response_to_unreadable_attempt_inputs(
    phase: Phase, cause: AnyCause, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claimed attempt is started, blocked, failed or kept for the next commit; never lost."""
    response = RESPONSES[phase][cause]
    load_error = error_of(cause if phase is Phase.LOAD else Cause.CODE)
    monkeypatch.setattr(AttemptLoader, "load_all", FailOnce(AttemptLoader.load_all, load_error))
    if phase is Phase.LOAD_ONE:
        one = FailOnce(AttemptLoader.load_one, error_of(cause))
        monkeypatch.setattr(AttemptLoader, "load_one", one)
    task_id = hand.start(ONE_STEP)
    if response is Response.FAIL_STEP:
        assert hand.document(task_id)["error"]["code"] == "bad_record"
        return
    if response is Response.FETCH:
        assert [blocked.step.task_id for blocked in hand.committer.blocked.steps] == [task_id]
        assert hand.committer.pending_attempts == 0
        hand.committer.supply("any address", None)
    elif response is Response.RETRY:
        assert (hand.names(), hand.committer.pending_attempts) == ([], 1)
    else:
        assert response is Response.SPLIT
    hand.commit()
    assert hand.names() == ["a"]
    hand.succeed("a")
    assert hand.status(task_id) == "succeeded"


@pytest.mark.parametrize(
    "cause", [cause for _, cause in cells(Phase.PART) if isinstance(cause, Fault)]
)
def test_the_failure_of_an_unreadable_step_cannot_be_committed(
    cause: AnyCause, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is not lost: its claim is loaded with the next commit, unless the failure is refused."""
    monkeypatch.setattr(
        AttemptLoader, "load_all", FailOnce(AttemptLoader.load_all, error_of(Cause.CODE))
    )
    monkeypatch.setattr(
        AttemptLoader, "load_one", FailOnce(AttemptLoader.load_one, error_of(Cause.CODE))
    )
    # The first transaction creates and claims, the second one fails the step.
    monkeypatch.setattr(transaction, "run", FailOnce(transaction.run, error_of(cause), at=2))
    with structlog.testing.capture_logs() as logs:
        task_id = hand.start(ONE_STEP)
    if RESPONSES[Phase.PART][cause] is Response.REFUSE:
        assert hand.committer.pending_attempts == 0
        assert [line for line in logs if line["event"] == "step.cannot_be_failed"]
        return
    assert hand.committer.pending_attempts == 1
    hand.commit()
    hand.succeed("a")
    assert hand.status(task_id) == "succeeded"


@pytest.mark.parametrize(("phase", "cause"), cells(Phase.POLL, Phase.ENROLL))
def test_the_response_to_a_failure_outside_a_batch(
    phase: Phase, cause: AnyCause, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committer raises; the worker tries again, or ends."""
    error, generation = error_of(cause), hand.committer.cache.generation
    session = hand.committer.session
    if phase is Phase.POLL:
        monkeypatch.setattr(reads, "next_wake_time", FailOnce(reads.next_wake_time, error))
    else:
        monkeypatch.setattr(session, "enroll", FailOnce(session.enroll, error))
    use: Callable[[], Any] = (
        (lambda: hand.committer.poll([])) if phase is Phase.POLL else hand.committer.enroll
    )
    with pytest.raises(type(error)):
        use()
    if isinstance(cause, Fault):
        assert_given_up(hand, cause, generation)
    use()


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        (phase, cause)
        for phase, cause in cells(Phase.COMMIT, Phase.POLL, Phase.ENROLL)
        if RESPONSES[phase][cause]
        in (Response.RETRY, Response.RESEND, Response.ENROLL, Response.STOP)
        and cause is not Cause.CODE
    ],
)
def test_the_response_of_the_worker(
    phase: Phase, cause: AnyCause, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pauses, sends the batch again at once, takes a new identity, or ends with the error."""
    monkeypatch.setattr(failures, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.0)
    response, error = RESPONSES[phase][cause], error_of(cause)

    async def meet() -> None:
        worker = Worker(sqlite_database, EngineSettings())
        worker.committer.enroll()
        before = worker.worker_id
        try:
            if phase is Phase.ENROLL:
                enroll = FailOnce(worker.committer.session.enroll, error)
                monkeypatch.setattr(worker.committer.session, "enroll", enroll)
                await failures.enroll(worker)
                assert worker.worker_id != before
            elif phase is Phase.POLL:
                monkeypatch.setattr(reads, "next_wake_time", FailOnce(reads.next_wake_time, error))
                assert await worker._read_changes() is None
                assert worker.health.problem("database") is not None
            else:
                assert not isinstance(error, ValueError)
                batch = Batch(logs=[("t", "s", 1, 1, "log", "x")])
                await worker._handle([(InFlightTx(batch, CAPACITY), error)])  # type: ignore[list-item]
                assert worker.outbox.has_logs, "the batch is queued again"
                is_paused = worker.health.problem("database") is not None
                assert is_paused == (response is Response.RETRY)
                assert (worker.worker_id != before) == (response is Response.ENROLL)
        finally:
            worker.database_thread.close()
            worker.committer.session.disconnect()

    with structlog.testing.capture_logs():
        if response is Response.STOP:
            with pytest.raises(StoreError, match="it broke"):
                asyncio.run(meet())
        else:
            asyncio.run(meet())
