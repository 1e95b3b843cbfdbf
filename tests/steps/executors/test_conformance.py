"""What every executor does, with a real agent and real processes; `make conformance` adds the clusters."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.conformance import CLUSTERS, EXECUTORS, JOBS, Place, background, has_ended
from tests.support.free_port import free_port

pytestmark = pytest.mark.process

WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, str]]:
    """Return the addresses of a Ray and a Dask cluster on this machine, where they are asked for."""
    with ExitStack() as stack:
        yield _start_clusters(stack) if CLUSTERS else {}


def _start_clusters(stack: ExitStack) -> dict[str, str]:
    python = Path(sys.executable).parent
    ray_port, dask_port = free_port(), free_port()
    head = [str(python / "ray"), "start", "--head", "--block", "--num-cpus=4"]
    head += [f"--port={ray_port}", "--include-dashboard=false", "--disable-usage-stats"]
    stack.enter_context(background(*head))
    scheduler = f"tcp://127.0.0.1:{dask_port}"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    stack.enter_context(
        background(*dask, "--host", "127.0.0.1", "--port", str(dask_port), "--no-dashboard")
    )
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler]
    stack.enter_context(background(*worker, "--nthreads", "4", "--no-dashboard"))
    for port in (ray_port, dask_port):
        _wait_for_port(port)
    return {"ray": f"127.0.0.1:{ray_port}", "dask": scheduler}


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on port {port}")


@pytest.fixture(scope="module", params=EXECUTORS)
def place(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    clusters: dict[str, str],
) -> Iterator[Place]:
    """Return an agent whose steps run by one executor."""
    found = Place(request.param, tmp_path_factory.mktemp(request.param), clusters)
    yield found
    found.stop()
    report = found.cli.run_any("doctor", "--deep", "--json").json
    errors = [each for each in report["findings"] if each["state"] == "error"]
    assert errors == [], errors


def ends(process_ids: list[int]) -> bool:
    """Wait for the end of processes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(map(has_ended, process_ids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_step_succeeds_with_a_large_output_and_its_log(place: Place) -> None:
    """The function gets its arguments and its context; its output and its lines are recorded."""
    task_id = place.run("works", "python", '{call: "functions:works", with: {n: 3}}')
    place.ended(task_id, "succeeded", "failed")
    step = place.inspect(task_id)
    assert step["status"] == "succeeded", step["error"]
    expected = {"n": 3, "step": "it", "attempt": 1, "item": "one", "large": "x" * 300_000}
    assert step["output"] == expected
    log = place.log(task_id)
    assert "printed 3" in log
    assert "WARNING conformance: logged" in log
    assert "written" in log
    executor = step["attempts"][0]["executor"]
    if place.executor == "local":
        assert executor is None
    else:
        assert executor["executor"] == place.executor
        assert not has_ended(executor["process"]) or place.executor in JOBS


def test_a_shell_step_returns_what_its_command_wrote(place: Place) -> None:
    """A command runs where the step says, and its exit code and output are the step's."""
    task_id = place.run("command", "shell", "{script: 'echo out; echo err >&2', effect: none}")
    step = place.ended(task_id, "succeeded", "failed")
    assert step["output"] == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}, step


def test_an_exception_fails_the_step_with_its_traceback(place: Place) -> None:
    """The error is the exception's, and the log has the frames of the step's code."""
    task_id = place.run("fails", "python", "functions:fails")
    step = place.ended(task_id)
    assert step["error"]["message"] == "ValueError: this does not work"
    assert 'raise ValueError("this does not work")' in place.log(task_id)


def test_a_step_that_takes_too_long_is_stopped(place: Place) -> None:
    """The time limit ends the step's code, not only its attempt."""
    config = '{call: "functions:sleeps", with: {name: slow}}'
    # A job's time begins with its launch.
    seconds = 15 if place.executor in JOBS else 2
    task_id = place.run("slow", "python", config, more=f"timeout: {seconds}s")
    step = place.ended(task_id)
    assert step["error"]["code"] == "timeout"
    assert f"longer than {seconds} s" in step["error"]["message"]
    assert step["error"]["message"].startswith("execution timeout") == (place.executor in JOBS)
    process_ids = place.noted("slow")
    assert place.executor == "local" or ends(process_ids)
    assert place.times("slow-awake") == 0


def test_a_canceled_step_is_stopped(place: Place) -> None:
    """A cancel ends the step's code."""
    task_id = place.run("cancel", "python", '{call: "functions:sleeps", with: {name: cancel}}')
    process_ids = place.noted("cancel")
    place.cli("cancel", task_id)
    place.ended(task_id, "canceled")
    assert place.executor == "local" or ends(process_ids)
    assert place.times("cancel-awake") == 0


def test_a_paused_step_stops_at_its_checkpoint_and_goes_on_from_there(place: Place) -> None:
    """A pause ends the attempt at its next checkpoint; the next one begins with that value."""
    task_id = place.run("counts", "python", '{call: "functions:counts", with: {name: counts}}')
    place.noted("counts")
    place.cli("pause", task_id)
    deadline = time.monotonic() + WAIT_SECONDS
    while place.inspect(task_id)["status"] != "paused":
        assert time.monotonic() < deadline, place.inspect(task_id)
        time.sleep(0.1)
    place.say("proceed")
    place.cli("resume", task_id)
    step = place.ended(task_id, "succeeded", "failed")
    assert step["output"] == {"done": 5, "began_at": 5}, step
    assert place.times("counts") == 2


def test_a_step_whose_process_is_killed_is_tried_again(place: Place) -> None:
    """Only that attempt is lost, with an error that says so."""
    if place.executor == "local":
        pytest.skip("a local step has no process of its own")
    config = '{call: "functions:dies_once", with: {name: killed}}'
    task_id = place.run("killed", "python", config, attempts=2)
    os.kill(place.noted("killed")[0], signal.SIGKILL)
    step = place.ended(task_id, "succeeded", "failed")
    assert step["output"] == "alive", step
    first = place.inspect(task_id)["attempts"][0]
    assert "SIGKILL" in first["error"]["message"]


def test_an_effect_whose_process_is_killed_is_unknown(place: Place) -> None:
    """A person is asked: it may have happened."""
    if place.executor == "local":
        pytest.skip("a local step has no process of its own")
    config = '{call: "functions:acts", with: {name: acted}, effect: once}'
    task_id = place.run("acted", "python", config, attempts=3)
    os.kill(place.noted("acted")[0], signal.SIGKILL)
    place.asked(task_id)
    assert place.times("acted") == 1
    place.cli("resolve", task_id, "it", "--done", "--output", '"by hand"')
    assert place.ended(task_id, "succeeded")["output"] == "by hand"
    assert place.times("acted") == 1


def test_a_kill_of_the_agent_leaves_nothing_done_twice(place: Place) -> None:
    """A job goes on and its result is found again; elsewhere the effect is unknown, and its code ends."""
    config = '{call: "functions:acts_slowly", with: {name: survivor}, effect: once}'
    task_id = place.run("survivor", "python", config, attempts=3)
    process_ids = place.noted("survivor")
    place.kill()
    if place.executor in JOBS:
        assert not has_ended(process_ids[0])
        place.start()
        place.say("finish")
        step = place.ended(task_id, "succeeded", "waiting", "failed")
        assert step["output"] == {"acted": "survivor"}, step
    else:
        place.start()
        place.asked(task_id)
        assert ends(process_ids)
        assert place.times("survivor-done") == 0
    assert place.times("survivor") == 1


def test_a_stop_of_the_agent_costs_a_job_no_attempt(place: Place) -> None:
    """The step waits while no agent runs; the next one finds the job, in the same attempt."""
    if place.executor not in JOBS:
        pytest.skip("other executors end with their agent")
    (place.notes / "finish").unlink(missing_ok=True)
    config = '{call: "functions:acts_slowly", with: {name: patient}}'
    task_id = place.run("patient", "python", config, attempts=1)
    place.noted("patient")
    place.stop()
    place.say("finish")
    place.start()
    step = place.ended(task_id, "succeeded", "failed")
    assert step["output"] == {"acted": "patient"}, step
    assert step["attempt"] == 1
    assert place.times("patient") == 1
