"""`print` and `logging` of a step's code: they go to the log of its attempt.

A context variable says which attempt the running code belongs to, so that steps that run beside each other
do not mix, in threads as on the event loop. While a worker runs, `capturing` puts a `_Router` in the place
of standard output and standard error, and a handler on the root logger. Code outside of steps, the engine's
own included, writes where it always did.

A thread that a step starts itself has no such context: it writes to the output of the process.
"""

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TextIO

ENGINE_LOGGER: Final = "agent."
"""Loggers of the engine: their lines are the daemon's, also those written while a step's code waits."""

MAX_OPEN_LINE: Final = 8_192
"""A longer line is logged in parts."""

_LOADED_UNDER: Final = re.compile(r"^_workflow_[0-9a-f]+\.")
"""The package that `python_modules` gives a module beside a workflow."""

WriteLog = Callable[[str, str], None]
"""Takes a stream and a text."""


class CapturedOutput:
    """The printed lines of one attempt's code. Any thread may call it."""

    def __init__(self, write: WriteLog) -> None:
        self._write = write
        self._lock = threading.RLock()
        self._open_lines: dict[str, str] = {}

    def add(self, stream: str, text: str) -> None:
        """Take a text; whole lines are logged, the rest waits for its end."""
        with self._lock:
            text = self._open_lines.pop(stream, "") + text
            whole, newline, rest = text.rpartition("\n")
            if len(rest) > MAX_OPEN_LINE:
                whole, newline, rest = text, "\n", ""
            if rest:
                self._open_lines[stream] = rest
            if newline:
                self._write(stream, whole or " ")

    def flush(self) -> None:
        """Log the last line, which has no newline yet."""
        if not self._open_lines:
            return
        with self._lock:
            rest, self._open_lines = self._open_lines, {}
            for stream, text in rest.items():
                self._write(stream, text)


_current: ContextVar[CapturedOutput | None] = ContextVar("captured_output", default=None)


class captured:  # noqa: N801  (used like a function)
    """Pass the prints and log records of the code inside to `write`.

    A class: a generator as the context of every step takes three times as long.
    """

    __slots__ = ("_output", "_token")

    def __init__(self, write: WriteLog) -> None:
        self._output = CapturedOutput(write)

    def __enter__(self) -> None:
        # A live display on the terminal replaces the streams for a while.
        if _installed:
            if type(sys.stdout) is not _Router:
                _route("stdout")
            if type(sys.stderr) is not _Router:
                _route("stderr")
        self._token = _current.set(self._output)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        self._output.flush()


class _Router:
    """Standard output or standard error: a step's text goes to its log, any other to the stream."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self.stream = stream

    def write(self, text: str) -> int:
        output = _current.get()
        if output is None:
            return self.stream.write(text)
        output.add(self._name, str(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _current.get() is None:
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_routers: dict[tuple[str, int], _Router] = {}
"""Every router that was made, by its name and its stream. None is ever freed: `print` in another thread
holds no reference of its own to `sys.stdout`, and a router that went away meanwhile crashed the process."""


def _route(name: str) -> None:
    """Put a router in the place of a standard stream, unless one is there."""
    stream = getattr(sys, name)
    if not isinstance(stream, _Router):
        setattr(sys, name, _routers.setdefault((name, id(stream)), _Router(name, stream)))


class _StepFormatter(logging.Formatter):
    """Names modules beside a workflow as their authors do, without the package they are loaded under."""

    def format(self, record: logging.LogRecord) -> str:
        record.source = _LOADED_UNDER.sub("", record.name)
        return super().format(record)


class _StepHandler(logging.Handler):
    """Writes the records of a step's code to its log."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_StepFormatter("%(levelname)s %(source)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        output = _output_of(record)
        if output is not None:
            try:
                output.add("log", self.format(record).rstrip("\n") + "\n")
            except Exception:
                self.handleError(record)
            return
        last = logging.lastResort
        if logging.getLogger().handlers == [self] and last and record.levelno >= last.level:
            # Without this handler Python would write warnings to standard error itself.
            last.handle(record)


def _output_of(record: logging.LogRecord) -> CapturedOutput | None:
    """Return the output that a record belongs to; None for a record of the engine."""
    output = _current.get()
    return None if output is None or record.name.startswith(ENGINE_LOGGER) else output


def _is_outside_of_steps(record: logging.LogRecord) -> bool:
    return _output_of(record) is None


_lock = threading.Lock()
_handler = _StepHandler()
_installed: list[Callable[[], None]] = []
"""One entry for each worker that runs; the first one holds the function that ends the capture."""


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Capture the output of steps while a worker of this process runs."""
    with _lock:
        _installed.append(_do_nothing if _installed else _install())
    try:
        yield
    finally:
        with _lock:
            # The first entry ends the capture: the last worker to end calls it.
            _installed.pop()()


def _do_nothing() -> None:
    """Undo nothing: another worker of the process installed the capture."""


def _install() -> Callable[[], None]:
    """Redirect the process's output and its log records; return a function that undoes it."""
    root = logging.getLogger()
    level, others = root.level, list(root.handlers)
    levels = [(handler, handler.level) for handler in others]
    for handler in others:
        handler.addFilter(_is_outside_of_steps)
        # Steps log from INFO on; the others keep the threshold that the root logger had.
        handler.setLevel(max(handler.level, level))
    root.addHandler(_handler)
    root.setLevel(min(level or logging.INFO, logging.INFO))
    for name in ("stdout", "stderr"):
        _route(name)

    def undo() -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Router):
                setattr(sys, name, stream.stream)
        root.removeHandler(_handler)
        for handler, before in levels:
            handler.removeFilter(_is_outside_of_steps)
            handler.setLevel(before)
        root.setLevel(level)

    return undo
