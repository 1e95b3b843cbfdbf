"""The log on a terminal: one short line an event."""

from typing import Any

import pytest

from agent.core.logs.console_log import ConsoleRenderer

TASK = "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"


def _line(renderer: ConsoleRenderer | None = None, **event: Any) -> str:
    given = {"timestamp": "2026-11-18T12:00:01.5Z", "level": "info", "logger": "agent.tasks"}
    return (renderer or ConsoleRenderer(has_colours=False))(None, "", given | event)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_line_is_short() -> None:
    """Local time, the end of ids, no logger, no empty values."""
    line = _line(event="task.succeeded", task=TASK, reason=None, data={"by": TASK})
    assert line == "12:00:01  task.succeeded  task=7b6c2a10  by=7b6c2a10"


def test_values_stay_on_one_line() -> None:
    """A text with blanks is quoted; a long one is cut, except in a warning."""
    text = "the first\nthe second " + "x" * 200
    assert _line(event="e", error=text).endswith('x…"')
    assert "\n" not in _line(event="e", error=text)
    narrow = ConsoleRenderer(has_colours=False, columns=lambda: 40)
    assert len(_line(narrow, event="e", error=text)) == 40
    warning = _line(narrow, event="e", error=text, level="warning")
    assert "warning" in warning
    assert "x" * 200 in warning


def test_a_traceback_follows_its_line() -> None:
    """As it is."""
    assert _line(event="failed", level="error", exception="Traceback\n  x").endswith(
        "failed\nTraceback\n  x"
    )


def test_a_new_day_is_named_once() -> None:
    """Lines have no date: an agent that runs for days prints it when it changes."""
    renderer = ConsoleRenderer(has_colours=False)
    assert "\n" not in _line(renderer, event="a")
    assert _line(renderer, event="b", timestamp="2026-11-19T00:00:01Z").startswith("2026-11-19\n")
    assert "\n" not in _line(renderer, event="c", timestamp="2026-11-19T00:00:02Z")


def test_colours_are_for_terminals() -> None:
    """A warning is yellow there."""
    assert "\x1b[33mwarning\x1b[0m" in _line(
        ConsoleRenderer(has_colours=True), event="e", level="warning"
    )
