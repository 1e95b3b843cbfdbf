"""The calls of external workers: checked here, applied by the worker's commits.

Every surface through which workers come (HTTP, MCP) uses this one class. The scopes of the caller decide
which queues it may use; a lease of another queue is one that does not exist.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from agent.approvals.permission import Principal, check_queue
from agent.core.clock import SECOND, to_iso
from agent.core.redaction import everywhere
from agent.core.state_machine import WORK_LEASED, TaskStatus
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.server.task_submitter import COMMIT_TIMEOUT_SECONDS, TaskSubmitter
from agent.steps.spec.output_checks import check_output, large_text
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.db import json_values
from agent.store.db.database import Connection, Database
from agent.store.engine import snapshot_rows, workflow_versions
from agent.store.read import work_views
from agent.tasks.errors import LeaseLostError, RefusedError
from agent.tasks.rules import snapshots
from agent.tasks.rules.work_parts import (
    LeaseAction,
    LeaseAddress,
    LeaseCall,
    LeasedWork,
    LeaseResult,
    WorkClaim,
    parse_lease,
)
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import Graph

Document = dict[str, Any]
Result = TypeVar("Result")

_MAX_SCHEMAS: Final = 10_000
_UNKNOWN: Final = object()


class WorkCalls:
    """Claims, reports and results of external workers."""

    def __init__(
        self,
        database: Database,
        worker: Worker,
        worker_loop: asyncio.AbstractEventLoop,
        read_pool: DbPool,
        command_pool: DbPool,
        task_submitter: TaskSubmitter,
        max_waiting: int,
    ) -> None:
        self._database = database
        self._worker = worker
        self._worker_loop = worker_loop
        self._read_pool = read_pool
        self._command_pool = command_pool
        self._submitter = task_submitter
        self._max_waiting = max_waiting
        self._waiting = 0
        self._schemas: OrderedDict[str, Any] = OrderedDict()
        """The output schemas of work that was claimed here, by the work's id."""

    def stop(self) -> None:
        """Let claims end that wait for work."""
        with suppress(RuntimeError):
            # The worker's loop may have ended before the server's.
            self._worker_loop.call_soon_threadsafe(self._worker.external_workers.stop)

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
        return {"work": [await self._document(leased) for leased in result.leased]}

    async def running(self, principal: Principal, lease_id: str) -> Document:
        """Record that the work begins."""
        return _state(await self._call(principal, lease_id, "running"))

    async def heartbeat(
        self, principal: Principal, lease_id: str, snapshot: str | None = None
    ) -> Document:
        """Extend the lease; return what to do."""
        address = _address(lease_id)

        def read(connection: Connection) -> tuple[Document | None, str | None]:
            facts = work_views.lease_facts(connection, address.work_id)
            newest = None
            if facts is not None and snapshot is not None:
                newest = snapshot_rows.newest(connection, [facts["task_id"]]).get(facts["task_id"])
            return facts, newest

        facts, newest = await self._read_pool.read(read)
        state = self._unwritten(principal, lease_id, facts)
        if state is None:
            state = _state(await self._call(principal, lease_id, "heartbeat"))
        if state["action"] == "continue" and newest is not None and newest != snapshot:
            state |= {"action": "changed", "snapshot": newest}
        return state

    def _unwritten(
        self, principal: Principal, lease_id: str, facts: Document | None
    ) -> Document | None:
        """Return the answer to a heartbeat that changes nothing: the lease was extended lately."""
        if facts is None or facts["lease_id"] != lease_id or facts["status"] not in WORK_LEASED:
            return None
        left = facts["lease_expires_at"] - self._database.clock.now()
        if not principal.may_work(facts["queue"]) or left <= facts["lease_us"] * 2 // 3:
            return None
        if facts["task_status"] not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
            return None
        action = "pause" if facts["task_status"] == TaskStatus.PAUSED else "continue"
        expires_at = to_iso(facts["lease_expires_at"])
        return {"action": action, "lease_expires_at": expires_at, "snapshot": None}

    async def checkpoint(self, principal: Principal, lease_id: str, value: Json) -> Document:
        """Save a value for the next attempt."""
        text = self._text(value, "value")
        return _state(await self._call(principal, lease_id, "checkpoint", text=text))

    async def log(
        self, principal: Principal, lease_id: str, text: str, stream: str = "log"
    ) -> Document:
        """Write to the step's log."""
        message = everywhere.redact(text)
        return _state(await self._call(principal, lease_id, "log", message=message, stream=stream))

    async def artifact(
        self, principal: Principal, lease_id: str, name: str, value: Json
    ) -> Document:
        """Keep a value beside the step's output; an event names it."""
        text = self._text(value, "value")
        size = len(text.encode())
        if size > self._worker.services.limits.output_bytes:
            most = self._worker.services.limits.output_bytes
            raise Problem(413, "too-large", f"the value is {size} bytes, and {most} are allowed")
        # Checked before anything is stored, and again with the event.
        await self._call(principal, lease_id, "heartbeat")
        digest = await self._keep(text)
        reference = artifact_rows.reference(digest)
        await self._call(
            principal, lease_id, "artifact", label=name, output={**reference, "size": size}
        )
        return {"hash": digest, "size": size, "name": name}

    async def snapshot(
        self, principal: Principal, lease_id: str, value: Json, label: str | None = None
    ) -> Document:
        """Append a value to the task's context."""
        text = self._snapshot_text(value)
        result = await self._call(principal, lease_id, "snapshot", text=text, label=label)
        return {"snapshot": result.snapshot_id}

    async def complete(
        self,
        principal: Principal,
        lease_id: str,
        output: Json = None,
        snapshot: tuple[Json, str | None] | None = None,
    ) -> Document:
        """End the step with its output."""
        address = _address(lease_id)
        limits = self._worker.services.limits
        schema = await self._schema(address)
        output = everywhere.redact_value(output)
        problem, text = check_output(output, schema, limits.output_bytes)
        if problem is not None:
            raise Problem(422, "invalid", problem.message, errors=[problem.message])
        large = large_text(text, limits.inline_bytes)
        if large is not None:
            output = artifact_rows.reference(await self._keep(large))
            text = json.dumps(output)
        appended = None
        if snapshot is not None:
            appended = (self._snapshot_text(snapshot[0]), snapshot[1])
        result = await self._call(
            principal, lease_id, "complete", text=text, output=output, snapshot=appended
        )
        self._schemas.pop(address.work_id, None)
        return _ended(result)

    async def fail(
        self,
        principal: Principal,
        lease_id: str,
        message: str,
        *,
        code: str = "failed",
        retryable: bool = True,
        delay: float | None = None,
    ) -> Document:
        """End the attempt without success."""
        return _ended(
            await self._call(
                principal,
                lease_id,
                "fail",
                message=everywhere.redact(message),
                code=code,
                is_retryable=retryable,
                delay_seconds=delay,
            )
        )

    async def release(
        self, principal: Principal, lease_id: str, reason: str, checkpoint: Json = None
    ) -> Document:
        """Give the work back."""
        message, saved = everywhere.redact(reason), self._checkpoint(checkpoint)
        return _ended(
            await self._call(principal, lease_id, "release", message=message, checkpoint=saved)
        )

    async def ask(
        self,
        principal: Principal,
        lease_id: str,
        question: str,
        *,
        choices: list[Json] | None = None,
        schema: dict[str, Json] | None = None,
        who: list[str] | None = None,
        expires: float | None = None,
        checkpoint: Json = None,
    ) -> Document:
        """Park the step with a question to a person."""
        asked = {"choices": choices, "schema": schema, "who": who, "expires_seconds": expires}
        json_values.encode(asked, "the question")
        return _ended(
            await self._call(
                principal,
                lease_id,
                "ask",
                message=everywhere.redact(question),
                question=asked,
                checkpoint=self._checkpoint(checkpoint),
            )
        )

    async def block(
        self, principal: Principal, lease_id: str, reason: str, checkpoint: Json = None
    ) -> Document:
        """Park the step until a person says how it goes on."""
        return await self.ask(principal, lease_id, f"blocked: {reason}", checkpoint=checkpoint)

    async def _call(
        self, principal: Principal, lease_id: str, action: LeaseAction, **members: Any
    ) -> LeaseResult:
        """Apply a call with the next commit; raise `LeaseLostError` if its lease does not count."""
        address = _address(lease_id)
        call = LeaseCall(lease_id, address, action, principal.may_work, **members)
        calling = self._worker.external_workers.call(call)
        result = await self._run(calling, COMMIT_TIMEOUT_SECONDS)
        if result.lost is not None:
            raise LeaseLostError(result.lost)
        if result.refusal is not None:
            raise RefusedError(result.refusal)
        return result

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
                return await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(calling, self._worker_loop)
                )
        except TimeoutError:
            text = "the call could not be recorded in time, and may be repeated"
            raise retry_later(503, "unavailable", text, 2) from None
        finally:
            self._waiting -= 1

    async def _document(self, leased: LeasedWork) -> Document:
        row = leased.row
        self._schemas[row.id] = leased.output_schema
        while len(self._schemas) > _MAX_SCHEMAS:
            self._schemas.popitem(last=False)
        return {
            "lease_id": row.lease_id,
            "id": row.id,
            "queue": row.queue,
            "state": row.status,
            "task": row.task_id,
            "workflow": leased.workflow,
            "step": leased.step,
            "parallel_index": None if row.parallel_index < 0 else row.parallel_index,
            "attempt": row.attempt,
            "max_attempts": leased.max_attempts,
            "input": await self._value(row.input),
            "checkpoint": await self._value(leased.checkpoint),
            "answer": None if row.answer is None else json.loads(row.answer),
            "output_schema": leased.output_schema,
            "idempotency_key": leased.remote_key,
            "lease_seconds": row.lease_us / SECOND,
            "lease_expires_at": to_iso(row.lease_expires_at),
            "start_by": to_iso(row.start_by),
            "run_by": to_iso(row.run_by),
            "snapshot": leased.snapshot,
        }

    async def _value(self, text: str | None) -> Json:
        """Return a stored value; a large one is read by its reference."""
        if text is None:
            return None
        if not artifact_rows.looks_like_reference(text):
            return json.loads(text)
        digest = json.loads(text)[artifact_rows.REFERENCE_KEY]
        content = await self._read_pool.read(lambda tx: artifact_rows.get(tx, digest))
        return None if content is None else json.loads(content)

    async def _schema(self, address: LeaseAddress) -> dict[str, Any] | None:
        """Return the schema of the output that work must have."""
        known = self._schemas.get(address.work_id, _UNKNOWN)
        if known is _UNKNOWN:
            known = await self._read_pool.read(lambda tx: _output_schema(tx, address))
        schema: dict[str, Any] | None = known
        return schema

    async def _keep(self, text: str) -> str:
        """Store a large value before the commit that refers to it."""

        def put() -> str:
            with self._database.connect("writer") as tx, tx.transaction():
                return artifact_rows.put(tx, text.encode(), self._database.clock.now())

        return await self._command_pool.run(put)

    def _text(self, value: Json, where: str) -> str:
        return json_values.encode(everywhere.redact_value(value), where)

    def _checkpoint(self, value: Json) -> str | None:
        return None if value is None else self._text(value, "checkpoint")

    def _snapshot_text(self, value: Json) -> str:
        text = self._text(value, "snapshot")
        size = len(text.encode())
        if size > snapshots.MAX_BYTES:
            most = snapshots.MAX_BYTES
            raise Problem(413, "too-large", f"a snapshot of {size} bytes: {most} are allowed")
        return text


def _output_schema(connection: Connection, address: LeaseAddress) -> dict[str, Any] | None:
    definition = work_views.definition_of(connection, address.task_id)
    if definition is None:
        return None
    text, text_hash, _ = workflow_versions.graph_text(connection, *definition)
    steps = Graph.stored(text, text_hash).steps
    return steps[address.step_index].output_schema if address.step_index < len(steps) else None


def _address(lease_id: str) -> LeaseAddress:
    address = parse_lease(lease_id)
    if address is None:
        raise LeaseLostError("unknown")
    return address


def _state(result: LeaseResult) -> Document:
    return {
        "action": result.directive,
        "lease_expires_at": to_iso(result.lease_expires_at),
        "snapshot": None,
    }


def _ended(result: LeaseResult) -> Document:
    return {
        "step": result.step_status,
        "task": result.task_id,
        "is_late": result.is_late,
        "approval": result.approval_id,
        "snapshot": result.snapshot_id,
    }
