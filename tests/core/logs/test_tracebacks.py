"""A traceback in a step's log has the frames of the step's own code."""

import json
from pathlib import Path

from agent.core.logs.tracebacks import user_traceback
from agent.steps.attempt import containment


def _raised(function: object) -> BaseException:
    try:
        containment.call("it", function)  # type: ignore[arg-type]
    except Exception as problem:
        return problem
    raise AssertionError("it raises")


def test_engine_and_library_frames_are_left_out() -> None:
    """Only the frames of this file stay, with the exception's text."""

    def parse() -> None:
        json.loads("{bad")

    text = user_traceback(_raised(parse))
    frames = [line for line in text.splitlines() if line.startswith("  File ")]
    assert frames and all(Path(__file__).name in frame for frame in frames)
    assert text.rstrip().endswith("line 1 column 2 (char 1)")


def test_causes_and_groups_are_filtered_too() -> None:
    """What an exception was raised from, and what it gathers, is shown in the same way."""

    def parse() -> None:
        try:
            json.loads("{bad")
        except ValueError as problem:
            raise ExceptionGroup("several", [RuntimeError("one"), problem]) from problem

    text = user_traceback(_raised(parse))
    assert "decoder.py" not in text and "containment.py" not in text
    assert "RuntimeError: one" in text and "direct cause" in text


def test_a_function_of_a_library_keeps_its_frames() -> None:
    """Where no frame is the author's own, those outside the engine stay."""
    text = user_traceback(_raised(json.JSONDecoder().decode))
    assert "TypeError" in text
    assert "containment.py" not in text


def test_a_broken_exception_has_no_traceback() -> None:
    """An exception whose own methods raise does not fail the attempt differently."""

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert "BrokenError" in user_traceback(BrokenError())
