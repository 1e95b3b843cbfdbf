"""Large values of a step are treated beside the event loop, and never written if far too large."""

import asyncio
import threading
import time
from typing import Any

import pytest

from agent.core.state_machine import CallStatus
from agent.steps.attempt import prepare
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.recorded_calls import calls
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Limits
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.types.attempt_input import Upstream
from agent.steps.types.outcome import Failed, Json, Retry, Returned, Succeeded
from agent.steps.types.value_sizes import is_small, surely_exceeds
from agent.workflows.templates import templates
from tests.support.attempt import Trial, callable_name, python, run

WORK_SECONDS = 2.0
MAX_SECONDS = 1.25
"""On the loop it would be blocked for longer than this; other threads may hold it up a little."""
LARGE: list[Any] = [[number] for number in range(100_000)]


async def longest_gap(trial: Trial) -> tuple[object, float]:
    """Run an attempt; return its outcome and for how long the loop did nothing else, at most."""
    attempt = asyncio.ensure_future(trial.attempt())
    longest, last = 0.0, time.monotonic()
    while not attempt.done():
        await asyncio.sleep(0.001)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return attempt.result(), longest


def work() -> None:
    """Compute for a while, as pure Python does: other threads get their turns."""
    deadline = time.monotonic() + WORK_SECONDS
    while time.monotonic() < deadline:
        pass


@pytest.fixture
def secretive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let redaction look through every value, slowly."""
    redact = Secrets.redact_value

    def slowly(secrets: Secrets, value: Json) -> Json:
        if value is LARGE:
            work()
        return redact(secrets, value)

    monkeypatch.setattr(Secrets, "redact_value", slowly)


async def give() -> Json:
    """Return a large output."""
    return LARGE


async def act(ctx: StepContext) -> Json:
    """Return little of a call with a large answer."""
    await ctx.call("look", {}, lambda: LARGE)
    return "done"


async def ask(ctx: StepContext) -> Json:
    """Make a call with a large request."""
    await ctx.call("look", LARGE, lambda: None)
    return "done"


@pytest.mark.measured
@pytest.mark.parametrize("function", [give, act, ask])
def test_large_values_do_not_block_the_loop(function: Any, secretive: None) -> None:
    """However long it takes to redact and check them, other attempts go on."""
    trial = python(function, limits=Limits(output_bytes=60_000_000))
    outcome, seconds = run(longest_gap(trial))
    assert isinstance(outcome, Succeeded)
    assert seconds < MAX_SECONDS


@pytest.mark.measured
def test_templates_over_large_values_do_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long they take to render, other attempts go on."""
    render = templates.render

    def slowly(*arguments: Any) -> Json:
        work()
        return render(*arguments)

    monkeypatch.setattr(prepare, "render", slowly)
    trial = python(
        lambda text: text,
        config={"with": {"text": "{{ steps.before.output | length }}"}},
        upstream={"before": Upstream("succeeded", LARGE)},
    )
    outcome, seconds = run(longest_gap(trial))
    assert outcome == Succeeded(len(LARGE))
    assert seconds < MAX_SECONDS


def test_a_call_whose_attempt_ends_while_its_request_is_read_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function in a thread goes on after its attempt; its large request is neither kept nor sent."""
    ended = threading.Event()
    written = calls._encode_request
    made: list[str] = []

    def slowly(*arguments: Any) -> tuple[str, str]:
        assert ended.wait(60)
        return written(*arguments)

    def asking(ctx: BlockingContext) -> Json:
        ctx.call("look", LARGE, lambda: made.append("sent"))
        return "done"

    async def attempt() -> object:
        running = asyncio.ensure_future(trial.attempt())
        await asyncio.sleep(0.2)
        trial.signals.stop_for("the task no longer wants this attempt")
        await asyncio.sleep(0.1)
        ended.set()
        return await running

    monkeypatch.setattr(calls, "_encode_request", slowly)
    trial = python(asking)
    assert isinstance(run(attempt()), Returned)
    assert made == []
    assert trial.journal.statuses == []


def test_an_answer_is_recorded_although_the_time_is_over_meanwhile(secretive: None) -> None:
    """The call is on record as done; the next attempt takes it from there."""
    made = []

    async def once(ctx: StepContext) -> Json:
        async def look() -> Json:
            made.append(ctx.attempt)
            return LARGE

        await ctx.call("look", {}, look)
        return "done"

    options = {"timeout_seconds": WORK_SECONDS / 4}
    trial = python(once, limits=Limits(output_bytes=60_000_000), options=options)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert (outcome.error.code, outcome.is_unknown) == ("timeout", False)
    assert trial.journal.statuses == [CallStatus.SUCCEEDED]
    assert run(trial.attempt()) == Succeeded("done")
    assert made == [1]


@pytest.mark.parametrize("function", [give, act])
def test_a_result_is_recorded_however_often_the_attempt_is_cancelled(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First by its time, then by the worker that shuts down: the large response is not lost."""
    redact = Secrets.redact_value
    begun, released = threading.Event(), threading.Event()

    def slowly(secrets: Secrets, value: Json) -> Json:
        if value is LARGE:
            begun.set()
            assert released.wait(60)
        return redact(secrets, value)

    async def cancelled_twice() -> object:
        running = asyncio.ensure_future(trial.attempt())
        await asyncio.to_thread(begun.wait, 60)
        for _ in range(2):
            running.cancel()
            await asyncio.sleep(0.05)
        released.set()
        return await running

    monkeypatch.setattr(Secrets, "redact_value", slowly)
    trial = python(function, limits=Limits(output_bytes=60_000_000))
    outcome = run(cancelled_twice())
    if function is act:
        assert trial.journal.statuses == [CallStatus.SUCCEEDED]
        assert isinstance(outcome, Retry)
        assert not outcome.is_unknown
    else:
        assert isinstance(outcome, Succeeded)
        assert outcome.output == LARGE


def test_an_output_far_beyond_the_limit_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by its size, and the largest key is named."""

    def refuse(*_: object) -> str:
        raise AssertionError("it was written")

    monkeypatch.setattr("agent.steps.spec.output_checks.encode", refuse)
    huge = {"small": 1, "huge": LARGE, "other": "x" * 1000}
    outcome = run(python(lambda: huge, limits=Limits(output_bytes=100_000)).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "output_too_large"
    assert "output.huge" in outcome.error.message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, True),
        ({"a": [1, 2, 3]}, True),
        ("x" * 60_000, True),
        ("x" * 70_000, False),
        (list(range(2000)), False),
        ({str(number): number for number in range(2000)}, False),
        ([["x" * 1000] * 100], False),
    ],
)
def test_small_values(value: Json, expected: bool) -> None:
    """Texts by their length, lists and mappings by their members too."""
    assert is_small(value) is expected


def test_a_value_that_contains_itself() -> None:
    """The measure ends, and the value is refused as any that is nested too deeply."""
    ring: list[Any] = []
    ring.append(ring)
    assert not is_small(ring)
    assert surely_exceeds(ring, 1000)
    assert isinstance(run(python(lambda: ring).attempt()), Failed)


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_a_long_log_shows_no_part_of_a_secret(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the attempt's bound is not looked at, and no secret is cut in two."""
    secret = "open-sesame-" * 10
    monkeypatch.setenv("LONG_SECRET", secret)

    limit = 4096
    for shift in range(0, 300, 7):
        text = "x" * (limit - shift) + secret * 3 + "y" * size

        async def talk(ctx: StepContext, text: str = text) -> None:
            ctx.secrets.resolve("env:LONG_SECRET", frozenset({()}))
            ctx.log(text)

        config = {"call": callable_name(talk)}
        trial = Trial("python", config, limits=Limits(log_bytes=limit))
        assert run(trial.attempt()) == Succeeded()
        assert "sesame" not in trial.journal.log_text
        assert len(trial.journal.log_text) > limit / 2
