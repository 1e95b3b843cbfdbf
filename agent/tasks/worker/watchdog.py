"""Detects a blocked event loop, and names the step whose code blocks it.

Coroutine functions of steps run on the worker's event loop. One that computes, or waits without
`await`, delays every other attempt, the heartbeat and the API. A thread pings the loop; without an
answer it reads the loop's stack. It ends nothing: a running function cannot be ended.
"""

import asyncio
import sys
import sysconfig
import threading
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

from agent.steps.types.attempt_input import AttemptInput
from agent.tasks.commit.metrics import Blocks
from agent.tasks.worker.attempts import current_attempt

log = structlog.get_logger(__name__)

BLOCKED_SECONDS: Final = 1.0
"""After this long without an answer the loop counts as blocked."""
PAUSE_SECONDS: Final = 0.5
"""Between two pings of a loop that answers."""
QUIET_SECONDS: Final = 60.0
"""How long the blocks of one step are counted and not logged, after one was logged."""

_BUSY_SHARE: Final = 0.1
"""Share of the time: a stopped process computes less, one on a loaded machine more."""
_OWN: Final = str(Path(__file__).parent.parent)
_STANDARD: Final = sysconfig.get_path("stdlib")


class Watchdog:
    """Watches one event loop from a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int, blocks: Blocks) -> None:
        self._loop = loop
        self._blocks = blocks
        self._thread_id = thread_id
        self._is_stopped = threading.Event()
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        """When each step was logged last, and how often it has blocked the loop since."""
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, at its next check."""
        self._is_stopped.set()

    def _watch(self) -> None:
        while True:
            began, cpu_before = time.monotonic(), time.process_time()
            if self._is_stopped.wait(PAUSE_SECONDS):
                return
            self._note_held(time.monotonic() - began - PAUSE_SECONDS, cpu_before)
            if not self._ping():
                return

    def _ping(self) -> bool:
        """Wait for an answer of the loop, and count a block; return False if the loop is gone."""
        answered = threading.Event()
        began, cpu_before = time.monotonic(), time.process_time()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return False
        frame, logged = None, None
        if not answered.wait(BLOCKED_SECONDS):
            frame = sys._current_frames().get(self._thread_id)
            if frame is not None and not is_idle(frame):
                logged = self._report(frame, began)
            while not answered.wait(PAUSE_SECONDS):
                if self._is_stopped.is_set() or self._loop.is_closed():
                    return False
        seconds = time.monotonic() - began
        if frame is None:
            self._note_held(seconds, cpu_before)
        elif seconds > BLOCKED_SECONDS:
            if logged is not None:
                logged.warning("event_loop.unblocked", seconds=round(seconds, 1))
            self._blocks.add(seconds)
        return True

    def _note_held(self, seconds: float, cpu_before: float) -> None:
        """Log a call that held the interpreter, and with it this thread.

        A process that was stopped, or not scheduled, has used no CPU time since `cpu_before`.
        """
        is_busy = time.process_time() - cpu_before > _BUSY_SHARE * seconds
        if seconds > BLOCKED_SECONDS and is_busy:
            log.warning("event_loop.was_blocked", seconds=round(seconds, 1))
            self._blocks.add(seconds)

    def _report(self, frame: FrameType, began: float) -> Any:
        """Log the stack that blocks the loop; return the logger for its end, None if it was logged lately."""
        attempt_input, where = attempt_of(frame), location_of(frame)
        named = {} if attempt_input is None else _named(attempt_input)
        key = (
            ("", where)
            if attempt_input is None
            else (attempt_input.task.workflow, attempt_input.step.name)
        )
        now = time.monotonic()
        at, count = self._logged.get(key, (float("-inf"), 0))
        if now - at < QUIET_SECONDS:
            self._logged[key] = (at, count + 1)
            return None
        self._logged = {key: (now, 0)} | {k: v for k, v in self._logged.items() if k != key}
        bound = log.bind(**named, where=where)
        more = {"more_since": count} if count else {}
        bound.warning("event_loop.blocked", seconds=round(now - began, 1), **more)
        return bound


@contextmanager
def watching(blocks: Blocks) -> Iterator[None]:
    """Watch the event loop that this runs in."""
    watchdog = Watchdog(asyncio.get_running_loop(), threading.get_ident(), blocks)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.close()


def attempt_of(frame: FrameType) -> AttemptInput | None:
    """Return the attempt whose code a loop is running, by the loop's stack."""
    for outer in _outwards(frame):
        if outer.f_code is Handle._run.__code__:
            context = getattr(outer.f_locals.get("self"), "_context", None)
            return context.get(current_attempt) if isinstance(context, Context) else None
    return None


def location_of(frame: FrameType) -> str:
    """Return where a loop is: the innermost function outside this package and Python itself."""
    frames = list(_outwards(frame))
    for candidate in frames:
        name = candidate.f_code.co_filename
        is_installed = "site-packages" in name
        if not name.startswith((_OWN, "<")) and (is_installed or not name.startswith(_STANDARD)):
            return _written(candidate)
    return _written(frames[0])


def is_idle(frame: FrameType) -> bool:
    """Whether a loop waits for an event."""
    return frame.f_code.co_name == "select" and "selectors" in frame.f_code.co_filename


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    current: FrameType | None = frame
    while current is not None:
        yield current
        current = current.f_back


def _written(frame: FrameType) -> str:
    name = Path(frame.f_code.co_filename).name
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"


def _named(attempt_input: AttemptInput) -> dict[str, Any]:
    name = attempt_input.step.name
    if attempt_input.parallel_index is not None:
        name = f"{name}[{attempt_input.parallel_index}]"
    return {"task": attempt_input.task.id, "step": name, "attempt": attempt_input.attempt}
