"""The calls of external workers: checked here, applied by the worker's commits.

Every surface through which workers come (HTTP, MCP) uses this one class. The scopes of the caller decide
which queues it may use; a lease of another queue is one that does not exist.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from agent.approvals.permission import Principal, check_queue
from agent.core.clock import SECOND
from agent.core.thread_bridge import LoopBridge
from agent.server.db_pool import DbPool
from agent.server.held_lease import HeldLease
from agent.server.problems import retry_later
from agent.server.task_submitter import COMMIT_TIMEOUT_SECONDS, TaskSubmitter
from agent.server.work_values import WorkValues
from agent.store.db.database import Database
from agent.tasks.rules.external_work.work_parts import (
    LeaseCall,
    LeaseResult,
    WorkClaim,
)
from agent.tasks.worker.worker import Worker

Document = dict[str, Any]
Result = TypeVar("Result")


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
        claim = WorkClaim(names, worker, limit, client_token, start, lease_us)
        claiming = self._worker.external_workers.claim(claim, wait)
        result = await self._run(claiming, wait + COMMIT_TIMEOUT_SECONDS)
        return {"work": [await self._values.document(leased) for leased in result.leased]}

    def lease(self, principal: Principal, lease_id: str) -> HeldLease:
        """Return the calls under a lease; whether it counts is decided with each of them."""
        clock = self._database.clock
        return HeldLease(principal, lease_id, self._commit, self._values, self._read_pool, clock)

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
