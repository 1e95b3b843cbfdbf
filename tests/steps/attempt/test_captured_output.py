# ruff: noqa: T201 - what is printed is what is tested
"""`print` and `logging` of a step's code go to its own log, and nothing else does."""

import asyncio
import io
import logging
import sys
import threading
from typing import Any

import pytest

from agent.steps.attempt.captured_output import captured, capturing
from agent.steps.attempt.services import Limits
from agent.steps.types.outcome import Succeeded
from tests.support.attempt import Trial, python, run

log = logging.getLogger("a_users_module")


def _attempt(trial: Trial) -> None:
    with capturing():
        assert isinstance(run(trial.attempt()), Succeeded)


def test_what_a_function_prints_is_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Whole lines are logged by stream, the last one also without a newline; the process prints nothing."""

    def speak() -> None:
        print("one\ntwo")
        print("three", end=" ")
        print("words")
        print("four", file=sys.stderr, end="")

    trial = python(speak)
    _attempt(trial)
    assert trial.journal.logs == [
        ("stdout", "one"),
        ("stdout", "two"),
        ("stdout", "three words"),
        ("stderr", "four"),
    ]
    assert capsys.readouterr() == ("", "")


def test_log_records_from_info_on_are_the_steps(caplog: pytest.LogCaptureFixture) -> None:
    """Records of a step's code are in its log, and not in the log of the process."""

    def speak() -> None:
        log.debug("hidden")
        log.info("an %s", "info")
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("it failed")

    trial = python(speak)
    _attempt(trial)
    streams = {stream for stream, _ in trial.journal.logs}
    assert streams == {"log"}
    assert "INFO a_users_module: an info" in trial.journal.log_text
    assert "ERROR a_users_module: it failed\nTraceback" in trial.journal.log_text
    assert "hidden" not in trial.journal.log_text
    assert not caplog.records


def test_the_engines_own_records_stay_the_engines(caplog: pytest.LogCaptureFixture) -> None:
    """A line of the engine that is written while a step's code runs is the daemon's."""

    async def speak() -> None:
        logging.getLogger("agent.steps.something").warning("mine")

    trial = python(speak)
    _attempt(trial)
    assert trial.journal.logs == []
    assert [record.message for record in caplog.records] == ["mine"]


def test_steps_that_run_beside_each_other_do_not_mix() -> None:
    """Two threads and two coroutines print in turns; each has its own lines only."""
    turns = threading.Barrier(2)

    def in_thread(name: str) -> None:
        for number in range(5):
            turns.wait(30)
            print(f"{name} {number}")

    async def on_loop(name: str) -> None:
        for number in range(5):
            print(f"{name} {number}")
            await asyncio.sleep(0)

    trials = {
        name: python(function, config={"with": {"name": name}})
        for function in (in_thread, on_loop)
        for name in (f"{function.__name__} a", f"{function.__name__} b")
    }

    async def together() -> None:
        await asyncio.gather(*(trial.attempt() for trial in trials.values()))

    with capturing():
        run(together())
    for name, trial in trials.items():
        assert trial.journal.log_text.split("\n") == [f"{name} {n}" for n in range(5)]


def test_code_outside_of_steps_prints_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the code of a step is captured, and only while a worker runs."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    root = logging.getLogger()
    before = (root.level, list(root.handlers), [handler.level for handler in root.handlers])
    taken: list[Any] = []
    with capturing():
        print("outside")
        with captured(lambda name, text: taken.append((name, text))):
            print("inside")
        with capturing():
            pass
        print("still outside")
        assert sys.stdout is not stream
    assert sys.stdout is stream
    assert stream.getvalue() == "outside\nstill outside\n"
    assert taken == [("stdout", "inside")]
    after = (root.level, list(root.handlers), [handler.level for handler in root.handlers])
    assert after == before


def test_a_secret_that_is_printed_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured output goes through the redaction of the step's log."""
    monkeypatch.setenv("PRINTED_SECRET", "open-sesame-4711")
    from agent.steps.attempt.secrets import secret_watcher

    secret_watcher.add([{"secret": "env:PRINTED_SECRET"}])

    def speak() -> None:
        print("the word is open-sesame-4711")

    trial = python(speak)
    _attempt(trial)
    assert "sesame" not in trial.journal.log_text
    assert "the word is" in trial.journal.log_text


def test_the_log_of_an_attempt_has_a_limit() -> None:
    """A step that prints without end fills its log up to the limit only."""

    def speak() -> None:
        for _ in range(1000):
            print("x" * 100)

    trial = python(speak, limits=Limits(log_bytes=1050))
    _attempt(trial)
    assert len(trial.journal.log_text) < 1200
    assert "it reached its limit" in trial.journal.log_text


def test_a_router_outlives_its_worker() -> None:
    """`print` in another thread may still use it: freeing it would crash the process."""
    with capturing():
        first = sys.stdout
    with capturing():
        assert sys.stdout is first
