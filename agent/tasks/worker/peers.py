"""Watches the other workers: declares silent ones dead and takes over their steps."""

from collections.abc import Callable

from agent.core.clock import Clock
from agent.core.thread_bridge import ThreadBridge
from agent.steps.attempt.services import Limits
from agent.tasks.commit.committer import Committer
from agent.tasks.rescue import peer_takeover
from agent.tasks.rescue.failure_detector import FailureDetector


class PeerWatch:
    """The periodic check of one worker on its peers."""

    def __init__(
        self,
        committer: Committer,
        thread: ThreadBridge,
        clock: Clock,
        lease_seconds: float,
        limits: Limits,
        *,
        is_only_worker: bool,
    ) -> None:
        self._committer = committer
        self._thread = thread
        self._clock = clock
        self._interval_seconds = lease_seconds / 4
        self._detector = FailureDetector(lease_seconds)
        self._limits = limits
        self._is_only_worker = is_only_worker
        self._last_check = 0.0

    def expect_peers(self) -> None:
        """Check at the next opportunity: a peer has declared this worker dead."""
        self._is_only_worker = False
        self._last_check = float("-inf")

    async def check(self, on_other_commit: Callable[[], None]) -> bool:
        """Check if it is time to; return whether steps were taken over.

        Raise `NewerSchemaError` if a newer version has upgraded the database.
        """
        now = self._clock.monotonic()
        if now - self._last_check < self._interval_seconds:
            return False
        self._last_check = now
        await self._thread.run(self._committer.refuse_newer_schema)
        if self._is_only_worker:
            return False
        watched = await self._thread.run(
            lambda: peer_takeover.watch(
                self._committer, self._detector, self._clock.monotonic(), self._limits
            )
        )
        if watched.deaths or watched.steps:
            peer_takeover.cancel_orphans_soon(self._committer, on_other_commit)
        return watched.steps > 0
