"""Pieces of logs as text: a whole page at a time, since a log may have hundreds of thousands of lines."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from agent.cli.output import terminal

Piece = dict[str, Any]


def text_of(pieces: Sequence[Piece], *, has_steps: bool, has_times: bool) -> str:
    """Return pieces as lines, each led by its time and its step where those are wanted."""
    led_by = itemgetter("step", "attempt", "stream", *(("at",) if has_times else ()))
    texts = []
    for (step, attempt, stream, *times), run in groupby(pieces, led_by):
        # One text for a run of pieces: most pieces are one line.
        text = terminal.harmless("\n".join([piece["text"].rstrip("\n") for piece in run]))
        lead = "".join(f"{local_time(at)}  " for at in times)
        if has_steps:
            lead += _step(step, attempt)
        if lead:
            text = lead + text.replace("\n", f"\n{lead}")
        texts.append(terminal.styled(text, "dim") if stream == "stderr" else text)
    texts.append("")
    return "\n".join(texts)


def last_lines(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """Return the pieces that hold the last lines; the first of them may be cut."""
    kept: list[Piece] = []
    for piece in reversed(pieces):
        lines = piece["text"].rstrip("\n").split("\n")
        if len(lines) >= count:
            return [{**piece, "text": "\n".join(lines[len(lines) - count :])}, *reversed(kept)]
        count -= len(lines)
        kept.append(piece)
    return list(reversed(kept))


def line_count(pieces: Sequence[Piece]) -> int:
    """Return how many lines pieces have."""
    return sum(piece["text"].rstrip("\n").count("\n") + 1 for piece in pieces)


def local_time(instant: str) -> str:
    """Return an ISO instant in local time: `2026-11-18 05:31:15.250`."""
    return f"{_local_second(instant[:19])}{instant[19:23]}"


@lru_cache(maxsize=256)
def _step(name: str, attempt: int) -> str:
    return f"{name} (attempt {attempt}) | " if attempt > 1 else f"{name} | "


@lru_cache(maxsize=64)
def _local_second(instant: str) -> str:
    """Return the second of an instant in local time: `2026-11-18 05:31:15`."""
    there = datetime.fromisoformat(f"{instant}+00:00").astimezone()
    return there.strftime("%Y-%m-%d %H:%M:%S")
