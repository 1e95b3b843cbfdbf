"""What an agent and a job know of each other by their objects, whatever dies in between."""

import asyncio
import json
import shutil
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.executors import JobSettings
from agent.core.clock import Clock
from agent.core.state_machine import CallStatus
from agent.core.waits import Timer, UnknownCall
from agent.steps.attempt.outcome_rules import DECLARED_DEAD, SHUTDOWN
from agent.steps.attempt.services import Execution, Services
from agent.steps.executors import job_objects, job_runner
from agent.steps.executors.job_objects import JobObjects
from agent.steps.executors.launcher import LaunchedJob
from agent.steps.executors.remote import JobStore, RemoteExecution
from agent.steps.types.outcome import Failed, Json, Outcome, Retry, Returned, Succeeded, Waiting
from agent.store.artifacts import objects as store_objects
from agent.store.artifacts.blobs import BlobStores
from tests.support import faulty_store
from tests.support.attempt import PATIENCE_SECONDS, HandClock, Trial, run, until

OnLaunch = Callable[[LaunchedJob], Awaitable[None]]


class MonotonicClock(HandClock):
    """A clock whose monotonic time a test moves on too."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return Clock.monotonic(self) + self.ahead_seconds


class HandLauncher:
    """Launches what the test says, in this process."""

    knows_ends = False

    def __init__(self) -> None:
        self.jobs: list[LaunchedJob] = []
        self.intents_at_launch: list[int] = []
        self.canceled: list[str] = []
        self.on_launch: OnLaunch | None = None
        self.end: str | None = None
        self.trial: Trial

    async def ready(self) -> None: ...

    async def launch(self, job: LaunchedJob) -> dict[str, Any]:
        self.intents_at_launch.append(len(self.trial.journal.intents))
        self.jobs.append(job)
        if self.on_launch is not None:
            await self.on_launch(job)
        return {}

    async def end_of(self, _: LaunchedJob) -> str | None:
        return self.end

    async def cancel(self, job: LaunchedJob) -> None:
        self.canceled.append(job.name)

    async def release(self, _: LaunchedJob) -> None: ...


class JobExecutors:
    """Runs every step as a job of a launcher."""

    def __init__(self, launcher: HandLauncher, settings: JobSettings, directory: Path) -> None:
        self._launcher = launcher
        self._settings = settings
        self.store = JobStore(str(directory), BlobStores())

    def open(
        self, kind: str, executor: Mapping[str, Json] | None, services: Services
    ) -> Execution | None:
        return RemoteExecution("job", kind, {}, self._launcher, self._settings, self.store)


Launching = tuple[Trial, HandLauncher]


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., Launching]:
    """Return a function that makes a trial of a `shell` step that runs as a job."""

    def make(script: str = "echo done", **options: Any) -> Launching:
        effect = options.pop("effect", None)
        config: dict[str, Json] = {"script": script}
        if effect:
            config["effect"] = effect
        settings = JobSettings(
            poll_seconds=0.02,
            status_seconds=0.05,
            **{"start_seconds": 30.0, "heartbeat_seconds": 30.0, **options},
        )
        trial = Trial("shell", config, options={"executor": {"name": "job"}})
        trial.clock = MonotonicClock()
        trial.services.clock = trial.clock
        launcher = HandLauncher()
        launcher.trial = trial
        trial.services.executors = JobExecutors(launcher, settings, tmp_path / "jobs")
        return trial, launcher

    return make


async def run_here(job: LaunchedJob) -> None:
    """Run a job in this process, to its end."""
    await job_runner.run(job.objects)


async def never(_: LaunchedJob) -> None:
    """Launch nothing: the job is lost on its way."""


async def begin_elsewhere(job: LaunchedJob) -> None:
    """Begin a job on another machine, which stays silent after its first status."""
    job.objects.create(job_objects.BEGUN, {"by": "job"})
    write_status(job.objects, 1, "running")


def write_status(objects: JobObjects, sequence: int, state: str, **facts: Json) -> None:
    """Write the status of a job."""
    status = {"sequence": sequence, "state": state, "logs": 0, "process": {}, **facts}
    objects.write(job_objects.STATUS, status)


async def lose(trial: Trial, when: Callable[[], object]) -> None:
    """Lose an attempt once something is so, as when its agent is killed."""
    attempt = asyncio.ensure_future(trial.attempt())
    await until(when)
    trial.signals.is_stopping = True
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    # A kill records nothing.
    trial.journal.results.clear()
    trial.crash()


def error_of(outcome: Outcome) -> str:
    """Return the message of a failed attempt."""
    assert isinstance(outcome, Retry | Failed), outcome
    return outcome.error.message


def test_the_intent_is_durable_before_the_job_is_launched(
    shell: Callable[..., Launching],
) -> None:
    """A crash after the launch must leave a record of the job."""
    trial, launcher = shell()
    launcher.on_launch = run_here
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output == {"exit_code": 0, "stdout": "done\n", "stderr": ""}
    assert launcher.intents_at_launch == [1]
    assert trial.journal.log_text.endswith("done")


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_a_job_waits_for_a_store_that_does_not_answer(
    shell: Callable[..., Launching], how: str
) -> None:
    """Nothing is recorded or launched before it answers, and no attempt is used up."""
    trial, launcher = shell()
    launcher.on_launch = run_here
    executors = trial.services.executors
    assert isinstance(executors, JobExecutors)
    executors.store = JobStore(faulty_store.URL, BlobStores(timeout_seconds=0.3))
    with faulty_store.broken(how):
        outcome = run(trial.attempt())
    assert isinstance(outcome, Waiting)
    assert isinstance(outcome.on, Timer)
    assert "faulty://bucket" in (outcome.on.store_error or "")
    assert (launcher.jobs, trial.journal.intents) == ([], [])
    executors.store = JobStore(faulty_store.URL, BlobStores())
    assert isinstance(run(trial.attempt()), Succeeded)


def test_a_job_that_has_begun_does_not_begin_again(
    shell: Callable[..., Launching], tmp_path: Path
) -> None:
    """A launcher that runs a job twice gets one run and one refusal."""
    trial, launcher = shell(f"echo ran >> {tmp_path}/runs")
    codes: list[int] = []

    async def twice(job: LaunchedJob) -> None:
        codes.extend([await job_runner.run(job.objects) for _ in range(2)])

    launcher.on_launch = twice
    assert isinstance(run(trial.attempt()), Succeeded)
    assert codes == [0, 1]
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_the_output_is_written_before_the_final_status(
    shell: Callable[..., Launching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that reads that a job succeeded finds its output."""
    trial, launcher = shell()
    written: list[str] = []
    write = store_objects.write

    def recorded(address: str, data: bytes, options: Any = None) -> None:
        name = address.rpartition("/")[2]
        state = json.loads(data).get("state") if name == job_objects.STATUS else None
        written.append(state or name)
        write(address, data, options)

    monkeypatch.setattr(store_objects, "write", recorded)
    launcher.on_launch = run_here
    run(trial.attempt())
    assert written.index(job_objects.OUTPUT) < written.index("succeeded")
    assert written[0] == job_objects.SPEC


def test_a_job_that_never_starts_is_kept_from_starting_late(
    shell: Callable[..., Launching], tmp_path: Path
) -> None:
    """The agent creates `begun` itself before it gives the job up, and the late job refuses."""
    trial, launcher = shell(f"echo ran >> {tmp_path}/runs", start_seconds=0.2)
    launcher.on_launch = never

    async def main() -> None:
        outcome = await trial.attempt()
        assert error_of(outcome) == "job never started: it did not begin within 0.2 s"
        assert isinstance(outcome, Retry) and not outcome.is_unknown
        assert trial.journal.statuses == [CallStatus.FAILED]
        assert await job_runner.run(launcher.jobs[0].objects) == 1
        assert not (tmp_path / "runs").exists()
        launcher.on_launch = run_here
        assert isinstance(await trial.attempt(), Succeeded)

    run(main())
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_launcher_that_fails_is_a_job_that_never_started(
    shell: Callable[..., Launching],
) -> None:
    """Its own words are the error, and nothing waits for a job."""
    trial, launcher = shell()
    launcher.on_launch, launcher.end = never, "its command ended with exit code 2: no such queue"
    expected = "job never started: its command ended with exit code 2: no such queue"
    assert error_of(run(trial.attempt())) == expected


class CountedReads:
    """Counts the readings of the store, which may be away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.is_away = False
        self._read = store_objects.read
        monkeypatch.setattr(store_objects, "read", self._counted)

    def _counted(self, address: str, options: Any = None) -> bytes | None:
        self.count += 1
        if self.is_away:
            raise OSError("no route to host")
        return self._read(address, options)

    async def go_on(self) -> None:
        """Wait until what was read before this was acted on: one reading after the next has begun."""
        last = self.count
        await until(lambda: self.count >= last + 3)


def test_silence_is_measured_by_the_monotonic_clock(
    shell: Callable[..., Launching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is set forward loses no job; a status that stays the same does."""
    trial, launcher = shell(effect="none")
    reads = CountedReads(monkeypatch)
    launcher.on_launch = begin_elsewhere
    clock = trial.clock
    assert isinstance(clock, MonotonicClock)

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: launcher.jobs)
        for number in range(2, 6):
            clock.advance(3600)
            write_status(launcher.jobs[0].objects, number, "running")
            clock.ahead_seconds += 20
            await reads.go_on()
        clock.advance(3600)
        await reads.go_on()
        assert launcher.jobs[0].objects.read(job_objects.CONTROL) is None, "it is asked to stop"
        clock.ahead_seconds += 31
        outcome = await attempt
        assert error_of(outcome) == ("heartbeat timeout: the job's status has not changed for 30 s")
        assert launcher.canceled == [launcher.jobs[0].name]

    trial.limits = trial.services.limits
    run(main())


def test_a_silent_effect_is_unknown_and_a_person_is_asked(
    shell: Callable[..., Launching],
) -> None:
    """It may have happened, so it is never launched again by itself."""
    trial, launcher = shell(heartbeat_seconds=0.5)
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        outcome = await trial.attempt()
        assert isinstance(outcome, Retry) and outcome.is_unknown
        assert error_of(outcome).startswith("heartbeat timeout: ")
        _, intent = trial.journal.intents[0]
        assert await trial.attempt() == Waiting(UnknownCall(intent.call_id))
        assert len(launcher.jobs) == 1

    run(main())


def test_a_job_that_has_ended_without_a_result_is_not_waited_for(
    shell: Callable[..., Launching],
) -> None:
    """No process is left that could stop: the attempt is lost at once, and the launcher cleans up."""
    trial, launcher = shell(effect="none")
    launcher.knows_ends = True
    launcher.end = "its node is gone"
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        assert error_of(await trial.attempt()) == "the job is lost: its node is gone"
        assert launcher.jobs[0].objects.read(job_objects.CONTROL) is None, "it is asked to stop"
        assert launcher.canceled == [launcher.jobs[0].name]

    run(main())


def test_a_store_that_does_not_answer_is_no_silence_of_the_job(
    shell: Callable[..., Launching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only time between two answers of the store counts."""
    trial, launcher = shell(effect="none")
    launcher.on_launch = begin_elsewhere
    clock = trial.clock
    assert isinstance(clock, MonotonicClock)
    reads = CountedReads(monkeypatch)

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: launcher.jobs)
        await reads.go_on()
        reads.is_away = True
        await reads.go_on()
        clock.ahead_seconds += 100
        await reads.go_on()
        reads.is_away = False
        await reads.go_on()
        assert launcher.jobs[0].objects.read(job_objects.CONTROL) is None, "it is asked to stop"
        write_status(launcher.jobs[0].objects, 2, "failed", error=ERROR, may_retry=True)
        assert error_of(await attempt) == "it broke"

    run(main())


ERROR = {"code": "exit_code", "class": "remote", "message": "it broke"}


def test_the_next_attempt_finds_a_job_that_outlived_its_agent(
    shell: Callable[..., Launching],
) -> None:
    """It waits for the same job and records its result; nothing is launched again."""
    trial, launcher = shell()
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        await lose(trial, lambda: _launched(launcher))
        attempt = asyncio.ensure_future(trial.attempt())
        await asyncio.sleep(0.1)
        objects = launcher.jobs[0].objects
        write_status(objects, 2, "running")
        await asyncio.sleep(0.1)
        assert not attempt.done()
        objects.write(job_objects.OUTPUT, {"output": {"exit_code": 0}})
        write_status(objects, 3, "succeeded")
        outcome = await attempt
        assert isinstance(outcome, Succeeded) and outcome.output == {"exit_code": 0}
        assert trial.journal.statuses == [CallStatus.SUCCEEDED]
        assert len(launcher.jobs) == 1

    run(main())


def _launched(launcher: HandLauncher) -> bool:
    return bool(launcher.jobs) and launcher.jobs[0].objects.read(job_objects.LAUNCHED) is not None


def test_a_final_failure_of_a_found_job_is_a_result(shell: Callable[..., Launching]) -> None:
    """A command that failed for good while no agent ran is not launched again."""
    trial, launcher = shell()
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        await lose(trial, lambda: _launched(launcher))
        status = {"error": ERROR, "may_retry": False}
        write_status(launcher.jobs[0].objects, 2, "failed", **status)
        outcome = await trial.attempt()
        assert isinstance(outcome, Failed) and error_of(outcome) == "it broke"
        assert trial.journal.statuses == [CallStatus.FAILED]
        assert isinstance(await trial.attempt(), Failed)
        assert len(launcher.jobs) == 1

    run(main())


def test_an_agent_that_dies_before_the_launch_loses_nothing(
    shell: Callable[..., Launching],
) -> None:
    """The next attempt keeps the job from beginning, and launches another."""
    trial, launcher = shell()

    async def hang(_: LaunchedJob) -> None:
        await asyncio.Event().wait()

    launcher.on_launch = hang

    async def main() -> None:
        await lose(trial, lambda: launcher.jobs)
        outcome = await trial.attempt()
        assert error_of(outcome) == "job never started: its agent ended before it was launched"
        assert await job_runner.run(launcher.jobs[0].objects) == 1
        launcher.on_launch = run_here
        assert isinstance(await trial.attempt(), Succeeded)
        assert trial.journal.statuses == [CallStatus.FAILED, CallStatus.SUCCEEDED]

    run(main())


@pytest.mark.parametrize("effect", [None, "none"])
def test_a_job_of_which_nothing_is_left_is_unknown_if_it_acts(
    shell: Callable[..., Launching], effect: str | None, tmp_path: Path
) -> None:
    """Objects may have been removed: an effect is asked about, other work is done again."""
    trial, launcher = shell(effect=effect)
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        await lose(trial, lambda: _launched(launcher))
        shutil.rmtree(tmp_path / "jobs")
        outcome = await trial.attempt()
        if effect is None:
            _, intent = trial.journal.intents[0]
            assert outcome == Waiting(UnknownCall(intent.call_id))
        else:
            assert error_of(outcome) == "job never started: the store has no object of it"
        assert len(launcher.jobs) == 1

    run(main())


def test_a_retried_task_finds_the_job_of_the_task_before(
    shell: Callable[..., Launching],
) -> None:
    """An inherited call has another id: the key that it shares with the first one leads to the job."""
    trial, launcher = shell()
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        await lose(trial, lambda: _launched(launcher))
        objects = launcher.jobs[0].objects
        objects.write(job_objects.OUTPUT, {"output": "found"})
        write_status(objects, 2, "succeeded")
        attempt, intent = trial.journal.intents[0]
        trial.journal.intents[0] = (0, replace(intent, call_id="inherited"))
        assert attempt == 1
        outcome = await trial.attempt()
        assert isinstance(outcome, Succeeded) and outcome.output == "found"

    run(main())


@pytest.mark.parametrize("reason", [SHUTDOWN, DECLARED_DEAD])
def test_an_agent_that_ends_leaves_the_job_alone(
    shell: Callable[..., Launching], reason: str
) -> None:
    """Its call stays as it is, and the next agent finds the job; a shutdown costs no attempt."""
    trial, launcher = shell()
    launcher.on_launch = begin_elsewhere

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: _launched(launcher))
        trial.signals.stop_for(reason)
        outcome = await attempt
        assert isinstance(outcome, Waiting) and isinstance(outcome.on, Timer)
        assert launcher.jobs[0].objects.read(job_objects.CONTROL) is None
        objects = launcher.jobs[0].objects
        objects.write(job_objects.OUTPUT, {"output": 1})
        write_status(objects, 2, "succeeded")
        assert isinstance(await trial.attempt(), Succeeded)
        assert trial.attempt_number == 1

    run(main())


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_canceled_attempt_stops_its_job(
    shell: Callable[..., Launching], monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    """The job reads that it should stop, ends its command, and says so; also before its launch is recorded."""
    trial, launcher = shell("sleep 60", effect="none")
    codes: list[int] = []
    running: list[asyncio.Future[None]] = []
    may_record = threading.Event()
    write = JobObjects.write

    def write_late(objects: JobObjects, name: str, document: Any) -> None:
        if name == job_objects.LAUNCHED:
            may_record.wait(PATIENCE_SECONDS)
        write(objects, name, document)

    monkeypatch.setattr(JobObjects, "write", write_late)
    if is_recorded:
        may_record.set()

    async def beside(job: LaunchedJob) -> None:
        async def body() -> None:
            codes.append(await job_runner.run(job.objects))

        running.append(asyncio.ensure_future(body()))

    launcher.on_launch = beside

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: launcher.jobs and _state(launcher) == "running")
        if is_recorded:
            await until(lambda: _launched(launcher))
        trial.signals.stop_for("canceled")
        outcome = await attempt
        may_record.set()
        assert isinstance(outcome, Returned | Retry)
        await until(lambda: codes)
        assert codes == [1]
        assert _state(launcher) == "canceled"

    run(main())


def test_an_attempt_that_is_canceled_while_it_finds_its_job_stops_it(
    shell: Callable[..., Launching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is slow, and the job runs: without a word it would run to its end."""
    trial, launcher = shell()
    launcher.on_launch = begin_elsewhere
    is_asked, may_answer = threading.Event(), threading.Event()
    read = JobObjects.read

    def read_late(objects: JobObjects, name: str) -> Any:
        if name == job_objects.LAUNCHED:
            is_asked.set()
            may_answer.wait(PATIENCE_SECONDS)
        return read(objects, name)

    async def main() -> None:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(lambda: _launched(launcher))
        trial.signals.stop_for(SHUTDOWN)
        assert isinstance(await attempt, Waiting)
        monkeypatch.setattr(JobObjects, "read", read_late)
        attempt = asyncio.ensure_future(trial.attempt())
        await until(is_asked.is_set)
        trial.signals.stop_for("canceled")
        assert isinstance(await attempt, Returned | Retry)
        may_answer.set()
        assert read(launcher.jobs[0].objects, job_objects.CONTROL) == {"cancel": True}

    run(main())


def _state(launcher: HandLauncher) -> str | None:
    status = launcher.jobs[0].objects.read(job_objects.STATUS)
    return None if status is None else str(status["state"])
