"""Failure detection: a worker is dead if its transaction number has not moved for one lease.

An observer measures that by its own clock; clocks of two machines are never compared. The time since
the observer's last check counts as at most a third of the lease. So a closed laptop or an hour without
the database kills no worker, and an observer that checks rarely still detects a death in the end.
"""

import socket
from collections.abc import Iterable

from agent.steps.process.processes import is_of_this_boot, is_running
from agent.store.db.database import Connection
from agent.store.engine import workers


def has_ended(connection: Connection, worker_id: str) -> bool:
    """Whether a worker is dead on record, or its process on this machine has ended.

    Where two machines have one name it may be wrong about a living one: only for what a second worker may do too.
    """
    found = workers.find(connection, worker_id)
    if found is None:
        return False
    is_dead, host, process_id, started = found
    return is_dead or (host == socket.gethostname() and not is_running(process_id, started))


def has_process_ended(connection: Connection, worker_id: str) -> bool:
    """Whether a worker's process ran on this machine since it was started, and has ended."""
    found = workers.find(connection, worker_id)
    if found is None:
        return False
    _, host, process_id, started = found
    return (
        host == socket.gethostname()
        and is_of_this_boot(started)
        and not is_running(process_id, started)
    )


class FailureDetector:
    """What one worker has observed of the others' transaction numbers."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._observed: dict[str, tuple[int, float]] = {}
        """By worker: its last transaction number, and for how many seconds that was observed not to move."""
        self._last_check: float | None = None

    def observe(self, others: Iterable[tuple[str, int]], monotonic: float) -> list[tuple[str, int]]:
        """Record (worker, transaction number) of the others; return those that have not moved for a lease."""
        last = monotonic if self._last_check is None else self._last_check
        self._last_check = monotonic
        elapsed = min(monotonic - last, self.lease_seconds / 3)
        current: dict[str, tuple[int, float]] = {}
        for worker_id, tx_number in others:
            known, silent = self._observed.get(worker_id, (None, 0.0))
            current[worker_id] = (tx_number, silent + elapsed if known == tx_number else 0.0)
        self._observed = current
        return [
            (worker_id, tx_number)
            for worker_id, (tx_number, silent) in current.items()
            if silent > self.lease_seconds
        ]
