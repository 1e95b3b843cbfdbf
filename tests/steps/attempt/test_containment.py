"""Whatever a step's code raises ends its own attempt, with an error that names the function."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from agent.core import event_loop
from agent.core.state_machine import CallStatus
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.types.outcome import Failed, Json, Retry, Succeeded
from tests.support.agent_loop import answers, trial, uses
from tests.support.attempt import Trial, callable_name, python, run

EXITS = [
    SystemExit(3),
    KeyboardInterrupt("now"),
    GeneratorExit("enough"),
    asyncio.CancelledError("mine"),
    BaseExceptionGroup("many", [SystemExit(3), ValueError("x")]),
]


def shown(problem: BaseException) -> str:
    """Return how the error shows an exception."""
    return repr(problem)


def raising(problem: BaseException, *, is_async: bool) -> Callable[..., Any]:
    """Return a step function that raises."""

    def plain() -> None:
        raise problem

    async def awaited() -> None:
        await asyncio.sleep(0)
        raise problem

    return awaited if is_async else plain


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("problem", EXITS, ids=shown)
def test_an_exit_ends_the_attempt_and_names_the_function(
    problem: BaseException, is_async: bool
) -> None:
    """It is retried as any exception is; the process and its event loop go on."""
    trial = python(raising(problem, is_async=is_async))
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert (outcome.error.code, outcome.error.kind, outcome.is_unknown) == (
        "exception",
        "code",
        False,
    )
    assert outcome.error.message == f"{trial.config['call']} raised {problem!r}"
    assert "Traceback" in trial.journal.log_text


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("problem", EXITS, ids=shown)
def test_an_exit_of_an_effect_leaves_it_unknown(problem: BaseException, is_async: bool) -> None:
    """The function may have acted before it raised."""
    trial = python(raising(problem, is_async=is_async), config={"effect": "once"})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    assert repr(problem) in outcome.error.message
    assert trial.journal.statuses == [CallStatus.UNKNOWN]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("problem", EXITS, ids=shown)
def test_an_exit_inside_a_call_leaves_it_unknown(problem: BaseException, is_async: bool) -> None:
    """The error names the call; `reconcile` may raise the same and ends its attempt only."""

    async def act(ctx: StepContext) -> Json:
        perform = raising(problem, is_async=True)
        return await ctx.call("mail.send", {}, perform, reconcile=raising(problem, is_async=True))

    def act_in_thread(ctx: BlockingContext) -> Json:
        perform = raising(problem, is_async=False)
        return ctx.call("mail.send", {}, perform, reconcile=raising(problem, is_async=False))

    trial = python(act if is_async else act_in_thread)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    assert f"the function of mail.send raised {problem!r}" in outcome.error.message
    trial.pass_expiry()
    checked = run(trial.attempt())
    assert isinstance(checked, Retry)
    assert checked.error.message == f"reconcile of mail.send raised {problem!r}"
    assert trial.journal.statuses == [CallStatus.UNKNOWN]


def test_a_tool_that_exits() -> None:
    """The model gets the error; an effect is unknown, and a check of arguments ends the attempt."""

    def leave() -> None:
        sys.exit(3)

    def check(_: object) -> object:
        sys.exit(4)

    def checking(one: Annotated[int, BeforeValidator(check)]) -> None:
        """Take what cannot be checked."""

    call = callable_name(leave)
    harmless = trial([uses(("leave", {})), "done"], {"leave": {"python": call, "effect": "none"}})
    assert run(harmless.attempt()) == Succeeded("done")
    assert answers(harmless) == [{"text": f"{call} raised SystemExit(3)", "is_error": True}]
    acting = trial([uses(("leave", {}))], {"leave": {"python": call, "approve": "never"}})
    outcome = run(acting.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    tools = {"checking": {"python": callable_name(checking), "effect": "none"}}
    outcome = run(trial([uses(("checking", {"one": 1}))], tools).attempt())
    assert isinstance(outcome, Retry)
    assert outcome.error.message == "the agent step 'it' raised SystemExit(4)"


class Hostile(Exception):  # noqa: N818 - what it is, not what went wrong
    """An exception whose text cannot be read."""

    def __str__(self) -> str:  # noqa: PLE0307
        sys.exit(4)

    __repr__ = __str__


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_effect", [False, True])
def test_an_exception_whose_text_cannot_be_read(is_async: bool, is_effect: bool) -> None:
    """Its type is named."""
    config = {"effect": "once"} if is_effect else {}
    outcome = run(python(raising(Hostile(), is_async=is_async), config=config).attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown is is_effect
    assert "Hostile (its __str__ raised SystemExit)" in outcome.error.message


class Poison(dict[str, Any]):
    """A value that raises SystemExit when it is read."""

    def items(self) -> Any:
        raise SystemExit(5)

    __iter__ = items
    __eq__ = items  # type: ignore[assignment]
    __hash__ = None


@pytest.mark.parametrize("is_effect", [False, True])
def test_a_result_whose_methods_raise(is_effect: bool) -> None:
    """The step fails; an effect that returned has happened, and its record says so."""
    trial = python(lambda: Poison(a=1), config={"effect": "once"} if is_effect else {})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert "SystemExit" in outcome.error.message
    assert outcome.error.kind == "code"
    assert trial.journal.statuses == ([CallStatus.SUCCEEDED] if is_effect else [])


@pytest.mark.parametrize(
    "statement", ["raise SystemExit(3)", "raise KeyboardInterrupt", "raise GeneratorExit"]
)
def test_a_module_that_exits_while_it_loads(tmp_path: Path, statement: str) -> None:
    """The step fails and names the function and the file."""
    (tmp_path / "leaving.py").write_text(f"{statement}\ndef f():\n    pass\n")
    task = {"source_path": str(tmp_path / "w.yaml")}
    outcome = run(Trial("python", {"call": "leaving:f"}, task=task).attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "import_failed"
    assert "leaving:f: leaving.py cannot be loaded" in outcome.error.message


@pytest.mark.timeout(30)
def test_a_device_is_no_module(tmp_path: Path) -> None:
    """Reading it to its end would never end."""
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    task = {"source_path": str(tmp_path / "w.yaml")}
    outcome = run(Trial("python", {"call": "endless:f"}, task=task).attempt())
    assert isinstance(outcome, Failed)
    assert "the module 'endless' is neither beside w.yaml" in outcome.error.message


def test_a_module_loads_beside_the_event_loop(tmp_path: Path) -> None:
    """Code that runs when a module is loaded does not hold up other attempts."""
    (tmp_path / "slow_module.py").write_text(
        "import threading\nNAME = threading.current_thread().name\ndef f():\n    return NAME\n"
    )
    task = {"source_path": str(tmp_path / "w.yaml")}
    assert run(Trial("python", {"call": "slow_module:f"}, task=task).attempt()) == Succeeded("step")


def test_an_attempt_that_ends_while_its_module_loads_runs_nothing(tmp_path: Path) -> None:
    """The function is not called once the attempt's time is over."""
    ran = tmp_path / "ran"
    (tmp_path / "slower_module.py").write_text(
        f"import pathlib, time\ntime.sleep(0.3)\ndef f():\n    pathlib.Path({str(ran)!r}).touch()\n"
    )
    task = {"source_path": str(tmp_path / "w.yaml")}
    trial = Trial("python", {"call": "slower_module:f"}, {"timeout_seconds": 0.05}, task=task)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.error.code == "timeout"
    assert not ran.exists()


def test_a_function_that_cancels_the_task_it_runs_in() -> None:
    """It is an error of the step's code, not the end of the worker: the attempt counts."""

    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    trial = python(cancel)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert f"{trial.config['call']} raised CancelledError" in outcome.error.message

    async def cancel_inside(ctx: StepContext) -> Json:
        return await ctx.call("mail.send", {}, cancel)

    acting = run(python(cancel_inside).attempt())
    assert isinstance(acting, Retry)
    assert acting.is_unknown


def test_the_context_of_an_earlier_attempt_costs_an_attempt() -> None:
    """It refuses every call; were the attempt given back for that, it would begin again for ever."""
    kept: list[StepContext] = []

    async def act(ctx: StepContext) -> Json:
        kept.append(ctx)
        return await kept[0].call("mail.send", {}, lambda: "sent")

    trial = python(act)
    assert run(trial.attempt()) == Succeeded("sent")
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.error.message == "RevokedError: this attempt is over"


async def leave() -> None:
    """Exit from a task that a step's code has started."""
    sys.exit(3)


async def gathering() -> None:
    """Wait for a task that exits."""
    await asyncio.gather(leave(), asyncio.sleep(0))


async def calling_back() -> str:
    """Exit from a callback, and stop the loop."""
    loop = asyncio.get_running_loop()
    loop.call_soon(sys.exit, 3)
    await asyncio.sleep(0.01)
    loop.stop()
    await asyncio.sleep(0.01)
    return "done"


def test_the_loop_outlives_tasks_and_callbacks_of_a_step() -> None:
    """A task that exits is an error of the attempt that awaits it; a callback belongs to no attempt."""

    async def main() -> None:
        beside = asyncio.create_task(asyncio.sleep(0.05, "beside"))
        trial = python(gathering)
        outcome = await trial.attempt()
        assert isinstance(outcome, Retry)
        assert outcome.error.message == f"{trial.config['call']} raised SystemExit(3)"
        assert await python(calling_back).attempt() == Succeeded("done")
        assert await beside == "beside"

    event_loop.run(main())


async def cancelling_all() -> str:
    """Cancel every task but this one, from here, from a task and from a callback."""

    def cancel(inner: "asyncio.Task[Any] | None" = None) -> None:
        for task in asyncio.all_tasks() - {own, inner}:
            task.cancel()

    async def cancel_in_task() -> None:
        cancel(asyncio.current_task())

    own = asyncio.current_task()
    cancel()
    await asyncio.gather(cancel_in_task())
    asyncio.get_running_loop().call_soon(cancel)
    await asyncio.sleep(0.01)
    return "done"


async def cancelling_own() -> str:
    """Cancel what a step may cancel: its own tasks, and by a timeout its own waiting."""
    mine = asyncio.create_task(asyncio.sleep(60))
    mine.cancel()
    await asyncio.wait({mine})
    assert mine.cancelled()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    return "done"


def test_a_step_cannot_cancel_the_tasks_of_the_engine() -> None:
    """Neither the main task nor another attempt notices; the engine itself can cancel all."""

    async def main() -> None:
        beside = asyncio.create_task(asyncio.sleep(0.05, "beside"))
        attempt = asyncio.create_task(python(cancelling_own).attempt())
        assert await python(cancelling_all).attempt() == Succeeded("done")
        assert await attempt == Succeeded("done")
        assert await beside == "beside"
        ended = asyncio.create_task(asyncio.sleep(60))
        assert ended.cancel()
        await asyncio.wait({ended})
        assert ended.cancelled()

    event_loop.run(main())


def test_the_loop_ends_as_its_main_task_does() -> None:
    """What the main task itself raises, also an exit, is raised; its result is returned."""

    async def main(problem: BaseException | None) -> int:
        if problem is not None:
            raise problem
        return 7

    assert event_loop.run(main(None)) == 7
    for problem in (SystemExit(3), KeyboardInterrupt(), ValueError("x"), asyncio.CancelledError()):
        with pytest.raises(type(problem)):
            event_loop.run(main(problem))
