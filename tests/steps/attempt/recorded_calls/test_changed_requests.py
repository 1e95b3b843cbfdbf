"""Requests that differ between attempts: only what may have happened binds the next one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.core.waits import Timer, UnknownCall
from agent.models.registry import ModelRegistry
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.recorded_calls.replay import REQUEST_CHANGED
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Json, Retry, StepError, Succeeded, Waiting
from tests.support.attempt import Trial, callable_name, python, run
from tests.support.http_server import Server, answer, in_turn
from tests.support.mailing import FAILED, SUCCEEDED, Remote, lose
from tests.support.requesting import attempt, http, outcome_name, with_server


def changing(remote: Remote, **options: Any) -> Trial:
    """Return a step whose request is another one in every attempt."""

    async def send(ctx: StepContext) -> Json:
        return await ctx.call("mail.send", {"attempt": ctx.attempt}, remote.send, **options)

    return python(send, max_attempts=5)


def test_a_definite_failure_leaves_the_next_request_free() -> None:
    """429 means that nothing happened: the next attempt sends what it has to send by then."""

    async def main(server: Server) -> None:
        server.routes["/pay"] = in_turn(answer(429), answer(200, {"paid": True}))
        url = server.url("/pay")
        trial = http({"post": url, "json": {"attempt": "{{ task.attempt }}"}, "idempotent": True})
        assert outcome_name(await attempt(trial)) == "retry"
        assert outcome_name(await attempt(trial)) == "succeeded"
        assert [json.loads(got.body) for got in server.received] == [{"attempt": 1}, {"attempt": 2}]
        assert len({got.headers["idempotency-key"] for got in server.received}) == 2

    with_server(main)


@pytest.mark.parametrize("on_unknown", ["ask", "retry", "reconcile"])
def test_an_unknown_is_not_followed_by_another_request(on_unknown: str) -> None:
    """A person sees both requests, whatever the policy: it speaks of the one that was sent."""

    async def main() -> None:
        remote, asked = Remote(), []

        def reconcile(call: RecordedCall) -> bool:
            asked.append(call)
            return False

        trial = changing(remote, on_unknown=on_unknown, reconcile=reconcile)
        await lose(trial, remote)
        _, intent = trial.journal.intents[0]
        now = {"action": "mail.send#1", "request": {"attempt": 2}}
        assert await trial.attempt() == Waiting(UnknownCall(intent.call_id), changed_request=now)
        assert (len(remote.keys), asked) == (1, [])

    run(main())


def test_a_question_about_a_changed_request_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What would be sent now is hidden as what was sent is: a question is stored and sent around."""
    monkeypatch.setenv("PAY_TOKEN", "a-token-of-the-tests")

    async def main() -> None:
        remote = Remote()

        async def send(ctx: StepContext) -> Json:
            token = ctx.secrets.resolve("env:PAY_TOKEN", frozenset({()}))
            request = {"token": token, "attempt": ctx.attempt}
            return await ctx.call("mail.send", request, remote.send)

        trial = python(send)
        await lose(trial, remote)
        outcome = await trial.attempt()
        assert isinstance(outcome, Waiting)
        assert outcome.changed_request is not None
        assert outcome.changed_request["request"] == {"token": "[redacted]", "attempt": 2}

    run(main())


def test_the_time_of_an_unknown_passes_before_anybody_is_asked() -> None:
    """A changed request waits as the same one would: the first may still be under way."""
    remote = Remote()
    trial = changing(remote, on_unknown="retry")
    remote.problem = ConnectionError()
    run(trial.attempt())
    outcome = run(trial.attempt())
    assert isinstance(outcome, Waiting)
    assert isinstance(outcome.on, Timer)


def test_on_unknown_fail_fails_whatever_the_request() -> None:
    """A step that is to fail on an unknown does not ask."""

    async def main() -> None:
        remote = Remote()
        trial = changing(remote, on_unknown="fail")
        await lose(trial, remote)
        assert isinstance(await trial.attempt(), Failed)

    run(main())


@pytest.mark.parametrize("is_same", [True, False], ids=["same", "changed"])
@pytest.mark.parametrize("is_effect", [True, False], ids=["effect", "reads"])
@pytest.mark.parametrize("after", ["ask", "retry", "reconcile", "fail"])
@pytest.mark.parametrize("before", ["ask", "retry", "reconcile", "fail"])
def test_a_newer_definition_does_not_repeat_what_its_call_promised_to_ask_about(
    before: str, after: str, is_effect: bool, is_same: bool
) -> None:
    """An inherited unknown is sent again unasked only if both definitions say `retry` and the request is the same."""

    async def main() -> None:
        remote = Remote()
        options: dict[str, Any] = {"on_unknown": before}

        async def send(ctx: StepContext) -> Json:
            request = {} if is_same else {"task": ctx.task_id}
            return await ctx.call("mail.send", request, remote.send, reconcile=None, **options)

        trial = python(send)
        await lose(trial, remote)
        inherited = [replace(call, attempt=0) for call in trial.journal.records()]
        trial.attempt_number, trial.checkpoint, trial.waited = 1, None, None
        trial.task = {"id": "task-2", "origin_id": "task-1"}
        trial.claim = {"calls": inherited}
        options |= {"on_unknown": after, "effect": is_effect}
        outcome = await trial.attempt()
        # A request that only reads, as the one before did, may be another one.
        may_send = before == after == "retry" and (is_same or not is_effect)
        assert isinstance(outcome, Succeeded) == may_send
        assert len(remote.keys) == 1 + may_send
        assert isinstance(outcome, Failed) == (after == "fail")

    run(main())


def test_retry_sends_the_new_request_under_a_key_of_its_own() -> None:
    """A remote that honours keys would answer the new request from its memory of the old one."""

    async def main() -> None:
        remote = Remote()
        trial = changing(remote)
        await lose(trial, remote)
        assert isinstance(await trial.attempt(), Waiting)
        error = StepError("not_applied", "unknown", "the operator said that it did not happen")
        trial.journal.resolve_by_person(FAILED, error=error)
        assert await trial.attempt() == Succeeded({"receipt": 2})
        assert [intent.request for _, intent in trial.journal.intents] == [
            {"attempt": 1},
            {"attempt": 2},
        ]
        assert len(set(remote.keys)) == 2

    run(main())


def test_done_is_the_answer_in_every_later_attempt() -> None:
    """The person saw both requests: the step goes on with that answer, also after a retry."""
    remote, second = Remote(), Remote()

    async def step(ctx: StepContext) -> Json:
        first = await ctx.call("mail.send", {"attempt": ctx.attempt}, remote.send)
        return [first, await ctx.call("post.send", {}, second.send)]

    async def main() -> None:
        trial = python(step, max_attempts=5)
        await lose(trial, remote)
        assert isinstance(await trial.attempt(), Waiting)
        error = StepError(REQUEST_CHANGED, "unknown", "ada saw both requests")
        trial.journal.resolve_by_person(SUCCEEDED, "by hand", error)
        second.problem = DefiniteFailure("closed today")
        assert isinstance(await trial.attempt(), Retry)
        second.problem = None
        assert await trial.attempt() == Succeeded(["by hand", {"receipt": 2}])
        assert len(remote.keys) == 1

    run(main())


def test_an_inherited_unknown_is_compared_too() -> None:
    """A retry by an operator is another task: a request that names its task has changed."""

    async def main() -> None:
        remote = Remote()

        async def send(ctx: StepContext) -> Json:
            return await ctx.call("mail.send", {"task": ctx.task_id}, remote.send)

        trial = python(send)
        await lose(trial, remote)
        inherited = [replace(call, attempt=0) for call in trial.journal.records()]
        trial.attempt_number = 1
        trial.task = {"id": "task-2", "origin_id": "task-1"}
        trial.claim = {"calls": inherited}
        outcome = await trial.attempt()
        assert isinstance(outcome, Waiting)
        assert outcome.changed_request == {"action": "mail.send#1", "request": {"task": "task-2"}}
        assert len(remote.keys) == 1

    run(main())


def test_a_recorded_success_is_not_the_answer_to_another_request() -> None:
    """The step's calls have changed: it fails, and the error names the way out."""
    remote = Remote()
    trial = changing(remote)
    run(trial.attempt())
    trial.crash()
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "calls_changed"
    assert "mail.send#1 with another request" in outcome.error.message
    assert "`agent fork task-1 --from it`" in outcome.error.message
    assert len(remote.keys) == 1


def test_the_answer_of_a_steps_one_call_is_its_outcome() -> None:
    """What a command gave is applied however its request reads now: its attempt was lost."""
    env = {"N": "{{ task.attempt }}"}
    schema = {"type": "object"}
    trial = Trial("shell", {"script": "echo $N", "env": env}, options={"output_schema": schema})
    first = run(trial.attempt())
    trial.crash()
    assert run(trial.attempt()) == first
    assert isinstance(first, Succeeded)
    assert first.output["stdout"] == "1\n"


def test_a_reading_call_may_ask_for_something_else() -> None:
    """With `effect=False` a changed request is made; the effect after it is held to the record."""
    remote = Remote()

    async def step(ctx: StepContext) -> Json:
        price = await ctx.call("read", {"n": ctx.attempt}, lambda: ctx.attempt * 10, effect=False)
        return [price, await ctx.call("buy", {}, remote.send)]

    trial = python(step)
    assert run(trial.attempt()) == Succeeded([10, {"receipt": 1}])
    trial.crash()
    assert run(trial.attempt()) == Succeeded([20, {"receipt": 1}])
    assert len(remote.keys) == 1


def test_an_agent_whose_goal_has_changed_does_not_leave_its_effects_behind() -> None:
    """Another conversation would know nothing of what the first has done: the step fails."""
    ran = []

    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    script: list[Any] = [{"tool_uses": [{"name": "pay", "arguments": {}}]}, "done"]
    goal = f"attempt {{{{ task.attempt }}}}\n```echo\n{json.dumps(script)}\n```"
    tools = {"pay": {"python": callable_name(pay), "approve": "never"}}
    trial = Trial("agent", {"goal": goal, "model": "echo", "tools": tools})
    trial.services.models = ModelRegistry(default="echo")
    assert isinstance(run(trial.attempt()), Succeeded)
    trial.crash()
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "calls_changed"
    assert ran == [1]
