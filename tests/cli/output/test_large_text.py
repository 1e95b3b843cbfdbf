"""Large values are cut to the screen, and whole where there is none."""

import pytest

from agent.cli.output import large_text


def test_a_text_that_fits_is_whole() -> None:
    """Also one that ends in a line break."""
    assert large_text.fitting("one\ntwo\n", 80, 24) == "one\ntwo\n"


def test_lines_and_long_lines_are_cut() -> None:
    """A long line takes several rows of the screen."""
    rows = large_text.fitting("\n".join(map(str, range(100))), 80, 24).split("\n")
    assert rows == [str(number) for number in range(12)]
    assert large_text.fitting("x" * 10_000, 80, 24) == "x" * (12 * 80 - 1) + "…"
    assert large_text.fitting("short\n" + "x" * 10_000, 10, 5) == "short\n" + "x" * 89 + "…"


def test_a_pipe_gets_the_whole_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read it."""
    large_text.print_value({"a": list(range(500))}, "show 1")
    out = capsys.readouterr().out
    assert "499" in out
    assert "--output" not in out
