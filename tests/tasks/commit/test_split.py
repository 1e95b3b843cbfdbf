"""The database fails in the middle of a batch that is committed part by part: no part is sent twice."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog.testing

from agent.core import ids
from agent.core.clock import SECOND
from agent.core.waits import ChildRequest, Timer
from agent.steps.types.call_records import Intent
from agent.steps.types.outcome import Failed, Outcome, StepError, Succeeded, Waiting
from agent.store.db.database import CommitUnknownError, StoreError
from agent.store.db.dialect import Fault
from agent.tasks.commit import split, transaction
from agent.tasks.commit.batch import Batch, CommitResult, JournalEntry, TxResult
from agent.tasks.commit.faults import FencedError
from agent.tasks.commit.scope import TxScope
from agent.tasks.errors import RefusedError
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.attempts import claim_of
from tests.support.child_tasks import child_of, register
from tests.support.engine import (
    PATIENCE_SECONDS,
    Hand,
    Start,
    graph,
    other,
    settle_of,
    step,
)
from tests.support.interventions import rewrite

LONE_SURROGATE = "\ud800"
UNSTORABLE = Failed(StepError("no", "code", LONE_SURROGATE))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep the log from drawing tracebacks."""
    with structlog.testing.capture_logs():
        yield


def fail_once(
    monkeypatch: pytest.MonkeyPatch, is_meant: Callable[[TxScope], bool], fault: Fault = Fault.BUSY
) -> None:
    """Let the first transaction of a part fail for a reason that is not its own."""
    run, has_failed = transaction.run, False

    def fail(scope: TxScope) -> TxResult:
        nonlocal has_failed
        if not has_failed and is_meant(scope):
            has_failed = True
            raise StoreError(fault, "the database is away")
        return run(scope)

    monkeypatch.setattr(transaction, "run", fail)


def send(hand: Hand, batch: Batch) -> list[CommitResult]:
    """Commit a batch as a worker does: what a failure left is sent again."""
    results: list[CommitResult] = []
    rest: Batch | None = batch
    for _ in range(5):
        if rest is None:
            break
        try:
            results.append(hand.commit(rest))
        except StoreError:
            continue
        rest = results[-1].rest
    return results


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.LOST])
def test_each_submission_is_acknowledged(
    start: Start, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A submitter is never refused a task that exists."""
    engine = start()
    inputs: list[Any] = ["first", "second", LONE_SURROGATE, "last"]
    submissions = [Submission(graph(step("a")), {"x": text}) for text in inputs]
    second = submissions[1]
    fail_once(monkeypatch, lambda scope: scope.batch.submissions == [second], fault)

    async def submit() -> list[Any]:
        work = [engine.worker.submit(submission) for submission in submissions]
        return await asyncio.gather(*work, return_exceptions=True)

    answers = asyncio.run_coroutine_threadsafe(submit(), engine.loop).result(PATIENCE_SECONDS)
    refused = answers.pop(2)
    assert isinstance(refused, RefusedError)
    assert "input" in str(refused)
    assert answers == [each.task_id for each in submissions if each is not submissions[2]]
    for task_id in answers:
        engine.wait(task_id, "succeeded")


def test_a_submission_whose_commit_was_never_confirmed(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker takes a new identity and sends the batch again: the task exists once."""
    submission = Submission(graph(step("a")))
    batch = Batch(submissions=[submission])
    connection = hand.committer.connection
    commit = connection._commit

    def lose_answer() -> None:
        commit()
        raise CommitUnknownError(Fault.LOST, "no answer")

    def not_answer() -> int:
        raise StoreError(Fault.UNREACHABLE, "no route")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_commit", lose_answer)
        patch.setattr(hand.committer.session, "last_committed", not_answer)
        with pytest.raises(StoreError):
            hand.commit(batch)
    with pytest.raises(FencedError):
        hand.commit(batch)
    hand.committer.enroll()
    done = hand.commit(batch)
    assert (done.result.created, done.refused) == ({submission.task_id: submission.task_id}, {})
    assert hand.rows("SELECT id FROM tasks") == [(submission.task_id,)]


def test_each_completion_takes_effect_once(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part did is acted on, although a later part fails: here, a parent is woken."""
    register(hand, graph(step("x"), name="child"))
    parent = hand.start(graph(other("call", "workflow"), name="parent"))
    hand.settle({"call": Waiting(ChildRequest("child", {}))})
    child = child_of(hand, parent)
    bad, good = hand.submit(graph(step("a"), name="bad"), graph(step("b"), name="good"))
    outcomes: dict[str, Outcome] = {"x": Succeeded(1), "a": UNSTORABLE, "b": Succeeded(2)}
    completions = [settle_of(hand.claimed(name), outcome) for name, outcome in outcomes.items()]
    fail_once(monkeypatch, lambda scope: scope.batch.completions == [completions[2]])
    results = send(hand, Batch(completions=completions))
    ends = [end for done in results for end in done.result.ended]
    assert sorted(end.task_id for end in ends) == sorted([child, bad, good])
    settled = [(done, is_held) for result in results for done, is_held in result.result.settled]
    assert [is_held for _, is_held in settled] == [True, True, True]
    hand.commit(Batch(child_ends=[end for end in ends if end.parent_step_id]))
    assert hand.names(parent) == ["call"]
    statuses = [hand.status(task_id) for task_id in (child, bad, good)]
    assert statuses == ["succeeded", "failed", "succeeded"]


def test_each_intent_is_recorded_once(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt whose intent is durable goes on; it is not told that it cannot be recorded."""
    hand.submit(*(graph(step(name), name=name) for name in "abc"))
    entries = [entry_of(hand, name) for name in "abc"]
    completion = settle_of(hand.claimed("c"), UNSTORABLE)
    fail_once(monkeypatch, lambda scope: scope.batch.entries == [entries[1]])
    results = send(hand, Batch(entries=entries, completions=[completion]))
    journaled = [pair for done in results for pair in done.result.journaled]
    assert sorted(journaled, key=lambda pair: entries.index(pair[0])) == [
        (entry, True) for entry in entries
    ]
    assert [entry.problem for entry in entries] == [None, None, None]
    assert hand.rows("SELECT count(*) FROM tool_calls") == [(3,)]
    assert hand.rows("SELECT count(*) FROM events WHERE type = 'tool_call.intended'") == [(3,)]


def entry_of(hand: Hand, name: str) -> JournalEntry:
    """Return the intent of a running attempt."""
    claimed = hand.claimed(name)
    digest = ids.request_hash({})
    intent = Intent(
        call_id=ids.new_id(),
        number=1,
        action="pay#1",
        request={},
        request_hash=digest,
        idempotency_key=ids.idempotency_key(
            claimed.task.id, claimed.step_id, claimed.attempt, "pay#1", digest
        ),
        remote_key="r",
        on_unknown="ask",
        send_by=hand.clock.now(),
        expires_at=hand.clock.now(),
    )
    return JournalEntry(claim_of(claimed), claimed.graph, intent=intent)


def test_a_failure_before_the_first_part_is_a_failure_of_the_batch(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was committed: the worker pauses, and counts it as no heartbeat."""
    submissions = [Submission(graph(step("a")), {"x": text}) for text in ("a", LONE_SURROGATE)]
    fail_once(monkeypatch, lambda scope: scope.batch.submissions == [submissions[0]])
    with pytest.raises(StoreError, match="away"):
        hand.commit(Batch(submissions=submissions))
    assert hand.rows("SELECT count(*) FROM tasks") == [(0,)]


def test_due_tasks_that_were_handled_before_a_failure(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of a due task is acted on, although the next one meets a failing database."""
    one = graph(step("a"), name="late", timeout_seconds=5.0)
    first, broken, last = sorted(hand.submit(one, one, one))
    until = Waiting(Timer(10**16), 10**16)
    for task_id in (first, broken, last):
        hand.settle({"a": until}, task_id)
    before = rewrite(hand, broken, "waiting_on", "{broken")
    hand.skip(11)

    def is_of_last(scope: TxScope) -> bool:
        return scope.capacity.only_due == last

    fail_once(monkeypatch, is_of_last)
    done = hand.commit()
    assert [end.task_id for end in done.result.ended] == [first]
    hand.commit()
    assert hand.status(last) == "failed"
    rewrite(hand, broken, "waiting_on", before)


@pytest.mark.parametrize(("seconds", "commits"), [(9, 1), (11, 4)])
def test_more_bad_due_tasks_than_one_commit_tries_hide_no_other(
    hand: Hand, monkeypatch: pytest.MonkeyPatch, seconds: int, commits: int
) -> None:
    """Tasks that cannot be read are set aside, however many; those due before and after them run."""
    monkeypatch.setattr(split, "_MOST_PARTS", 3)
    bad = [hand.start(graph(step("a"), name="bad")) for _ in range(8)]
    for task_id in bad:
        hand.settle({"a": until(hand, 10)}, task_id)
    good = hand.start(graph(step("b"), name="good"))
    hand.settle({"b": until(hand, seconds)})
    before = [rewrite(hand, task_id, "waiting_on", "{broken") for task_id in bad]
    hand.skip(12)
    for _ in range(commits):
        hand.commit()
    assert hand.names() == ["b"]
    hand.succeed("b")
    assert hand.status(good) == "succeeded"
    for task_id, text in zip(bad, before, strict=True):
        rewrite(hand, task_id, "waiting_on", text)


def until(hand: Hand, seconds: int) -> Waiting:
    """Return what a step gives that waits for an instant."""
    instant = hand.clock.now() + seconds * SECOND
    return Waiting(Timer(instant), instant, {"until": instant})
