"""Limits log lines that remote callers can cause, and counts those that were left out."""

import threading
import time
from collections.abc import Callable


class LogLimit:
    """Admits at most `most` lines in each window; the next window's first line counts the others."""

    def __init__(
        self, most: int, window_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._window_seconds = window_seconds
        self._monotonic = monotonic
        self._began = float("-inf")
        self._admitted = 0
        self._held_back = 0
        self._lock = threading.Lock()

    def admit(self) -> int | None:
        """Return how many lines were held back since the last one; None: hold this back too."""
        with self._lock:
            now = self._monotonic()
            if now - self._began >= self._window_seconds:
                self._began, self._admitted = now, 0
            if self._admitted >= self._most:
                self._held_back += 1
                return None
            self._admitted += 1
            held_back, self._held_back = self._held_back, 0
            return held_back
