"""Promise 16 for `executor: process`: a step's code ends that step only, whatever it does."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.executors import ExecutorSettings, ProcessSettings
from agent.core.state_machine import CallStatus
from agent.core.waits import Timer, UnknownCall
from agent.steps.executors.registry import Executors
from agent.steps.kinds import shell
from agent.steps.process import processes
from agent.steps.types.outcome import Failed, Outcome, Paused, Retry, Returned, Succeeded, Waiting
from agent.store.artifacts.blobs import BlobStores
from tests.support.attempt import Trial, run, until

FUNCTIONS = "tests.support.process_functions"

Make = Callable[..., Trial]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Make]:
    """Return a function that makes a trial of a step in a process; the pools are of one process."""
    trials: list[Trial] = []

    def make(name: str, given: dict[str, Any] | None = None, **options: Any) -> Trial:
        executor = {"name": "process", **options.pop("limits", {})}
        config = {"call": f"{FUNCTIONS}:{name}", "with": given or {}, **options.pop("config", {})}
        trial = Trial("python", config, options={"executor": executor, **options})
        settings = ExecutorSettings(process=ProcessSettings(processes=1))
        trial.services.executors = Executors(
            "local", settings, str(tmp_path), BlobStores, "agent.bootstrap:run_job"
        )
        trials.append(trial)
        return trial

    yield make


def ended(trial: Trial, *attempts: int) -> list[Outcome]:
    """Run attempts one after another in one loop, then close the pool; return their outcomes."""

    async def main() -> list[Outcome]:
        try:
            return [await trial.attempt() for _ in attempts or (1,)]
        finally:
            await trial.services.aclose()

    return run(main())


def test_the_context_works_across_the_process(process: Make) -> None:
    """Calls, checkpoints, state, snapshots, facts and the log are those of the attempt; both kinds of functions."""

    async def main() -> None:
        trial = process("uses_context", {"n": 2})
        try:
            outcome = await trial.attempt()
            assert isinstance(outcome, Succeeded), outcome
            first = outcome.output
            assert first["answer"] == {"paid": 2, "has_key": True}
            assert first["step"] == "it" and first["attempt"] == 1
            assert first["checkpoint"] == {"page": 1}
            assert trial.journal.checkpoints == [{"page": 1}]
            assert first["snapshot"] == "snapshot:3"
            assert trial.journal.statuses == [CallStatus.SUCCEEDED] * 3
            assert "printed" in trial.journal.log_text
            assert "WARNING process_functions: logged" in trial.journal.log_text
            other = process("uses_context_on_a_loop", {"n": 2})
            other.services.resources = trial.services.resources
            outcome = await other.attempt()
            assert other.journal.statuses == [CallStatus.SUCCEEDED] * 3
            assert isinstance(outcome, Succeeded), outcome
            assert outcome.output["snapshot"] == "snapshot:3"
            assert outcome.output["answer"] == {"paid": 2, "has_key": True}
            assert outcome.output["process"] == first["process"] != os.getpid()
        finally:
            await trial.services.aclose()

    run(main())


@pytest.mark.parametrize(
    ("name", "limits", "code", "text"),
    [
        ("exits", {}, "process_died", "ended its process with exit code 3"),
        ("crashes", {}, "process_died", "ended by SIGSEGV: a crash of native code"),
        ("eats_memory", {"memory": 2**28}, "memory_limit", "more memory than its limit"),
        ("computes", {"cpu_seconds": 1}, "cpu_limit", "processor time than its limit of 1 s"),
        ("opens_files", {"files": 64}, "exception", "Too many open files"),
        ("leaves_by_exception", {}, "exception", "raised SystemExit(4)"),
        ("raises", {}, "exception", "KeyError: 'amount'"),
    ],
)
def test_the_code_of_a_step_ends_that_step_only(
    process: Make, name: str, limits: dict[str, int], code: str, text: str
) -> None:
    """The attempt fails and says why; the next step gets a process that works."""

    async def main() -> None:
        trial = process(name, limits=limits)
        try:
            outcome = await trial.attempt()
            assert isinstance(outcome, Retry), outcome
            assert (outcome.error.code, outcome.is_unknown) == (code, False)
            assert text in outcome.error.message
            other = process("name_of_process")
            other.services = trial.services
            assert isinstance(await other.attempt(), Succeeded)
        finally:
            await trial.services.aclose()

    run(main())


def test_a_call_whose_process_died_is_unknown(process: Make) -> None:
    """The effect may have happened: after its time, a person is asked."""

    async def main() -> None:
        trial = process("dies_while_it_pays")
        try:
            outcome = await trial.attempt()
            assert isinstance(outcome, Retry) and outcome.is_unknown
            assert trial.journal.statuses == [CallStatus.UNKNOWN]
            waiting = await trial.attempt()
            assert isinstance(waiting, Waiting) and isinstance(waiting.on, Timer)
            trial.pass_expiry()
            waiting = await trial.attempt()
            assert isinstance(waiting, Waiting) and isinstance(waiting.on, UnknownCall)
        finally:
            await trial.services.aclose()

    run(main())


def test_a_step_that_acts_and_whose_process_died_is_unknown(process: Make) -> None:
    """Its function is its effect: it does not run again by itself."""

    async def main() -> None:
        trial = process("crashes", config={"effect": "once"})
        try:
            outcome = await trial.attempt()
            assert isinstance(outcome, Retry) and outcome.is_unknown
            assert "whether it took effect is unknown" in outcome.error.message
            assert trial.journal.statuses == [CallStatus.UNKNOWN]
            trial.pass_expiry()
            waiting = await trial.attempt()
            assert isinstance(waiting, Waiting) and isinstance(waiting.on, UnknownCall)
        finally:
            await trial.services.aclose()

    run(main())


def test_no_effect_begins_before_its_intent_is_durable(process: Make, tmp_path: Path) -> None:
    """The function of a call waits in its process for the commit of the agent."""
    trial = process("pays_into_a_file", {"path": str(tmp_path / "paid")})
    trial.journal.is_held = True

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: "about to pay" in trial.journal.log_text)
        await asyncio.sleep(0.2)
        assert not (tmp_path / "paid").exists()
        trial.signals.stop_for("canceled")
        assert isinstance(await attempt, Returned)
        await trial.services.aclose()

    run(main())
    assert not (tmp_path / "paid").exists()


def test_a_reconcile_function_runs_in_the_process(process: Make) -> None:
    """What it finds is the answer of an unknown call."""

    async def main() -> None:
        trial = process("reconciles", {"found": True})
        try:
            assert isinstance(await trial.attempt(), Retry)
            trial.pass_expiry()
            assert await trial.attempt() == Succeeded({"receipt": "found"})
            assert trial.journal.statuses == [CallStatus.SUCCEEDED]
        finally:
            await trial.services.aclose()

    run(main())


def test_a_timeout_ends_the_process_and_all_that_it_started(
    process: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children of the function end with it; its `finally` blocks run before."""
    # A busy machine may not run the process within the half second that it has.
    monkeypatch.setattr(shell, "HURRIED_SECONDS", 20.0)
    trial = process("starts_a_child", {"path": str(tmp_path / "pids")}, timeout_seconds=3.0)
    trial.services.limits = replace(trial.services.limits, kill_grace_seconds=20.0)
    outcome = ended(trial)[0]
    assert isinstance(outcome, Retry) and outcome.error.code == "timeout"
    own, child = map(int, (tmp_path / "pids").read_text().split()[:2])
    assert (tmp_path / "pids").read_text().split()[2] == "cleaned"
    deadline = time.monotonic() + 20
    while any(processes.start_time(each) for each in (own, child)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_pause_ends_the_attempt_at_its_checkpoint(process: Make) -> None:
    """`ctx.save` in the process ends the attempt when the task is being paused."""
    trial = process("saves_for_ever")

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: trial.journal.checkpoints)
        trial.signals.is_pausing = True
        outcome = await attempt
        assert isinstance(outcome, Paused) and outcome.checkpoint > 0
        await trial.services.aclose()

    run(main())


def test_steps_wait_for_a_process_and_their_time_begins_afterwards(process: Make) -> None:
    """With one process, the second step starts when the first has ended."""

    async def main() -> None:
        trial = process("sleeps", {"seconds": 1.0}, timeout_seconds=8.0)
        second = process("sleeps", {"seconds": 0.0}, timeout_seconds=8.0)
        second.services = trial.services
        try:
            outcomes = await asyncio.gather(trial.attempt(), second.attempt())
            first, last = outcomes
            assert isinstance(first, Succeeded) and isinstance(last, Succeeded), outcomes
            assert first.output == last.output
        finally:
            await trial.services.aclose()

    run(main())


def test_a_missing_module_is_named(process: Make) -> None:
    """The process loads the module; its failure is the step's."""
    trial = process("exits", config={"call": "no_such_module:f"})
    outcome = ended(trial)[0]
    assert isinstance(outcome, Failed)
    assert "no_such_module" in outcome.error.message


def test_a_process_ends_with_its_agent(process: Make) -> None:
    """When the connection closes, as after a kill of the agent, the process ends with its group."""

    async def main() -> None:
        trial = process("name_of_process")
        outcome = await trial.attempt()
        assert isinstance(outcome, Succeeded)
        pool: Any = trial.services.resources["process pool"]
        worker = pool._idle[0]
        worker._writer.close()
        await until(lambda: worker.has_ended)
        assert await worker._exit == -signal.SIGKILL
        await trial.services.aclose()

    run(main())


def test_an_unknown_executor_fails_the_step(process: Make) -> None:
    """A step is never run elsewhere than it says."""
    trial = process("name_of_process")
    trial.step.executor["name"] = "cloud"  # type: ignore[index]
    outcome = ended(trial)[0]
    assert isinstance(outcome, Failed)
    assert outcome.error.message == "there is no executor 'cloud'"


def test_a_service_manager_that_signals_all_processes_ends_no_step(process: Make) -> None:
    """The agent lets its steps finish; SIGTERM to a process of the pool changes nothing."""
    trial = process("sleeps", {"seconds": 1.0})

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: '"executor": "process"' in trial.journal.log_text)
        await asyncio.sleep(0.5)
        text = next(text for _, text in trial.journal.logs if '"process": ' in text)
        os.kill(json.loads(text)["executor"]["process"], signal.SIGTERM)
        assert isinstance(await attempt, Succeeded)
        await trial.services.aclose()

    run(main())
