import pytest

from agent.steps.attempt.context import StepContext
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import (
    Failed,
    Json,
    Paused,
    Retry,
    Returned,
    Succeeded,
)
from tests.support.attempt import python, run
from tests.support.mailing import FAILED, SUCCEEDED, Mailing, Remote, both, mailing


@both
def test_the_intent_is_durable_before_the_effect_and_resolved_by_its_answer(
    mailing: Mailing,
) -> None:
    """The function runs after the intent, and its answer is the call's response."""
    remote = Remote()
    trial = mailing(remote)
    sent_before: list[int] = []
    trial.journal.on_intend = lambda _: sent_before.append(len(remote.keys))
    assert run(trial.attempt()) == Succeeded({"receipt": 1})
    assert sent_before == [0]
    _, intent = trial.journal.intents[0]
    assert intent.action == "mail.send#1"
    assert intent.expires_at > intent.send_by > 0
    assert remote.keys == [intent.remote_key]
    assert trial.journal.statuses == [SUCCEEDED]


@both
def test_a_recorded_call_is_answered_from_the_record(mailing: Mailing) -> None:
    """After a crash the next attempt gets the same response and nothing runs."""
    remote = Remote()
    trial = mailing(remote)
    run(trial.attempt())
    trial.crash()
    assert run(trial.attempt()) == Succeeded({"receipt": 1})
    assert len(remote.keys) == 1


def test_two_equal_calls_are_two() -> None:
    """Calls are numbered by their order, so that equal ones have different keys."""
    remote = Remote()

    async def twice(ctx: StepContext) -> Json:
        first = await ctx.call("mail.send", {}, remote.send)
        return [first, await ctx.call("mail.send", {}, remote.send)]

    trial = python(twice)
    assert run(trial.attempt()) == Succeeded([{"receipt": 1}, {"receipt": 2}])
    assert len(set(remote.keys)) == 2


@both
def test_a_definite_failure_resolves_the_call_and_the_retry_has_a_new_key(
    mailing: Mailing,
) -> None:
    """The remote must not answer the new request from its memory of the failed one."""
    remote = Remote()
    trial = mailing(remote)
    remote.problem = DefiniteFailure("mailbox full")
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert not outcome.is_unknown
    assert trial.journal.statuses == [FAILED]
    remote.problem = None
    assert run(trial.attempt()) == Succeeded({"receipt": 2})
    assert len(set(remote.keys)) == 2


@both
def test_an_intent_that_took_too_long_to_record_is_not_sent(mailing: Mailing) -> None:
    """`send_by` is checked last before the first byte; nothing sent is a definite failure."""
    remote = Remote()
    trial = mailing(remote)
    trial.journal.on_intend = lambda _: trial.clock.advance(3600)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert not outcome.is_unknown
    assert outcome.error.code == "not_sent"
    assert trial.journal.statuses == [FAILED]
    assert remote.keys == []


@both
def test_a_clock_that_was_set_back_does_not_make_it_early(
    mailing: Mailing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have given up by the clock of before is not sent by the clock of now."""
    remote = Remote()
    trial = mailing(remote)

    def be_stopped(_: object) -> None:
        trial.clock.advance(-3600)
        measured = trial.clock.monotonic() + 60
        monkeypatch.setattr(trial.clock, "monotonic", lambda: measured)

    trial.journal.on_intend = be_stopped
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.error.code == "not_sent"
    assert remote.keys == []


@both
def test_a_revoked_claim_sends_nothing(mailing: Mailing) -> None:
    """When the journal says that the claim is gone, the effect does not begin."""
    remote = Remote()
    trial = mailing(remote)
    trial.journal.is_revoked = True
    assert run(trial.attempt()) == Returned("revoked")
    assert remote.keys == []


def test_a_timeout_while_the_intent_is_recorded_sent_nothing() -> None:
    """The row may or may not have landed; it is resolved as not sent."""
    remote = Remote()
    trial = mailing(remote)
    trial.step = trial.step.model_copy(update={"timeout_seconds": 0.05})
    trial.graph = trial.graph.model_copy(update={"steps": [trial.step]})
    trial.journal.is_held = True
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert not outcome.is_unknown
    assert [result.status for result in trial.journal.results] == [FAILED]
    assert remote.keys == []


def test_a_failure_seen_before_a_pause_is_seen_again() -> None:
    """The same attempt replays what it knows: a failed call it had caught fails alike."""
    remote = Remote()

    async def careful(ctx: StepContext) -> str:
        told = "sent"
        try:
            await ctx.call("mail.send", {}, remote.send)
        except DefiniteFailure as problem:
            told = str(problem)
        if ctx.checkpoint is None:
            ctx.signals.is_pausing = True
        await ctx.save(told)
        return told

    trial = python(careful)
    remote.problem = DefiniteFailure("mailbox full")
    assert run(trial.attempt()) == Paused("mailbox full")
    assert run(trial.attempt()) == Succeeded("mailbox full")
    assert len(remote.keys) == 1


@pytest.mark.parametrize("may_retry", [True, False])
def test_a_failure_that_is_seen_again_is_as_final_as_it_was(may_retry: bool) -> None:
    """What was not to be tried again when it happened is not tried again after a pause either."""
    remote = Remote()

    async def stubborn(ctx: StepContext) -> None:
        try:
            await ctx.call("mail.send", {}, remote.send)
        finally:
            if ctx.checkpoint is None:
                ctx.signals.is_pausing = True
                await ctx.save("tried")

    trial = python(stubborn)
    remote.problem = DefiniteFailure("no such mailbox", may_retry=may_retry)
    assert run(trial.attempt()) == Paused("tried")
    assert isinstance(run(trial.attempt()), Retry if may_retry else Failed)
    assert len(remote.keys) == 1


def test_a_response_that_cannot_be_kept_leaves_the_effect_succeeded() -> None:
    """The ledger keeps its verdict, and the step fails without retry."""

    async def send(ctx: StepContext) -> None:
        await ctx.call("mail.send", {}, object)

    trial = python(send)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "bad_response"
    assert trial.journal.statuses == [SUCCEEDED]


def test_a_response_that_is_nested_too_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    """It resolves its call like any other, also where it is searched for secrets first."""
    monkeypatch.setenv("TOKEN_OF_TESTS", "a-token-of-the-tests")

    async def send(ctx: StepContext) -> None:
        ctx.secrets.resolve("env:TOKEN_OF_TESTS", frozenset({()}))
        deep: Json = "a-token-of-the-tests"
        for _ in range(5000):
            deep = [deep]
        await ctx.call("mail.send", {}, lambda: deep)

    trial = python(send)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "bad_response"
    assert trial.journal.statuses == [SUCCEEDED]


def test_a_repeatable_call_is_recorded_and_its_exceptions_are_its_own() -> None:
    """With `effect=False` an exception is an ordinary failure, and a success is replayed."""
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        if len(reads) == 1:
            raise ValueError("try again")
        return len(reads)

    async def step(ctx: StepContext) -> Json:
        return await ctx.call("price.read", {}, read, effect=False)

    trial = python(step)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert not outcome.is_unknown
    assert "try again" in outcome.error.message
    assert run(trial.attempt()) == Succeeded(2)
    trial.crash()
    assert run(trial.attempt()) == Succeeded(2)
    assert trial.journal.statuses == [FAILED, SUCCEEDED]


def test_the_items_of_a_group_have_keys_of_their_own() -> None:
    """Two items that ask the same of a remote are two requests to it."""
    remote = Remote()
    for index in range(2):
        trial = mailing(remote)
        trial.claim = {"parallel_index": index, "parallel_count": 2, "item": "same"}
        assert isinstance(run(trial.attempt()), Succeeded)
    assert len(set(remote.keys)) == 2
