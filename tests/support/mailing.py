"""A step that makes one call of something outside, which may break."""

from collections.abc import Callable
from typing import Any

import pytest

from agent.core.state_machine import CallStatus
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.types.call_types import Call
from agent.steps.types.outcome import (
    Json,
    Retry,
)
from tests.support.attempt import Trial, python

UNKNOWN, SUCCEEDED, FAILED = CallStatus.UNKNOWN, CallStatus.SUCCEEDED, CallStatus.FAILED


class Remote:
    """Something outside: counts what reached it, and may break."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.problem: BaseException | None = None

    def send(self, call: Call) -> Json:
        """Take one request; it has arrived even if the answer is lost."""
        self.keys.append(call.remote_key)
        if self.problem is not None:
            raise self.problem
        return {"receipt": len(self.keys)}


def mailing(remote: Remote, **options: Any) -> Trial:
    """Return a step that makes one call."""

    async def send(ctx: StepContext) -> Json:
        return await ctx.call("mail.send", {"to": "ann"}, remote.send, **options)

    return python(send)


def mailing_in_thread(remote: Remote, **options: Any) -> Trial:
    """Return the same step as a plain function."""

    def send(ctx: BlockingContext) -> Json:
        return ctx.call("mail.send", {"to": "ann"}, remote.send, **options)

    return python(send)


Mailing = Callable[..., Trial]

both = pytest.mark.parametrize("mailing", [mailing, mailing_in_thread])


async def lose(trial: Trial, remote: Remote) -> None:
    """Let the first attempt's call break after it reached the remote, and its time pass."""
    remote.problem = ConnectionError("the line went dead")
    outcome = await trial.attempt()
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    assert trial.journal.statuses == [UNKNOWN]
    remote.problem = None
    trial.pass_expiry()
