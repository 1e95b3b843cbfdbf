"""Why a worker cannot work at the moment: the database, or the store of large values.

The worker's loop reports to it, and so does the server where the database refuses one of its own
writes. The server reads it from its own thread for `/readyz` and for refusals.
"""

import threading
from dataclasses import dataclass
from typing import Final

from agent.core.clock import Clock

_AGAIN_SECONDS: Final = 60.0
"""A problem that lasts is logged again this often."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Something that does not work: `what` is `database`, or `artifacts` with the store."""

    what: str
    message: str
    since: float
    """By the monotonic clock."""
    logged_at: float
    is_certain: bool = False
    """Whether a request was refused for it: then it counts at once, else only when it lasts."""


class Health:
    """The current problems of one worker; at most one of each kind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._current: dict[str, HealthProblem] = {}
        self.last_answer = float("-inf")
        """When the database last refused the worker something: it answers, and the worker tries again."""

    def report(self, what: str, message: str, *, is_certain: bool = False) -> bool:
        """Record a failure; return whether it is worth a line in the log."""
        with self._lock:
            now, known = self._clock.monotonic(), self._current.get(what)
            if what == "database" and not is_certain:
                self.last_answer = now
            is_due = (
                known is None or known.message != message or now - known.logged_at >= _AGAIN_SECONDS
            )
            since = now if known is None else known.since
            logged_at = now if is_due or known is None else known.logged_at
            is_certain = is_certain or (known is not None and known.is_certain)
            problem = HealthProblem(what, message, since, logged_at, is_certain)
            self._current = {**self._current, what: problem}
            return is_due

    def resolve(self, what: str) -> HealthProblem | None:
        """Record that something works again; return the problem that is over, if there was one."""
        if what not in self._current:
            return None
        with self._lock:
            known = self._current.get(what)
            # Another dict, not a smaller one: the server may be reading this one.
            self._current = {
                name: problem for name, problem in self._current.items() if name != what
            }
            return known

    def problem(self, what: str) -> HealthProblem | None:
        """Return the current problem of a kind, if there is one."""
        return self._current.get(what)

    def messages(self) -> dict[str, str]:
        """Return the messages of all current problems, by kind."""
        return {what: problem.message for what, problem in self._current.items()}

    def seconds(self, what: str) -> float:
        """Return for how long a problem has lasted; 0 when there is none."""
        problem = self._current.get(what)
        return 0.0 if problem is None else self._clock.monotonic() - problem.since
