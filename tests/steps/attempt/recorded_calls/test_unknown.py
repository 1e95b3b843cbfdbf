import asyncio
import threading
from typing import Any

import pytest

from agent import Applied, DefiniteFailure
from agent.core.state_machine import CallStatus
from agent.core.waits import Timer, UnknownCall
from agent.steps.attempt.context import StepContext
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.outcome import Failed, Json, Retry, Returned, Succeeded, Waiting
from tests.support.attempt import python, run, until
from tests.support.mailing import FAILED, SUCCEEDED, UNKNOWN, Mailing, Remote, both, lose, mailing


@both
def test_no_attempt_acts_on_an_unknown_before_its_time_is_over(mailing: Mailing) -> None:
    """Until the lost send must have ended, the step waits on a timer and keeps its checkpoint."""
    remote = Remote()
    trial = mailing(remote, on_unknown="retry")
    trial.checkpoint = {"page": 3}
    remote.problem = ConnectionError()
    run(trial.attempt())
    _, intent = trial.journal.intents[0]
    outcome = run(trial.attempt())
    on = Timer(intent.expires_at, on_unknown="retry")
    assert outcome == Waiting(on, intent.expires_at, {"page": 3})
    assert len(remote.keys) == 1


@both
def test_on_unknown_retry_sends_the_same_key_again(mailing: Mailing) -> None:
    """To the remote it is the same request, also when a definite failure came in between."""

    async def main() -> None:
        remote = Remote()
        trial = mailing(remote, on_unknown="retry")
        await lose(trial, remote)
        remote.problem = DefiniteFailure("slow down")
        assert isinstance(await trial.attempt(), Retry)
        assert trial.journal.statuses == [UNKNOWN, FAILED]
        remote.problem = None
        assert await trial.attempt() == Succeeded({"receipt": 3})
        assert len(set(remote.keys)) == 1
        keys = {intent.idempotency_key for _, intent in trial.journal.intents}
        assert len(keys) == 3

    run(main())


@both
@pytest.mark.parametrize(
    ("verdict", "response", "sent"),
    [(SUCCEEDED, {"receipt": "by hand"}, 1), (FAILED, {"receipt": 2}, 2)],
)
def test_on_unknown_ask_waits_for_a_person(
    mailing: Mailing, verdict: CallStatus, response: Json, sent: int
) -> None:
    """`ask` is the default: done gives the operator's output, retry makes the call again."""

    async def main() -> None:
        remote = Remote()
        trial = mailing(remote)
        await lose(trial, remote)
        _, intent = trial.journal.intents[0]
        assert await trial.attempt() == Waiting(UnknownCall(intent.call_id))
        assert await trial.attempt() == Waiting(UnknownCall(intent.call_id))
        trial.journal.resolve_by_person(verdict, response if verdict == SUCCEEDED else None)
        assert await trial.attempt() == Succeeded(response)
        assert len(remote.keys) == sent

    run(main())


@both
def test_on_unknown_fail_fails(mailing: Mailing) -> None:
    """The step fails, saying that the outcome is unknown."""

    async def main() -> None:
        remote = Remote()
        trial = mailing(remote, on_unknown="fail")
        await lose(trial, remote)
        outcome = await trial.attempt()
        assert isinstance(outcome, Failed)
        assert outcome.error.kind == "unknown"
        assert "A retry fails the same way. `agent fork " in outcome.error.message
        assert len(remote.keys) == 1

    run(main())


@both
@pytest.mark.parametrize(
    ("found", "output", "statuses", "sent"),
    [
        (Applied({"receipt": "found"}), {"receipt": "found"}, [SUCCEEDED], 1),
        (True, None, [SUCCEEDED], 1),
        (False, {"receipt": 2}, [FAILED, SUCCEEDED], 2),
        (None, "ask", [UNKNOWN], 1),
    ],
)
def test_on_unknown_reconcile_asks_the_remote(
    mailing: Mailing, found: Any, output: Json, statuses: list[CallStatus], sent: int
) -> None:
    """Applied is the response, not applied is sent again, and without a verdict a person is asked."""

    async def main() -> None:
        remote = Remote()
        asked: list[str] = []

        def reconcile(call: RecordedCall) -> Any:
            asked.append(call.remote_key)
            return found

        trial = mailing(remote, reconcile=reconcile)
        await lose(trial, remote)
        outcome = await trial.attempt()
        _, intent = trial.journal.intents[0]
        assert asked == [intent.remote_key]
        if output == "ask":
            assert outcome == Waiting(UnknownCall(intent.call_id))
        else:
            assert outcome == Succeeded(output)
        assert trial.journal.statuses == statuses
        assert len(remote.keys) == sent
        if statuses != [UNKNOWN]:
            checked = [r for r in trial.journal.results if r.call_id == intent.call_id]
            assert checked[0].is_resolved_by_check

    run(main())


@pytest.mark.parametrize("on_unknown", ["retry", "reconcile", "ask", "fail"])
def test_the_attempt_after_the_last_may_only_find_out(on_unknown: str) -> None:
    """Reconcile and ask still work; acting again is refused, and says that it is unknown."""

    async def main() -> None:
        remote = Remote()
        trial = mailing(remote, on_unknown=on_unknown, reconcile=lambda: Applied("found"))
        trial.max_attempts = 1
        await lose(trial, remote)
        outcome = await trial.attempt()
        if on_unknown == "reconcile":
            assert outcome == Succeeded("found")
        elif on_unknown == "ask":
            assert isinstance(outcome, Waiting)
        else:
            assert isinstance(outcome, Failed)
            assert "unknown" in outcome.error.message
        assert len(remote.keys) == 1

    run(main())


def test_an_attempt_beyond_the_last_with_nothing_on_record_does_not_run() -> None:
    """A step whose every attempt was lost ends without running once more."""
    ran = []
    trial = python(lambda: ran.append(1), max_attempts=2)
    trial.attempt_number = 3
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "attempts_exhausted"
    assert ran == []


def test_a_timeout_in_mid_effect_is_unknown_even_if_the_step_hides_it() -> None:
    """What a call left open decides the outcome, whatever the function does afterwards."""

    async def hide(ctx: StepContext) -> str:
        for _ in range(2):
            try:
                await ctx.call("mail.send", {}, lambda: asyncio.Event().wait(), timeout=0.05)
            except BaseException:
                tried.append(1)
        return "all is well"

    tried: list[int] = []
    trial = python(hide)
    outcome = run(trial.attempt())
    assert len(tried) == 2
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    assert trial.journal.statuses == [UNKNOWN]


@pytest.mark.parametrize("reason", ["shutdown", "canceled"])
def test_stopping_in_mid_effect(reason: str) -> None:
    """Shutdown lets the call finish and then gives the step back; a cancel leaves it unknown."""

    async def main() -> None:
        begun, answer = asyncio.Event(), asyncio.Event()
        went_on = []

        async def slow() -> str:
            begun.set()
            await answer.wait()
            return "sent"

        async def send(ctx: StepContext) -> None:
            await ctx.call("mail.send", {}, slow)
            await asyncio.Event().wait()
            went_on.append(1)

        trial = python(send)
        attempt = asyncio.create_task(trial.attempt())
        await begun.wait()
        trial.signals.stop_for(reason)
        await asyncio.sleep(0.05)
        answer.set()
        outcome = await attempt
        if reason == "shutdown":
            assert outcome == Returned("shutdown")
            assert trial.journal.statuses == [SUCCEEDED]
        else:
            assert isinstance(outcome, Retry)
            assert outcome.is_unknown
            assert trial.journal.statuses == [UNKNOWN]
        assert went_on == []

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_declared_once_is_one_call(is_async: bool) -> None:
    """`effect: once` wraps the whole function: an exception leaves it unknown, and it asks."""

    async def main() -> None:
        ran = []

        def pay() -> str:
            ran.append(1)
            if len(ran) == 1:
                raise OSError("lost")
            return "paid"

        async def pay_async() -> str:
            return pay()

        trial = python(pay_async if is_async else pay, config={"effect": "once"})
        outcome = await trial.attempt()
        assert isinstance(outcome, Retry)
        assert outcome.is_unknown
        _, intent = trial.journal.intents[0]
        assert intent.settles_step
        trial.pass_expiry()
        assert await trial.attempt() == Waiting(UnknownCall(intent.call_id))
        assert len(ran) == 1
        trial.journal.resolve_by_person(FAILED)
        last = await trial.attempt()
        assert last == Succeeded(
            "paid", idempotency_key=trial.journal.intents[-1][1].idempotency_key
        )

    run(main())


def test_a_function_declared_without_effect_is_no_call() -> None:
    """`effect: none` is the default: nothing is recorded before the function runs."""

    async def main() -> None:
        trial = python(lambda: "read", config={"effect": "none"})
        assert await trial.attempt() == Succeeded("read")
        assert trial.journal.intents == []

    run(main())


def test_an_effect_in_a_thread_that_overruns_is_known_once_it_returns() -> None:
    """The attempt waits for the thread, and an effect that certainly happened is not unknown."""
    may_end = threading.Event()

    def pay() -> str:
        may_end.wait(60)
        return "paid"

    async def main() -> None:
        trial = python(pay, config={"effect": "once"}, options={"timeout_seconds": 0.05})
        attempt = asyncio.create_task(trial.attempt())
        await until(lambda: trial.journal.intents)
        await asyncio.sleep(0.2)
        assert not attempt.done()
        may_end.set()
        outcome = await attempt
        assert isinstance(outcome, Succeeded)
        assert outcome.output == "paid"
        assert trial.journal.statuses == [SUCCEEDED]

    run(main())
