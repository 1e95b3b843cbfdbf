import asyncio
import threading
from pathlib import Path

import pytest

from agent.core import thread_bridge
from agent.core.clock import SECOND
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.types.attempt_input import Upstream
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Json, Paused, Retry, Returned, Succeeded
from tests.support.attempt import Trial, python, run, until


def test_a_coroutine_function_gets_its_context_and_its_arguments() -> None:
    """`ctx` is given by name, `with` as keyword arguments, and what is returned is the output."""

    async def add(ctx: StepContext, left: int, right: int = 1) -> Json:
        return [left + right, ctx.step, ctx.attempt, ctx.input, ctx.outputs, ctx.task_id]

    trial = python(
        add,
        config={"with": {"left": "{{ inputs.x }}"}},
        inputs={"x": 4},
        upstream={"before": Upstream("succeeded", 7)},
    )
    expected = [5, "it", 1, {"x": 4}, {"before": 7}, "task-1"]
    assert run(trial.attempt()) == Succeeded(expected)


def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    """A function that blocks does not hold the event loop."""

    def name() -> str:
        return threading.current_thread().name

    assert run(python(name).attempt()) == Succeeded("step")


def test_an_exception_is_retried_and_its_traceback_logged() -> None:
    """What a function raises becomes an outcome with its type and text."""

    def broken() -> None:
        raise KeyError("amount")

    trial = python(broken)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert not outcome.is_unknown
    assert outcome.error.kind == "code"
    assert outcome.error.message == "KeyError: 'amount'"
    assert "Traceback" in trial.journal.log_text


def test_a_definite_failure_says_whether_it_may_be_retried() -> None:
    """`may_retry=False` ends the step; a delay is passed on."""

    def final() -> None:
        raise DefiniteFailure("no such customer", code="no_customer", may_retry=False)

    def later() -> None:
        raise DefiniteFailure("busy", delay_seconds=30)

    outcome = run(python(final).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "no_customer"
    postponed = run(python(later).attempt())
    assert isinstance(postponed, Retry)
    assert postponed.delay_seconds == 30


def test_wrong_arguments_are_reported_before_anything_runs() -> None:
    """An unknown key is the definition's mistake, not the function's."""
    ran = []

    def check(line: str) -> None:
        ran.append(line)

    outcome = run(python(check, config={"with": {"lines": []}}).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "input"
    assert "line" in outcome.error.message
    assert ran == []


def test_a_module_beside_the_workflow_is_found_and_loaded_again_when_it_changes(
    tmp_path: Path,
) -> None:
    """The file beside the workflow comes first, also right after an edit of the same size."""
    module = tmp_path / "my_own_steps.py"
    module.write_text("def value():\n    return 1\n")
    trial = Trial(
        "python", {"call": "my_own_steps:value"}, task={"source_path": str(tmp_path / "w.yaml")}
    )
    assert run(trial.attempt()) == Succeeded(1)
    replacement = tmp_path / "replacement"
    replacement.write_text("def value():\n    return 2\n")
    replacement.rename(module)
    assert run(trial.attempt()) == Succeeded(2)
    module.write_text("raise RuntimeError('half written')\n")
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert "half written" in outcome.error.message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("no_such_module_here:f", "no_such_module_here"),
        ("json:no_such_function", "no_such_function"),
        ("json", "call"),
    ],
)
def test_a_missing_function_fails_the_step(call: str, message: str) -> None:
    """A missing module, a missing function and a malformed name fail without retry."""
    outcome = run(Trial("python", {"call": call}).attempt())
    assert isinstance(outcome, Failed)
    assert message in outcome.error.message


def test_a_coroutine_is_ended_by_its_timeout() -> None:
    """An attempt that takes too long is a retry of class timeout."""

    async def forever() -> None:
        await asyncio.Event().wait()

    outcome = run(python(forever, options={"timeout_seconds": 0.05}).attempt())
    assert isinstance(outcome, Retry)
    assert outcome.error.code == "timeout"
    assert not outcome.is_unknown


def test_the_task_deadline_bounds_the_attempt() -> None:
    """When the task's time is over the attempt fails for good, begun or not."""

    async def forever() -> None:
        await asyncio.Event().wait()

    trial = python(forever)
    trial.task = {"deadline": trial.clock.now() + SECOND // 20}
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "deadline"
    assert isinstance(run(trial.attempt()), Failed)


def test_a_thread_that_overruns_loses_its_context_and_keeps_its_slot() -> None:
    """The attempt ends only when the function does, and its calls raise from the timeout on."""
    done = threading.Event()
    calls = []

    def stubborn(ctx: BlockingContext) -> None:
        while not ctx.should_stop:
            done.wait(0.01)
        try:
            ctx.call("mail.send", {}, lambda: calls.append("sent"))
        except Exception as problem:
            calls.append(type(problem).__name__)
        done.set()

    outcome = run(python(stubborn, options={"timeout_seconds": 0.05}).attempt())
    assert done.is_set()
    assert calls == ["RevokedError"]
    assert isinstance(outcome, Retry)
    assert outcome.error.code == "timeout"


@pytest.mark.parametrize("reason", ["shutdown", "canceled"])
def test_a_stopped_attempt_with_nothing_in_flight_is_given_back(reason: str) -> None:
    """Being asked to stop interrupts a coroutine, and says why it was given back."""

    async def main() -> None:
        started = asyncio.Event()

        async def forever() -> None:
            started.set()
            await asyncio.Event().wait()

        trial = python(forever)
        attempt = asyncio.create_task(trial.attempt())
        await started.wait()
        trial.signals.stop_for(reason)
        assert await attempt == Returned(reason)

    run(main())


def test_a_threads_result_at_the_moment_of_a_stop_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result is known by the time of the interruption."""
    post, posted = thread_bridge._post, threading.Event()

    def post_and_signal(*args: Json) -> bool:
        is_open = post(*args)
        posted.set()
        return is_open

    monkeypatch.setattr(thread_bridge, "_post", post_and_signal)

    async def main() -> None:
        started, release = threading.Event(), threading.Event()

        def work() -> str:
            started.set()
            assert release.wait(60)
            return "done"

        trial = python(work)
        attempt = asyncio.create_task(trial.attempt())
        await until(started.is_set)
        trial.signals.stop_for("canceled")
        release.set()
        # The loop stands still until the thread has posted its result: both are then there at once.
        assert posted.wait(60)
        outcome = await attempt
        assert isinstance(outcome, Succeeded), outcome
        assert outcome.output == "done"

    run(main())


def test_a_stop_that_came_first_is_not_missed() -> None:
    """An attempt that is asked to stop before it began does not begin."""

    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        trial = python(forever)
        attempt = asyncio.create_task(trial.attempt())
        await asyncio.sleep(0)
        trial.signals.stop_for("shutdown")
        assert await attempt == Returned("shutdown")

    run(main())


def test_cancelling_the_asyncio_task_gets_through() -> None:
    """The engine's last resort is not swallowed, though the function holds a thread."""
    release = threading.Event()

    async def main() -> None:
        started = threading.Event()

        def hang() -> None:
            started.set()
            release.wait(60)

        attempt = asyncio.create_task(python(hang).attempt())
        await until(started.is_set)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        release.set()

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_pause_takes_effect_at_the_next_checkpoint(is_async: bool) -> None:
    """`save` records, then ends the attempt; the resumed one finds what was saved."""

    async def count(ctx: StepContext) -> Json:
        for number in range(ctx.checkpoint or 0, 5):
            await ctx.save(number + 1)
            if number == 1:
                ctx.signals.is_pausing = True
        return ctx.checkpoint

    def count_in_thread(ctx: BlockingContext) -> Json:
        for number in range(ctx.checkpoint or 0, 5):
            ctx.save(number + 1)
            if number == 1:
                ctx.signals.is_pausing = True
        return ctx.checkpoint

    trial = python(count if is_async else count_in_thread)
    assert run(trial.attempt()) == Paused(3)
    assert run(trial.attempt()) == Succeeded(5)
    assert trial.journal.checkpoints == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("output", "where"),
    [
        ({"a": [1, {"b": float("nan")}]}, "output.a[1].b"),
        ({"when": object()}, "output.when"),
        ({"text": "a\0b"}, "output.text"),
        ([b"bytes"], "output[0]"),
    ],
)
def test_an_output_that_is_not_plain_json_names_the_key(output: Json, where: str) -> None:
    """Such an output fails the step, never the commit that would store it."""
    outcome = run(python(lambda: output).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.message.startswith(where)


def test_an_output_beyond_the_limit_names_its_largest_key() -> None:
    """The message says how large it is and where."""
    outcome = run(python(lambda: {"small": 1, "large": "x" * 2_000_000}).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "limit"
    assert "output.large" in outcome.error.message


def test_an_output_is_held_against_its_schema_with_all_problems_at_once() -> None:
    """Every violation is named in one message."""
    schema = {
        "type": "object",
        "required": ["vendor"],
        "properties": {"amount": {"type": "number"}},
    }
    trial = python(lambda: {"amount": "much"}, options={"output_schema": schema})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "output_schema"
    assert "vendor" in outcome.error.message
    assert "output.amount" in outcome.error.message


@pytest.mark.parametrize(
    "schema", [{"type": "no such type"}, {"$ref": "http://127.0.0.1:1/schema"}, {"pattern": "("}]
)
def test_an_unusable_schema_fails_the_step(schema: dict[str, Json]) -> None:
    """A wrong schema fails it, and so does one that refers elsewhere, which is not fetched."""
    outcome = run(python(lambda: "text", options={"output_schema": schema}).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "bad_schema"


def test_the_log_is_bounded() -> None:
    """An attempt that talks without end fills its share of the log and no more."""

    async def talk(ctx: StepContext) -> None:
        for _ in range(100):
            ctx.log("x" * 100_000)

    trial = python(talk)
    assert run(trial.attempt()) == Succeeded()
    limit = trial.limits.log_bytes
    assert limit <= len(trial.journal.log_text) < limit + 1000
    assert "reached its limit" in trial.journal.log_text
