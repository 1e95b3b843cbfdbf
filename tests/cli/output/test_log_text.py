"""Logs as text: a page at a time, with steps, attempts and times."""

from typing import Any

import pytest

from agent.cli.output import log_text


def _piece(text: str, **more: Any) -> dict[str, Any]:
    at = "2026-11-18T04:31:15.123Z"
    return {"id": 1, "step": "get", "attempt": 1, "at": at, "stream": "stdout", "text": text} | more


def test_each_line_names_its_step_and_a_later_attempt() -> None:
    """A piece may have several lines; the first attempt needs no number."""
    pieces = [_piece("one\ntwo\n"), _piece("three\n", attempt=2), _piece("\n")]
    assert log_text.text_of(pieces, has_steps=True, has_times=False) == (
        "get | one\nget | two\nget (attempt 2) | three\nget | \n"
    )
    assert log_text.text_of(pieces[:1], has_steps=False, has_times=False) == "one\ntwo\n"


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the date, and to the millisecond."""
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    log_text._local_second.cache_clear()
    try:
        text = log_text.text_of([_piece("one\ntwo")], has_steps=False, has_times=True)
    finally:
        monkeypatch.undo()
        time.tzset()
        log_text._local_second.cache_clear()
    assert text == "2026-11-18 13:31:15.123  one\n2026-11-18 13:31:15.123  two\n"


def test_control_characters_are_escaped() -> None:
    """In the page that has one, and without a change to others."""
    pieces = [_piece("fine"), _piece("a\x1b]0;title\x07b")]
    text = log_text.text_of(pieces, has_steps=False, has_times=False)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.startswith("fine\na")


def test_the_last_lines_may_begin_within_a_piece() -> None:
    """Lines are counted, not pieces."""
    pieces = [_piece("1\n2\n3\n", id=1), _piece("4\n5\n", id=2)]
    assert log_text.line_count(pieces) == 5
    assert [piece["text"] for piece in log_text.last_lines(pieces, 3)] == ["3", "4\n5\n"]
    assert [piece["text"] for piece in log_text.last_lines(pieces, 2)] == ["4\n5"]
    assert [piece["text"] for piece in log_text.last_lines(pieces, 9)] == ["1\n2\n3\n", "4\n5\n"]
