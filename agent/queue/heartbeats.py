"""The thread that extends every lease of a worker, and sends log lines, whatever the handlers do."""

import logging
import threading
from typing import Final

from agent.core.clock import Clock
from agent.queue.errors import LeaseLostError, QueueError, UnavailableError
from agent.queue.lease import Lease

log = logging.getLogger("agent.queue")

_LOG_SECONDS: Final = 1.0
"""How long a log line waits for others."""
_RETRY_SECONDS: Final = 1.0
_SHARE: Final = 3.0
"""A lease is extended after this part of its time."""


class Heartbeats:
    """Keeps the leases of one worker alive."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Lease, float] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="agent heartbeats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; leases that it has are not extended any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def add(self, lease: Lease) -> None:
        """Keep a lease alive from now on."""
        with self._changed:
            self._due[lease] = self._clock.monotonic() + lease.seconds / _SHARE
            self._changed.notify()

    def remove(self, lease: Lease) -> None:
        """Let a lease go."""
        with self._changed:
            self._due.pop(lease, None)

    def _run(self) -> None:
        while (leases := self._wait()) is not None:
            for lease, is_due in leases:
                if is_due or lease.has_log:
                    self._extend(lease)

    def _wait(self) -> list[tuple[Lease, bool]] | None:
        """Wait for something to send; return the leases and whether each is due, None when closed."""
        with self._changed:
            if not self._is_closed:
                now = self._clock.monotonic()
                next_due = min(self._due.values(), default=None)
                # Without leases there is nothing to wait for but a new one.
                self._changed.wait(
                    None if next_due is None else min(max(next_due - now, 0.0), _LOG_SECONDS)
                )
            if self._is_closed:
                return None
            now = self._clock.monotonic()
            wanted = [lease for lease in self._due if lease.end_reason is None]
            return [(lease, self._due[lease] <= now) for lease in wanted]

    def _extend(self, lease: Lease) -> None:
        """Send the log lines of a lease, or else a heartbeat, and note when it is due again."""
        wait = lease.seconds / _SHARE
        try:
            if lease.has_log:
                lease.flush_log()
            else:
                lease.heartbeat()
        except LeaseLostError as error:
            log.warning("the lease of %s is lost: %s", lease.describe(), error)
        except UnavailableError as error:
            log.debug("no heartbeat of %s: %s", lease.describe(), error)
            wait = min(wait, _RETRY_SECONDS)
        except QueueError as error:
            log.error("the agent refuses the heartbeat of %s: %s", lease.describe(), error)
        with self._changed:
            if lease in self._due:
                self._due[lease] = self._clock.monotonic() + wait
