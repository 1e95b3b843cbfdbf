"""Printing: consoles, status marks, times, short ids, tables, JSON."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from agent.cli.output import table
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
    "waiting for an agent": ("○", "yellow"),
    "paused": ("◫", "yellow"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "canceled": ("⊘", "red"),
}
"""Each status with its mark, the same as in drawn graphs, and its colour."""


_ANSI = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@cache
def console(*, is_error: bool = False) -> "Console":
    """Return rich's console, for live views and spinners."""
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


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def width() -> int | None:
    """Return the columns of the terminal; None for a pipe or a file, which gets whole lines."""
    return size().columns if is_terminal() else None


def size() -> os.terminal_size:
    """Return the columns and lines of the terminal, or those of the environment."""
    # As `shutil.get_terminal_size` does it, which takes long to load.
    named = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, lines = (int(text) if text.isascii() and text.isdecimal() else 0 for text in named)
    size = os.terminal_size((80, 24))
    if not (columns and lines):
        with suppress(OSError, ValueError):
            size = os.get_terminal_size(sys.stdout.fileno())
    return os.terminal_size((columns or size.columns or 80, lines or size.lines or 24))


@cache
def _has_colours() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str | None) -> str:
    """Return a text in a style, where the terminal has colours."""
    code = _ANSI.get(style or "")
    return f"\x1b[{code}m{text}\x1b[0m" if code and _has_colours() else text


def print_line(text: str, style: str | None = None) -> None:
    """Print one line for a person."""
    write_line(harmless(text), style)


def write_line(text: str, style: str | None = None) -> None:
    """Print one line that is harmless already."""
    write(f"{styled(text, style)}\n")


def write(text: str) -> None:
    """Write to standard output; end the command quietly where its reader has gone."""
    try:
        sys.stdout.write(text)
        if is_terminal():
            sys.stdout.flush()
    except BrokenPipeError:
        end_quietly()


def end_quietly() -> NoReturn:
    """End the command: the reader of its output, such as `head`, has closed the pipe."""
    # Python would complain at its end when it cannot flush.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def note(text: str) -> None:
    """Print one line on standard error."""
    # In the order of writing, where both go to the same place.
    sys.stdout.flush()
    print(harmless(text), file=sys.stderr, flush=True)


def harmless(text: str) -> str:
    """Escape control characters; remove colours."""
    return escaped(_COLOUR.sub("", text))


def print_json(document: Any) -> None:
    """Print one JSON document."""
    write(f"{to_json_text(document)}\n")


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


def activity_of(activity: str, *, is_served: bool) -> str:
    """Return a task's activity as people read it; `is_served` says whether a process runs tasks."""
    return "waiting for an agent" if activity == "running" and not is_served else activity


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


def moment(instant: str | None) -> str:
    """Return an ISO instant in local time, with the date unless it is today; nothing for None."""
    if instant is None:
        return ""
    there = datetime.fromisoformat(instant).astimezone()
    is_today = there.date() == datetime.now(UTC).astimezone().date()
    return there.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def clock_time(instant: str) -> str:
    """Return the local time of an ISO instant, with milliseconds."""
    there = datetime.fromisoformat(instant).astimezone()
    return f"{there:%H:%M:%S}.{there.microsecond // 1000:03d}"


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
    """Return how long ago an instant was, in one unit."""
    seconds = seconds_between(instant, None)
    if seconds is None:
        return ""
    if seconds < 1:
        return "just now"
    for unit, size, most in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds // 86_400)} d ago"


def quoted_step(name: str) -> str:
    """Return a step's name as a word of a shell: the brackets of an item are a pattern there."""
    return f"'{name}'" if "[" in name else name


def counted(count: int, noun: str) -> str:
    """Return a number of things: the noun has the plural, unless there is one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def one_line(value: Any, width: int = 60) -> str:
    """Return any value as one line of limited width."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    status_column: int | None = None,
    optional: Iterable[int] = (),
) -> None:
    """Print rows under their headings, a line each; the status column is coloured.

    Columns that are `optional` are left out where a terminal has no room for them.
    """
    cells = [[one_line_of(cell) for cell in row] for row in rows]
    if status_column is not None:
        for row in cells:
            row[status_column] = marked(row[status_column])
    heading, *lines = table.lines(columns, cells, width=width(), optional=frozenset(optional))
    write_line(table.joined(heading), "bold")
    for line in lines:
        if status_column is not None:
            cell = line[status_column]
            style = style_of(cell.split(" ", 1)[1].rstrip()) if " " in cell else ""
            line[status_column] = styled(cell, style)
        write_line(table.joined(line))


def one_line_of(cell: str) -> str:
    """Return the text of a cell as one harmless line."""
    return harmless(" ".join(cell.split()))
