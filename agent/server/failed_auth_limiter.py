"""How many wrong tokens and signatures an address may send before it is no longer answered why."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

MOST: Final = 20
WINDOW_SECONDS: Final = 60.0
_ADDRESSES: Final = 10_000


class FailedAuthLimiter:
    """Counts failures by address, over a sliding window.

    Only failures are held back: on one machine everybody shares the loopback address, and whoever
    guesses there must not lock the owner out. A token cannot be guessed; its checks can be made
    cheap, and are.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> float:
        """Count a failure; return after how many seconds to try again, or 0."""
        now = self._monotonic()
        times = self._times.setdefault(address, deque(maxlen=MOST))
        self._times.move_to_end(address)
        while len(self._times) > _ADDRESSES:
            self._times.popitem(last=False)
        while times and now - times[0] > WINDOW_SECONDS:
            times.popleft()
        if len(times) >= MOST:
            return WINDOW_SECONDS - (now - times[0])
        times.append(now)
        return 0.0
