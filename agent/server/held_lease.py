"""The requests of an external worker under one lease, and the answers to them.

Values are checked and stored first. The call itself is applied by the engine's worker, in its next commit.
In an answer, `action` is the next action of the external worker: continue, pause, cancel, or read the
newer snapshot (changed).
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeGuard, TypeVar

from agent.approvals.permission import Principal
from agent.core.clock import Clock, to_iso
from agent.core.redaction import everywhere
from agent.core.state_machine import WORK_LEASED, TaskStatus
from agent.server import work_values
from agent.server.db_pool import DbPool
from agent.server.work_values import WorkValues
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import snapshot_rows
from agent.store.read import work_views
from agent.tasks.errors import LeaseLostError, RefusedError
from agent.tasks.read_models import work_documents
from agent.tasks.rules.external_work.work_parts import (
    LeaseCall,
    LeaseResult,
    LeaseVerb,
    parse_lease,
)

Document = dict[str, Any]
Commit = Callable[[LeaseCall], Awaitable[LeaseResult]]
T = TypeVar("T")


class HeldLease:
    """The requests under one lease, from one caller."""

    def __init__(
        self,
        principal: Principal,
        lease_id: str,
        commit: Commit,
        values: WorkValues,
        read_pool: DbPool,
        clock: Clock,
    ) -> None:
        """Raise `LeaseLostError` if the id cannot be one of a lease."""
        address = parse_lease(lease_id)
        if address is None:
            raise LeaseLostError("unknown")
        self._principal = principal
        self._lease_id = lease_id
        self._address = address
        self._commit = commit
        self._values = values
        self._read_pool = read_pool
        self._clock = clock

    async def running(self) -> Document:
        """Record that the work begins."""
        return _directive(await self._call("running"))

    async def heartbeat(self, snapshot: str | None = None) -> Document:
        """Extend the lease; return the worker's next action.

        `snapshot` is the newest that the worker knows, "" if it knows that there is none, and None if it
        does not care.
        """
        address = self._address

        def read(connection: Connection) -> tuple[Document | None, str | None]:
            facts = work_views.lease_facts(connection, address.work_id)
            newest = None
            if facts is not None and snapshot is not None:
                newest = snapshot_rows.newest(connection, [facts["task_id"]]).get(facts["task_id"])
            return facts, newest

        facts, newest = await self._read_pool.read(read)
        answer = self._answer_without_write(facts)
        if answer is None:
            answer = _directive(await self._call("heartbeat"))
        is_newer = newest is not None and newest != snapshot
        if answer["action"] == "continue" and is_newer:
            answer |= {"action": "changed", "snapshot": newest}
        return answer

    def _answer_without_write(self, facts: Document | None) -> Document | None:
        """Return the answer to a heartbeat where the lease was extended lately; else None: it must be written."""
        if not self._is_held(facts):
            return None
        left = facts["lease_expires_at"] - self._clock.now()
        if left <= facts["lease_us"] * 2 // 3:
            return None
        if facts["task_status"] not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
            return None
        action = "pause" if facts["task_status"] == TaskStatus.PAUSED else "continue"
        expires_at = to_iso(facts["lease_expires_at"])
        return {"action": action, "lease_expires_at": expires_at, "snapshot": None}

    async def checkpoint(self, value: Json) -> Document:
        """Save a value for the next attempt."""
        text = work_values.text(value, "value")
        return _directive(await self._call("checkpoint", text=text))

    async def log(self, text: str, stream: str = "log") -> Document:
        """Write to the step's log."""
        message = self._values.log_text(self._address, text)
        if not message:
            return _directive(await self._call("heartbeat"))
        return _directive(await self._call("log", message=message, stream=stream))

    async def artifact(self, name: str, value: Json) -> Document:
        """Keep a value beside the step's output; an event names it."""
        text, size = self._values.artifact_text(value)
        name = everywhere.redact(name)
        self._values.count_artifact(self._address)
        # The lease is checked before anything is stored, and again when the event is recorded.
        await self._call("heartbeat")
        digest = await self._values.keep(text)
        reference = artifact_rows.reference(digest)
        await self._call("artifact", label=name, output={**reference, "size": size})
        return {"hash": digest, "size": size, "name": name}

    async def snapshot(
        self,
        value: Json,
        label: str | None = None,
        client_token: str | None = None,
    ) -> Document:
        """Append a value to the task's context; a repetition with the same token returns the same id."""
        text, label = work_values.snapshot_text(value), work_values.label(label)
        result = await self._call("snapshot", text=text, label=label, client_token=client_token)
        return {"snapshot": result.snapshot_id}

    async def snapshots(self, after: str | None, most: int) -> list[Document]:
        """Return snapshots of the task behind a cursor, the oldest first."""
        return await self._read(
            lambda connection, task_id: work_documents.snapshot_page(
                connection, task_id, after=after, most=most
            )
        )

    async def latest_snapshot(self, label: str | None) -> Document:
        """Return the newest snapshot of the task; raise `NotFoundError` if there is none."""
        return await self._read(
            lambda connection, task_id: work_documents.latest_snapshot(connection, task_id, label)
        )

    async def _read(self, read: Callable[[Connection, str], T]) -> T:
        """Read of the task what the holder of the lease may see; raise `LeaseLostError` if it has ended."""

        def checked(connection: Connection) -> tuple[T] | None:
            facts = work_views.lease_facts(connection, self._address.work_id)
            return (read(connection, facts["task_id"]),) if self._is_held(facts) else None

        found = await self._read_pool.read(checked)
        if found is None:
            # The call says why the lease has ended; to work that was withdrawn it says `cancel`.
            await self._call("heartbeat")
            raise LeaseLostError("withdrawn")
        return found[0]

    def _is_held(self, facts: Document | None) -> TypeGuard[Document]:
        return (
            facts is not None
            and facts["lease_id"] == self._lease_id
            and facts["status"] in WORK_LEASED
            and self._principal.may_work(facts["queue"])
        )

    async def complete(
        self,
        output: Json = None,
        snapshot: tuple[Json, str | None] | None = None,
    ) -> Document:
        """End the step with its output."""
        output, text = await self._values.output(self._address, output)
        new_snapshot = None
        if snapshot is not None:
            value, label = snapshot
            new_snapshot = (work_values.snapshot_text(value), work_values.label(label))
        result = await self._call("complete", text=text, output=output, snapshot=new_snapshot)
        self._values.forget(self._address)
        return _ended(result)

    async def fail(
        self,
        message: str,
        *,
        code: str = "failed",
        retryable: bool = True,
        delay: float | None = None,
    ) -> Document:
        """End the attempt without success."""
        return _ended(
            await self._call(
                "fail",
                message=everywhere.redact(message),
                code=everywhere.redact(code),
                is_retryable=retryable,
                delay_seconds=delay,
            )
        )

    async def release(self, reason: str, checkpoint: Json = None) -> Document:
        """Give the work back."""
        message, text = everywhere.redact(reason), work_values.checkpoint_text(checkpoint)
        return _ended(await self._call("release", message=message, checkpoint=text))

    async def ask(
        self,
        question: str,
        *,
        choices: list[Json] | None = None,
        schema: dict[str, Json] | None = None,
        who: list[str] | None = None,
        expires: float | None = None,
        checkpoint: Json = None,
    ) -> Document:
        """Park the step with a question to a person."""
        options = everywhere.redact_value({"choices": choices, "schema": schema, "who": who})
        options["expires_seconds"] = expires
        json_values.encode(options, "the question")
        return _ended(
            await self._call(
                "ask",
                message=everywhere.redact(question),
                question=options,
                checkpoint=work_values.checkpoint_text(checkpoint),
            )
        )

    async def block(self, reason: str, checkpoint: Json = None) -> Document:
        """Park the step until a person says how it goes on."""
        return await self.ask(f"blocked: {reason}", checkpoint=checkpoint)

    async def _call(self, verb: LeaseVerb, **members: Any) -> LeaseResult:
        """Apply a call with the next commit.

        Raise `LeaseLostError` if the lease has ended, `RefusedError` if the call is not possible.
        """
        may_work = self._principal.may_work
        result = await self._commit(
            LeaseCall(self._lease_id, self._address, verb, may_work, **members)
        )
        if result.lost is not None:
            raise LeaseLostError(result.lost)
        if result.refusal is not None:
            raise RefusedError(result.refusal)
        return result


def _directive(result: LeaseResult) -> Document:
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
