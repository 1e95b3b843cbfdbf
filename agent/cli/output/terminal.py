"""Printing: consoles, status marks, times, short ids, tables, JSON."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from agent.core.escape import harmless as escaped
from agent.core.escape import harmless_json

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns of output that is not a terminal: a pipe gets whole lines."""

SHORT_ID = 8
_REDRAW_SECONDS = 0.2

STYLES = {
    "pending": ("○", "dim"),
    "running": ("●", "cyan"),
    "waiting": ("◔", "yellow"),
    "paused": ("◫", "yellow"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "canceled": ("⊘", "red"),
}
"""Each status with its mark, the same as in drawn graphs, and its colour."""


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@cache
def console(*, is_error: bool = False) -> "Console":
    """Return the console of standard output, or of standard error."""
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if stream.isatty() else WIDE,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
    )


def print_line(text: str, style: str | None = None) -> None:
    """Print one line for a person."""
    console().print(harmless(text), style=style, soft_wrap=True)


def note(text: str) -> None:
    """Print one line on standard error."""
    print(harmless(text), file=sys.stderr, flush=True)


def harmless(text: str) -> str:
    """Escape control characters; remove colours."""
    return escaped(_COLOUR.sub("", text))


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(to_json_text(document), flush=True)


@contextmanager
def working(what: str, *, is_quiet: bool = False) -> Iterator[None]:
    """Show a spinner on a terminal; nothing elsewhere."""
    beside = console(is_error=True)
    if is_quiet or not beside.is_terminal:
        yield
        return
    with beside.status(what):
        yield


@contextmanager
def counting(what: str, total: int, *, is_quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show progress and the remaining time on a terminal; nothing elsewhere."""
    beside = console(is_error=True)
    if is_quiet or not beside.is_terminal:
        yield lambda _: None
        return
    began = last = time.monotonic()
    with beside.status(f"0 of {total:,} {what}") as status:

        def show(done: int) -> None:
            nonlocal last
            now = time.monotonic()
            # Drawing costs more than the work it reports.
            if now - last < _REDRAW_SECONDS:
                return
            last = now
            left = duration((now - began) / done * max(total - done, 0))
            status.update(f"{done:,} of {total:,} {what}, about {left} left")

        yield show


def to_json_text(value: Any) -> str:
    """Return a value as indented JSON, with control characters escaped."""
    return harmless_json(value, indent=2)


def short(task_id: str | None) -> str:
    """Return the end of an id: ids created together share their start."""
    return (task_id or "")[-SHORT_ID:]


def marked(status: str) -> str:
    """Return a status with its mark."""
    return f"{STYLES.get(status, ('?', ''))[0]} {status}"


def style_of(status: str) -> str:
    """Return the colour of a status."""
    return STYLES.get(status, ("?", ""))[1]


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Return the seconds from one ISO instant to another, or to now."""
    if start is None:
        return None
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return max(0.0, (until - datetime.fromisoformat(start)).total_seconds())


def moment(instant: str) -> str:
    """Return an ISO instant in local time, with the date unless it is today."""
    there = datetime.fromisoformat(instant).astimezone()
    is_today = there.date() == datetime.now(UTC).astimezone().date()
    return there.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def seconds_until(instant: str | None) -> float:
    """Return the seconds from now to an ISO instant; zero if it has passed or is None."""
    if instant is None:
        return 0.0
    return max(0.0, (datetime.fromisoformat(instant) - datetime.now(UTC)).total_seconds())


def duration(seconds: float | None) -> str:
    """Return a duration as text."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def ago(instant: str | None) -> str:
    """Return how long ago an instant was."""
    seconds = seconds_between(instant, None)
    if seconds is None:
        return ""
    if seconds < 1:
        return "just now"
    return f"{int(seconds)} s ago" if seconds < 60 else f"{duration(seconds)} ago"


def one_line(value: Any, width: int = 60) -> str:
    """Return any value as one line of limited width."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, status_column: int | None = None
) -> None:
    """Print rows under their headings; the status column is coloured."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for row in rows:
        cells: list[str | Text] = [harmless(cell) for cell in row]
        if status_column is not None:
            status = row[status_column]
            cells[status_column] = Text(marked(status), style=style_of(status))
        table.add_row(*cells)
    with console().capture() as captured:
        console().print(table)
    # Rich pads the last column; trailing blanks disturb copied and piped output.
    for line in captured.get().splitlines():
        console().file.write(line.rstrip() + "\n")
