"""The calls of external workers: checked here, applied by the worker's commits.

Every surface through which workers come (HTTP, MCP) uses this one class. The scopes of the caller decide
which queues it may use; a lease of another queue is one that does not exist.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from agent.approvals.permission import Principal, check_queue
from agent.core.clock import SECOND, to_iso
from agent.core.redaction import everywhere
from agent.core.thread_bridge import LoopBridge
from agent.server.db_pool import DbPool
from agent.server.held_lease import HeldLease
from agent.server.problems import retry_later
from agent.server.task_submitter import COMMIT_TIMEOUT_SECONDS, TaskSubmitter
from agent.server.work_values import WorkValues
from agent.store.db.database import Database
from agent.store.read import work_views
from agent.tasks.errors import RefusedError
from agent.tasks.rules.external_work.work_parts import (
    LeaseCall,
    LeaseResult,
    WorkClaim,
    parse_lease,
)
from agent.tasks.worker.worker import Worker

MOST_CHECKED: Final = 500
"""The most leases that one request checks."""

Document = dict[str, Any]
Result = TypeVar("Result")


class OverdueLease(NamedTuple):
    """A lease whose own time is over."""

    lease_id: str
    work_id: str
    task_id: str
    queue: str
    step: str
    parallel_index: int
    worker: str
    attempt: int
    expires_at: int

    def check(self) -> LeaseCall:
        """Return the call that checks it."""
        address = parse_lease(self.lease_id)
        assert address is not None
        return LeaseCall(self.lease_id, address, "expire", lambda _: True)

    def document(self) -> Document:
        """Return it as operators see it: without its id, which only its worker knows."""
        return {
            "id": self.work_id,
            "task": self.task_id,
            "queue": self.queue,
            "step": self.step,
            "parallel_index": None if self.parallel_index < 0 else self.parallel_index,
            "worker": self.worker,
            "attempt": self.attempt,
        }

    def kept(self, result: LeaseResult) -> Document:
        """Return it with the reason for which it lasts."""
        if result.refusal is not None:
            reason, until = result.refusal, None
        elif result.directive == "pause":
            reason, until = "its task is paused", None
        else:
            reason = "its worker has called, or the agent has not yet answered for a whole lease"
            until = to_iso(result.lease_expires_at)
        return {**self.document(), "reason": reason, "expires_at": until}


class WorkCalls:
    """Claims, reports and results of external workers."""

    def __init__(
        self,
        database: Database,
        worker: Worker,
        worker_loop: LoopBridge,
        read_pool: DbPool,
        command_pool: DbPool,
        task_submitter: TaskSubmitter,
        max_waiting: int,
    ) -> None:
        self._database = database
        self._worker = worker
        self._worker_loop = worker_loop
        self._read_pool = read_pool
        self._values = WorkValues(database, worker.services, read_pool, command_pool)
        self._submitter = task_submitter
        self._max_waiting = max_waiting
        self._waiting = 0

    def stop(self) -> None:
        """Let claims end that wait for work."""
        self._worker_loop.post(self._worker.external_workers.stop)

    async def claim(
        self,
        principal: Principal,
        queues: Iterable[str],
        worker: str,
        *,
        wait: float = 0.0,
        limit: int = 1,
        client_token: str | None = None,
        start: bool = False,
        lease: float | None = None,
    ) -> Document:
        """Return work of the queues; wait up to `wait` seconds for it."""
        names = frozenset(queues)
        for queue in sorted(names):
            check_queue(principal, queue)
        lease_us = None if lease is None else int(lease * SECOND)
        claim = WorkClaim(names, everywhere.redact(worker), limit, client_token, start, lease_us)
        claiming = self._worker.external_workers.claim(claim, wait)
        result = await self._run(claiming, wait + COMMIT_TIMEOUT_SECONDS)
        return {"work": [await self._values.document(leased) for leased in result.leased]}

    def lease(self, principal: Principal, lease_id: str) -> HeldLease:
        """Return the calls under a lease; whether it counts is decided with each of them."""
        clock = self._database.clock
        return HeldLease(principal, lease_id, self._commit, self._values, self._read_pool, clock)

    async def expire(self) -> Document:
        """Check every lease whose own time is over, by the rule of the engine's own check.

        A lease is never ended earlier than by that rule: one that is kept is in the answer with its reason.
        """
        if not self._worker.answering.is_open:
            raise RefusedError(
                "this process answers no workers, so it lets no lease expire; ask the running agent"
                " (`--server URL`)"
            )
        now = self._database.clock.now()
        found = await self._read_pool.read(
            lambda connection: work_views.leases_over(connection, now, MOST_CHECKED + 1)
        )
        leases = [OverdueLease(*row) for row in found[:MOST_CHECKED]]
        calls = [lease.check() for lease in leases]
        results = await self._run(
            self._worker.external_workers.call_each(calls), COMMIT_TIMEOUT_SECONDS
        )
        checked = list(zip(leases, results, strict=True))
        return {
            "expired": [lease.document() for lease, result in checked if result.lost == "expired"],
            "kept": [lease.kept(result) for lease, result in checked if result.lost is None],
            "has_more": len(found) > MOST_CHECKED,
        }

    async def _commit(self, call: LeaseCall) -> LeaseResult:
        """Apply a call on a lease with the next commit."""
        calling = self._worker.external_workers.call(call)
        return await self._run(calling, COMMIT_TIMEOUT_SECONDS)

    async def _run(self, calling: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """Run a call in the worker's loop, and wait for its commit."""
        if not self._submitter.is_open:
            calling.close()
            raise retry_later(503, "stopping", "the agent is stopping")
        if self._submitter.database_problem() is not None:
            calling.close()
            text = "the database cannot be written at the moment"
            raise retry_later(503, "unavailable", text, 2)
        if self._waiting >= self._max_waiting:
            calling.close()
            raise retry_later(429, "too-many", "too many calls of workers wait")
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                return await self._worker_loop.run(calling)
        except TimeoutError:
            text = "the call could not be recorded in time, and may be repeated"
            raise retry_later(503, "unavailable", text, 2) from None
        finally:
            self._waiting -= 1
