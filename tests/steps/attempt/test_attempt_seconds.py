"""Every attempt ends: one without a timeout of its own after `attempt_seconds`."""

import asyncio
import math
import threading
from typing import Any

import pytest

from agent.core.clock import SECOND
from agent.steps.attempt.services import Limits
from agent.steps.spec.registry import KINDS
from agent.steps.types.outcome import Failed, Outcome, Paused, Retry, Succeeded
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph, Step
from tests.support.attempt import Trial, python, run

SHORT = Limits(attempt_seconds=0.2, kill_grace_seconds=0.2)
SLEEP = {"argv": ["sleep", "60"], "effect": "none"}
SOON = {"argv": ["sleep", "0.5"], "effect": "none"}


async def forever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


async def soon() -> str:
    """Take longer than the default."""
    await asyncio.sleep(0.5)
    return "done"


def is_default(outcome: Outcome) -> bool:
    """Whether an attempt was ended by the default, and says so."""
    text = "the attempt took longer than 0.2 s ([steps] attempt_seconds; set timeout: on the step)"
    return isinstance(outcome, Retry) and (outcome.error.code, outcome.error.message) == (
        "timeout",
        text,
    )


def test_a_function_without_a_timeout() -> None:
    """It ends after the default, and the error names the setting."""
    assert is_default(run(python(forever, limits=SHORT).attempt()))


def test_a_function_in_a_thread_without_a_timeout() -> None:
    """Its context is revoked, and the attempt ends with the function."""
    over = threading.Event()

    def stubborn(ctx: Any) -> None:
        while not ctx.should_stop:
            over.wait(0.01)

    assert is_default(run(python(stubborn, limits=SHORT).attempt()))


def test_a_command_without_a_timeout() -> None:
    """It is ended; as an effect its outcome is unknown."""
    assert is_default(run(Trial("shell", SLEEP, limits=SHORT).attempt()))
    outcome = run(Trial("shell", {"argv": ["sleep", "60"]}, limits=SHORT).attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    assert "interrupted (timeout: the attempt took longer than 0.2 s" in outcome.error.message


@pytest.mark.parametrize("options", [{"has_no_timeout": True}, {"timeout_seconds": 60.0}])
def test_a_time_of_its_own_goes_before_the_default(options: dict[str, Any]) -> None:
    """`timeout: none` lifts the default; a longer timeout takes its place."""
    assert run(python(soon, limits=SHORT, options=options).attempt()) == Succeeded("done")
    outcome = run(Trial("shell", SOON, options, limits=SHORT).attempt())
    assert isinstance(outcome, Succeeded)


def test_the_time_of_the_workflow_or_of_a_budget_goes_before_the_default() -> None:
    """A deadline of the task, and budgets of time, bound the attempt in its place."""
    trial = python(soon, limits=SHORT)
    trial.task = {"deadline": trial.clock.now() + 60 * SECOND}
    assert run(trial.attempt()) == Succeeded("done")
    paused = python(soon, limits=SHORT)
    paused.graph = Graph(name="trial", steps=[paused.step], timeout_seconds=60.0)
    assert run(paused.attempt()) == Succeeded("done")
    for on_exhausted in ("pause", "fail"):
        budget = {"time_seconds": 60.0, "on_exhausted": on_exhausted}
        own = python(soon, limits=SHORT, options={"budget": budget})
        own.claim = {"deadline": own.clock.now() + 60 * SECOND}
        assert run(own.attempt()) == Succeeded("done")


def test_every_kind_is_bounded_or_only_waits() -> None:
    """A kind either runs the user's program, has bounds on its calls, or does nothing but wait."""
    bounded_calls = {"http", "llm", "agent"}
    for name, kind in KINDS.items():
        if name in ("python", "shell", *bounded_calls, "wait", "workflow", "approval", "input"):
            assert kind.runs_code == (name in ("python", "shell"))
            assert kind.acts == (name in bounded_calls or kind.runs_code)


def compiled(timeout: str, defaults: str = "{}") -> Step:
    """Return the one step of a workflow file."""
    text = f"name: w\ndefaults: {defaults}\nsteps:\n  a: {{shell: {{argv: [ls]}}{timeout}}}\n"
    return compile_text(text).steps[0]


@pytest.mark.parametrize(
    ("timeout", "defaults", "seconds", "is_lifted"),
    [
        ("", "{}", None, False),
        (", timeout: 30s", "{}", 30.0, False),
        (", timeout: none", "{}", None, True),
        ("", "{timeout: none}", None, True),
        (", timeout: none", "{timeout: 5s}", None, True),
        (", timeout: 5s", "{timeout: none}", 5.0, False),
    ],
)
def test_how_it_is_written(
    timeout: str, defaults: str, seconds: float | None, is_lifted: bool
) -> None:
    """A graph without the key is what it was; `none` is a flag of its own."""
    step = compiled(timeout, defaults)
    assert (step.timeout_seconds, step.has_no_timeout) == (seconds, is_lifted)
    dumped = step.model_dump(exclude_defaults=True)
    assert ("has_no_timeout" in dumped) is is_lifted
    assert not any(value == math.inf for value in dumped.values())


def test_waiting_has_no_timeout() -> None:
    """A step that waits ends its attempt at once, and the wait is no attempt."""
    trial = Trial("wait", {"duration": 3600}, limits=SHORT)
    assert not isinstance(run(trial.attempt()), Failed | Retry | Paused)
