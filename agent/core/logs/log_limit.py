"""Limits log lines that remote callers can cause, and counts those that were left out."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_MAX_SOURCES: Final = 1000
_SHARES: Final = 10
"""How many sources may log as much as one."""


@dataclass(slots=True)
class _Window:
    began: float = float("-inf")
    admitted: int = 0
    held_back: int = 0


class LogLimit:
    """Admits at most `most` lines of a source in each window; its next one's first line counts the others.

    The lines of one address must not hide those of another. But a client may have very many addresses: all
    sources together get ten times as many lines.
    """

    def __init__(
        self, most: int, window_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._window_seconds = window_seconds
        self._monotonic = monotonic
        self._windows: OrderedDict[str, _Window] = OrderedDict()
        self._all = _Window()
        self._lock = threading.Lock()

    def admit(self, source: str = "") -> int | None:
        """Return how many lines were held back since the last one; None: hold this back too."""
        with self._lock:
            now = self._monotonic()
            window = self._windows.setdefault(source, _Window())
            self._windows.move_to_end(source)
            if len(self._windows) > _MAX_SOURCES:
                self._windows.popitem(last=False)
            for each in (window, self._all):
                if now - each.began >= self._window_seconds:
                    each.began, each.admitted = now, 0
            if window.admitted >= self._most or self._all.admitted >= _SHARES * self._most:
                window.held_back += 1
                return None
            window.admitted += 1
            self._all.admitted += 1
            held_back, window.held_back = window.held_back, 0
            return held_back
