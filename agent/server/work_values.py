"""The values of external workers: the content of a claim, the check of a result, and the place of large ones.

A large value is stored before the commit that refers to it, where `[artifacts]` says, as the outputs of
other steps are. A store that does not answer delays the worker's call, which is repeated.
"""

import asyncio
import json
from collections import Counter, OrderedDict
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.core.redaction import everywhere
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.steps.attempt.context import LOG_ENDS
from agent.steps.attempt.services import Services
from agent.steps.spec.output_checks import check_output, large_text
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.artifacts.artifact_rows import PackedContent
from agent.store.artifacts.blobs import stores_of
from agent.store.db import json_values
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import workflow_versions
from agent.store.read import work_views
from agent.tasks.errors import RefusedError
from agent.tasks.rules import snapshots
from agent.tasks.rules.external_work.work_parts import LeaseAddress, LeasedWork
from agent.workflows.graph import Graph

Document = dict[str, Any]

MAX_ARTIFACTS: Final = 1000
"""Of one piece of work."""
_MAX_WORK: Final = 10_000
"""For as many pieces of work something is kept in memory."""
_UNKNOWN: Final = object()


class WorkValues:
    """Reads and stores the values of work."""

    def __init__(
        self, database: Database, services: Services, read_pool: DbPool, command_pool: DbPool
    ) -> None:
        self._database = database
        # Not its limits: a reload of the configuration replaces them.
        self._services = services
        self._read_pool = read_pool
        self._command_pool = command_pool
        self._schemas: OrderedDict[str, Any] = OrderedDict()
        """The output schemas of work that was claimed here, by the work's id."""
        self._written: OrderedDict[str, Counter[str]] = OrderedDict()
        """What workers have added to the logs (in characters), and how many artifacts, by the work's id."""

    async def document(self, leased: LeasedWork) -> Document:
        """Return the document of claimed work for its worker."""
        row = leased.row
        self._schemas[row.id] = leased.output_schema
        while len(self._schemas) > _MAX_WORK:
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
            # Never a reference, whatever it looks like: a worker could name another's value.
            "checkpoint": None if leased.checkpoint is None else json.loads(leased.checkpoint),
            "answer": None if row.answer is None else json.loads(row.answer),
            "output_schema": leased.output_schema,
            "idempotency_key": leased.remote_key,
            "lease_seconds": row.lease_us / SECOND,
            "lease_expires_at": to_iso(row.lease_expires_at),
            "start_by": to_iso(row.start_by),
            "run_by": to_iso(row.run_by),
            "snapshot": leased.snapshot,
        }

    def forget(self, address: LeaseAddress) -> None:
        """Drop the cached values of work that has ended."""
        self._schemas.pop(address.work_id, None)
        self._written.pop(address.work_id, None)

    def log_text(self, address: LeaseAddress, text: str) -> str:
        """Return a text for the log as it is stored, within the limit of an attempt; nothing beyond it."""
        written = self._written_by(address)
        left = self._services.limits.log_bytes - written["log"]
        if left <= 0:
            return ""
        text = everywhere.redact(text)
        written["log"] += len(text)
        return text if len(text) <= left else f"{text[:left]}{LOG_ENDS}"

    def count_artifact(self, address: LeaseAddress) -> None:
        """Refuse more artifacts than one piece of work may add."""
        written = self._written_by(address)
        if written["artifacts"] >= MAX_ARTIFACTS:
            text = f"this work has added {MAX_ARTIFACTS:,} artifacts, and more are not allowed"
            raise RefusedError(text)
        written["artifacts"] += 1

    def _written_by(self, address: LeaseAddress) -> Counter[str]:
        written = self._written.setdefault(address.work_id, Counter())
        self._written.move_to_end(address.work_id)
        if len(self._written) > _MAX_WORK:
            self._written.popitem(last=False)
        return written

    async def output(self, address: LeaseAddress, output: Json) -> tuple[Json, str]:
        """Return an output and its text as they are recorded; refuse one that its step does not allow."""
        schema = await self._schema(address)
        output = everywhere.redact_value(output)
        problem, text = check_output(output, schema, self._services.limits.output_bytes)
        if problem is not None:
            raise Problem(422, "invalid", problem.message, errors=[problem.message])
        large = large_text(text, self._services.limits.inline_bytes)
        if large is None:
            return output, text
        reference = artifact_rows.reference(await self.keep(large))
        return reference, json.dumps(reference)

    def artifact_text(self, value: Json) -> tuple[str, int]:
        """Return the text and the size of a value to keep; refuse one that is too large."""
        encoded = text(value, "value")
        size, most = len(encoded.encode()), self._services.limits.output_bytes
        if size > most:
            raise Problem(413, "too-large", f"the value is {size} bytes, and {most} are allowed")
        return encoded, size

    async def keep(self, text: str) -> str:
        """Store a large value before the commit that refers to it; return its hash."""
        packed = await self._packed(text.encode())

        def put() -> str:
            with self._database.connect("writer") as tx, tx.transaction():
                return artifact_rows.put(tx, packed, self._database.clock.now())

        return await self._command_pool.run(put)

    async def _packed(self, content: bytes) -> PackedContent:
        """Compress content, and write it to the store outside the database if there is one."""
        url = self._services.limits.artifacts_url
        if not url:
            return await asyncio.to_thread(artifact_rows.pack, content)
        stores = stores_of(self._database)
        try:
            # Not in a pool: a store that hangs must not delay other calls.
            return await stores.breaker(url).call_async(
                lambda: artifact_rows.pack(content, stores.open(url)), stores.timeout_seconds
            )
        except StoreError as error:
            if error.fault is not Fault.UNREACHABLE:
                raise
            raise retry_later(503, "unavailable", f"{error.message}: repeat the call", 2) from None

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


def label(text: str | None) -> str | None:
    """Return the label of a snapshot as it is stored, without secrets."""
    return None if text is None else everywhere.redact(text)


def text(value: Json, where: str) -> str:
    """Return a value as it is stored, without secrets."""
    return json_values.encode(everywhere.redact_value(value), where)


def checkpoint_text(value: Json) -> str | None:
    """Return a checkpoint as it is stored; None if there is none."""
    return None if value is None else text(value, "checkpoint")


def snapshot_text(value: Json) -> str:
    """Return the value of a snapshot as it is stored; refuse one that is too large."""
    encoded = text(value, "snapshot")
    size, most = len(encoded.encode()), snapshots.MAX_BYTES
    if size > most:
        raise Problem(413, "too-large", f"a snapshot of {size} bytes: {most} are allowed")
    return encoded


def _output_schema(connection: Connection, address: LeaseAddress) -> dict[str, Any] | None:
    definition = work_views.definition_of(connection, address.task_id)
    if definition is None:
        return None
    text, text_hash, _ = workflow_versions.graph_text(connection, *definition)
    steps = Graph.stored(text, text_hash).steps
    return steps[address.step_index].output_schema if address.step_index < len(steps) else None
