"""The calls of external workers on their way into commits, and claims that wait for work.

Everything here belongs to the worker's loop. A claim that finds nothing waits until a commit queues work,
of this process or of another one. Work wakes one waiting claim; a claim that got some wakes the next one,
since there may be more.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from agent.core.clock import Clock
from agent.tasks.commit.batch import TxResult
from agent.tasks.rules.external_work.work_parts import (
    ClaimResult,
    LeaseCall,
    LeaseResult,
    WorkClaim,
    WorkPart,
    WorkResult,
    parse_lease,
)
from agent.tasks.worker.outbox import Outbox

CHECK_SECONDS: Final = 5.0
"""A waiting claim looks by itself this often: a notification may be lost."""
OTHER_COMMIT_SECONDS: Final = 0.1
"""Commits of other processes let waiting claims look at most this often."""


@dataclass(slots=True, eq=False)
class _Waiter:
    queues: frozenset[str]
    event: asyncio.Event


class ExternalWorkers:
    """Queues calls of workers for the next commit, and lets claims wait."""

    def __init__(self, clock: Clock, outbox: Outbox, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._outbox = outbox
        self._wake = wake
        self._pending: dict[WorkPart, asyncio.Future[WorkResult]] = {}
        self._waiters: list[_Waiter] = []
        self._is_stopping = False
        self._failure: Exception | None = None
        self._looked_at = float("-inf")
        self._later: asyncio.TimerHandle | None = None

    async def call(self, call: LeaseCall) -> LeaseResult:
        """Apply a call on a lease with the next commit; return its result once that is durable."""
        result = await self._commit(call)
        assert isinstance(result, LeaseResult)
        return result

    async def call_each(self, calls: Iterable[LeaseCall]) -> list[LeaseResult]:
        """Apply calls with as few commits as they fit into; return their results in order."""
        return await asyncio.gather(*map(self.call, calls))

    async def claim(self, claim: WorkClaim, wait_seconds: float) -> ClaimResult:
        """Claim work; wait up to some seconds for it where there is none."""
        deadline = self._clock.monotonic() + wait_seconds
        while True:
            # Before the look: work that is queued after it wakes this claim.
            waiter = _Waiter(claim.queues, asyncio.Event())
            self._waiters.append(waiter)
            try:
                claim.tries = 0
                result = await self._commit(claim)
                assert isinstance(result, ClaimResult)
                left = deadline - self._clock.monotonic()
                if result.leased or left <= 0 or self._is_stopping:
                    if result.leased:
                        self._wake_first(claim.queues, but=waiter)
                    return result
                try:
                    async with asyncio.timeout(min(left, CHECK_SECONDS)):
                        await waiter.event.wait()
                except TimeoutError:
                    if self._clock.monotonic() >= deadline:
                        return result
            finally:
                self._waiters.remove(waiter)

    async def _commit(self, part: WorkPart) -> WorkResult:
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[WorkResult] = asyncio.get_running_loop().create_future()
        self._pending[part] = future
        self._outbox.add_work(part)
        self._wake()
        try:
            return await future
        except asyncio.CancelledError:
            self._outbox.withdraw_work(part)
            raise
        finally:
            self._pending.pop(part, None)

    def note_commit(self, result: TxResult) -> None:
        """Answer the calls of a committed transaction, and wake claims for the work it queued."""
        for part, worked in result.worked:
            future = self._pending.get(part)
            if future is not None and not future.done():
                future.set_result(worked)
            elif isinstance(part, WorkClaim) and isinstance(worked, ClaimResult):
                self._give_back(part, worked)
        for queue in result.queued:
            self._wake_first(frozenset((queue,)))

    def _give_back(self, claim: WorkClaim, result: ClaimResult) -> None:
        """Release what a claim got whose caller has gone; with a token the caller can ask again."""
        if claim.client_token is not None:
            return
        for leased in result.leased:
            lease_id = leased.row.lease_id
            address = None if lease_id is None else parse_lease(lease_id)
            if lease_id is None or address is None or leased.row.started_at is not None:
                continue
            text = "its worker did not wait for the answer"
            call = LeaseCall(lease_id, address, "release", lambda _: True, message=text)
            self._outbox.add_work(call)
            self._wake()

    def on_other_commit(self) -> None:
        """Let a waiting claim look: another process may have queued work."""
        if not self._waiters or self._later is not None:
            return
        passed = self._clock.monotonic() - self._looked_at
        if passed >= OTHER_COMMIT_SECONDS:
            self._look()
        else:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(OTHER_COMMIT_SECONDS - passed, self._look)

    def _look(self) -> None:
        self._later = None
        self._looked_at = self._clock.monotonic()
        for waiter in self._waiters:
            waiter.event.set()

    def fail(self, error: Exception) -> None:
        """Let every call fail, now and later: the worker has ended without a commit."""
        self._failure = error
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
        self.stop()

    def stop(self) -> None:
        """Let waiting claims end."""
        self._is_stopping = True
        for waiter in self._waiters:
            waiter.event.set()

    def _wake_first(self, queues: frozenset[str], but: _Waiter | None = None) -> None:
        for waiter in self._waiters:
            if waiter is not but and not waiter.event.is_set() and waiter.queues & queues:
                waiter.event.set()
                return
