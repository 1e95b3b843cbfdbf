"""A failure on record is a result: a final one is applied and never sent again, whatever crashed."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.state_machine import CallStatus
from agent.models.registry import ModelRegistry
from agent.steps.attempt.context import StepContext
from agent.steps.types.call_records import CallResult
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Json, Outcome, Retry, StepError, Succeeded
from tests.support.attempt import Trial, callable_name, python, run
from tests.support.http_server import Server, answer
from tests.support.mailing import FAILED, UNKNOWN, Mailing, Remote, both, lose, mailing
from tests.support.requesting import attempt, http, with_server


def final(outcome: Outcome) -> StepError:
    """Return the error of a step that has failed."""
    assert isinstance(outcome, Failed), outcome
    return outcome.error


@both
@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_final_failure_on_record_is_applied_after_a_crash(
    mailing: Mailing, max_attempts: int
) -> None:
    """The next attempt fails as the lost one would have, also beyond the last that may act."""
    remote = Remote()
    trial = mailing(remote)
    trial.max_attempts = max_attempts
    remote.problem = DefiniteFailure("no such mailbox", code="bounced", may_retry=False)
    first = final(run(trial.attempt()))
    trial.crash()
    remote.problem = None
    assert final(run(trial.attempt())) == first == StepError("bounced", "remote", "no such mailbox")
    assert len(remote.keys) == 1
    assert trial.journal.statuses == [FAILED]


@both
def test_a_failure_that_allows_a_retry_goes_on_after_a_crash(mailing: Mailing) -> None:
    """Only a final failure is an end: this one is tried again, in the attempt after the lost one."""
    remote = Remote()
    trial = mailing(remote)
    remote.problem = DefiniteFailure("mailbox full")
    assert isinstance(run(trial.attempt()), Retry)
    # The outcome was lost: the record of the call is all that counts it.
    trial.failures = 0
    remote.problem = None
    assert run(trial.attempt()) == Succeeded({"receipt": 2})


@both
def test_a_final_failure_after_an_unknown_is_not_repeated(mailing: Mailing) -> None:
    """`on_unknown: retry` repeats what is unknown; what followed it was answered for good."""

    async def main() -> None:
        remote = Remote()
        trial = mailing(remote, on_unknown="retry")
        await lose(trial, remote)
        remote.problem = DefiniteFailure("no such mailbox", may_retry=False)
        assert isinstance(await trial.attempt(), Failed)
        trial.crash()
        assert final(await trial.attempt()).message == "no such mailbox"
        assert len(remote.keys) == 2
        assert trial.journal.statuses == [UNKNOWN, FAILED]

    run(main())


def test_a_final_failure_that_the_step_handled_is_handled_again() -> None:
    """A later attempt takes the same way as the first: the refused call is not made once more."""
    remote, second = Remote(), Remote()

    async def step(ctx: StepContext) -> Json:
        try:
            await ctx.call("mail.send", {"attempt": ctx.attempt}, remote.send)
        except DefiniteFailure as problem:
            return [str(problem), await ctx.call("post.send", {}, second.send)]

    trial = python(step)
    remote.problem = DefiniteFailure("no such mailbox", may_retry=False)
    second.problem = DefiniteFailure("closed today")
    assert isinstance(run(trial.attempt()), Retry)
    remote.problem = second.problem = None
    assert run(trial.attempt()) == Succeeded(["no such mailbox", {"receipt": 2}])
    assert len(remote.keys) == 1


def test_a_final_failure_says_nothing_of_another_action() -> None:
    """A step that does something else under the same number is not failed for it."""
    remote = Remote()

    async def step(ctx: StepContext) -> Json:
        action = "mail.send" if ctx.attempt == 1 else "post.send"
        return await ctx.call(action, {}, remote.send)

    trial = python(step)
    remote.problem = DefiniteFailure("no such mailbox", may_retry=False)
    run(trial.attempt())
    trial.crash()
    remote.problem = None
    assert run(trial.attempt()) == Succeeded({"receipt": 2})


@pytest.mark.parametrize("body", ["the same", "{{ task.attempt }}"])
def test_an_http_effect_that_was_refused_is_sent_once(body: str) -> None:
    """401 is final: after a crash the step fails from the record, however the request reads now."""

    async def main(server: Server) -> None:
        server.routes["/pay"] = answer(401)
        trial = http({"post": server.url("/pay"), "json": {"body": body}})
        first = final(await attempt(trial))
        trial.crash()
        assert final(await attempt(trial)) == first
        assert first.code == "status_401"
        assert len(server.received) == 1

    with_server(main)


@pytest.mark.parametrize("kind", ["shell", "once"])
def test_effects_that_failed_for_good_run_once(kind: str, tmp_path: Path) -> None:
    """A command's exit code and a function's `DefiniteFailure` are applied from the record."""
    book = tmp_path / "book"

    def pay() -> None:
        with book.open("a") as file:
            file.write("paid\n")
        raise DefiniteFailure("no such account", may_retry=False)

    if kind == "shell":
        trial = Trial("shell", {"script": f"echo paid >> {book}; exit 1"})
    else:
        trial = python(pay, config={"effect": "once"})
    first = final(run(trial.attempt()))
    for _ in range(2):
        trial.crash()
        assert final(run(trial.attempt())) == first
    assert book.read_text() == "paid\n"
    assert trial.journal.statuses == [FAILED]


def test_the_model_is_shown_the_same_failure_of_a_tool_again() -> None:
    """A definite failure of a tool is its answer to the model: a later attempt uses that answer."""
    ran = []

    def pay() -> None:
        """Pay."""
        ran.append(1)
        raise DefiniteFailure("no such account", may_retry=False)

    script: list[Any] = [{"tool_uses": [{"name": "pay", "arguments": {}}]}, "it cannot be paid"]
    tools = {"pay": {"python": callable_name(pay), "approve": "never"}}
    goal = f"do it\n```echo\n{json.dumps(script)}\n```"
    trial = Trial("agent", {"goal": goal, "model": "echo", "tools": tools})
    trial.services.models = ModelRegistry(default="echo")
    assert run(trial.attempt()) == Succeeded("it cannot be paid")
    trial.crash()
    assert run(trial.attempt()) == Succeeded("it cannot be paid")
    assert ran == [1]
    (told,) = [r.response for r in trial.journal.results if "is_error" in (r.response or {})]
    assert told == {"text": "no such account", "is_error": True}


def test_a_response_that_could_not_be_kept_fails_the_next_attempt_too() -> None:
    """The effect succeeded and its answer is lost for good: no later attempt goes on without it."""

    async def send(ctx: StepContext) -> str:
        await ctx.call("mail.send", {}, object)
        return "went on"

    trial = python(send)
    first = final(run(trial.attempt()))
    trial.crash()
    assert final(run(trial.attempt())) == first
    assert first.code == "bad_response"


def test_an_operators_verdict_is_no_final_failure() -> None:
    """A person who answers that it did not happen wants it done: the recorded failure is not final."""

    async def main() -> None:
        remote = Remote()
        trial = mailing(remote)
        await lose(trial, remote)
        _, intent = trial.journal.intents[0]
        error = StepError("not_applied", "unknown", "the operator said that it did not happen")
        trial.journal.results.append(
            CallResult(intent.call_id, intent.idempotency_key, CallStatus.FAILED, None, error)
        )
        assert await trial.attempt() == Succeeded({"receipt": 2})

    run(main())
