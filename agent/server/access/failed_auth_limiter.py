"""A limit on wrong tokens and signatures per client address."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

MAX_FAILURES: Final = 20
WINDOW_SECONDS: Final = 60.0
_MAX_ADDRESSES: Final = 10_000


class FailedAuthLimiter:
    """Counts failures by address, over a sliding window.

    It limits failures only, never valid requests: all local users share the loopback address, and
    one who guesses tokens there must not lock the owner out. Tokens are too long to guess.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> float:
        """Count a failure; return the seconds to wait before the next try, or 0."""
        now = self._monotonic()
        times = self._times.setdefault(address, deque(maxlen=MAX_FAILURES))
        self._times.move_to_end(address)
        while len(self._times) > _MAX_ADDRESSES:
            self._times.popitem(last=False)
        while times and now - times[0] > WINDOW_SECONDS:
            times.popleft()
        if len(times) >= MAX_FAILURES:
            return WINDOW_SECONDS - (now - times[0])
        times.append(now)
        return 0.0
