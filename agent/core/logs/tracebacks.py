"""Tracebacks for the author of a step: the frames of the step's own code.

Frames of the engine and of libraries are left out. Where no frame is the step's own, as in a function of an
installed module, all frames outside the engine stay.
"""

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException


def user_traceback(error: BaseException) -> str:
    """Return an exception's traceback without the engine's frames, whatever its methods do."""
    try:
        formatted = TracebackException.from_exception(error, compact=True)
        for part in _chain(formatted):
            part.stack = _own_frames(part.stack)
        return "".join(formatted.format())
    except BaseException as failure:
        return f"{type(error).__name__}: no traceback ({type(failure).__name__})\n"


def _chain(formatted: TracebackException) -> Iterator[TracebackException]:
    """Return an exception and those that it was raised from, or that it gathers."""
    waiting, seen = [formatted], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        related = [part.__cause__, part.__context__, *(part.exceptions or ())]
        waiting += [other for other in related if other is not None]


def _own_frames(stack: StackSummary) -> StackSummary:
    outside = [frame for frame in stack if not _is_below(frame, _engine())]
    own = [frame for frame in outside if not _is_library(frame)]
    return StackSummary.from_list(own or outside)


def _is_library(frame: FrameSummary) -> bool:
    return frame.filename.startswith("<") or any(_is_below(frame, path) for path in _libraries())


def _is_below(frame: FrameSummary, directory: str) -> bool:
    return frame.filename.startswith(directory)


@cache
def _engine() -> str:
    return f"{Path(__file__).parents[2]}/"


@cache
def _libraries() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{path}/" for name in names if (path := sysconfig.get_paths().get(name))})
