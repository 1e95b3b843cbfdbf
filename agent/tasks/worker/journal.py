"""The journal of a worker: how its running attempts get things recorded."""

import asyncio
from collections.abc import Callable

from agent.steps.attempt import config_record
from agent.steps.types.attempt_input import AttemptInput, BudgetRefusedError, RevokedError
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation
from agent.store.db import json_values
from agent.tasks.commit.batch import JournalEntry
from agent.tasks.worker.attempts import RecordQueue, claim_of


class WorkerJournal:
    """Lets attempts record intents, results, checkpoints and logs with the worker's commits."""

    def __init__(
        self, queue: RecordQueue, wake: Callable[[], None], now: Callable[[], int]
    ) -> None:
        self._queue = queue
        self._wake = wake
        self._now = now
        self._waiting: dict[JournalEntry, asyncio.Future[bool]] = {}

    async def intend(self, attempt_input: AttemptInput, intent: Intent) -> None:
        """Return once the intent is durable; raise `RevokedError` if the claim is gone."""
        await self._record(
            JournalEntry(claim_of(attempt_input), attempt_input.graph, intent=intent)
        )

    async def keep(self, attempt_input: AttemptInput, text: str) -> str | None:
        """Store a large request before its intent; return why that is not possible now."""
        return await self._queue.keep(claim_of(attempt_input), text)

    async def operate(
        self,
        attempt_input: AttemptInput,
        intent: Intent,
        operation: StateOperation | SnapshotOperation,
    ) -> Json:
        """Use `state` or append a snapshot; return the answer once it is durable."""
        entry = JournalEntry(claim_of(attempt_input), attempt_input.graph, intent=intent)
        if isinstance(operation, StateOperation):
            entry.state = operation
        else:
            entry.snapshot = operation
        await self._record(entry)
        return operation.answer

    def resolve(self, attempt_input: AttemptInput, result: CallResult) -> None:
        """Queue a call's result; it is recorded before or with the attempt's outcome."""
        self._queue.add_entry(
            JournalEntry(claim_of(attempt_input), attempt_input.graph, result=result)
        )
        self._wake()

    async def checkpoint(self, attempt_input: AttemptInput, value: Json) -> None:
        """Return once the checkpoint is durable; raise `RevokedError` if the claim is gone."""
        text = json_values.encode(value, "checkpoint")
        await self._record(
            JournalEntry(claim_of(attempt_input), attempt_input.graph, checkpoint=text)
        )

    def log(self, attempt_input: AttemptInput, stream: str, text: str) -> None:
        """Queue a piece of the step's log for the next commit."""
        # A log must not fail a commit: replace characters that the database cannot store.
        text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
        row = (
            attempt_input.task.id,
            attempt_input.step_id,
            attempt_input.attempt,
            self._now(),
            stream,
            text,
        )
        # A configuration is not followed as it is written: it waits for the next commit.
        self._queue.add_log(row, can_wait=stream == config_record.STREAM)

    async def _record(self, entry: JournalEntry) -> None:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[entry] = future
        self._queue.add_entry(entry)
        self._wake()
        try:
            is_recorded = await future
        finally:
            self._waiting.pop(entry, None)
        if not is_recorded and (refusal := entry.refusal) is not None:
            raise BudgetRefusedError(refusal.code, refusal.message, must_fail=refusal.must_fail)
        if entry.state is not None and entry.state.refusal is not None:
            text = entry.state.refusal
            raise DefiniteFailure(text, code="state_full", kind="limit", may_retry=False)
        if entry.snapshot is not None and entry.snapshot.refusal is not None:
            text = entry.snapshot.refusal
            raise DefiniteFailure(text, code="snapshot_refused", kind="limit", may_retry=False)
        if entry.problem is not None:
            text = f"what it is about to do cannot be recorded: {entry.problem}"
            raise DefiniteFailure(text, code="not_recorded", kind="internal")
        if not is_recorded:
            raise RevokedError("the claim on this step is gone")

    def answer(self, entry: JournalEntry, is_recorded: bool) -> None:
        """Resume the attempt that waits for an entry: it is durable, or refused."""
        future = self._waiting.get(entry)
        if future is not None and not future.done():
            future.set_result(is_recorded)

    def refuse_all(self) -> None:
        """Refuse every waiting entry: this worker's claims are gone."""
        for future in self._waiting.values():
            if not future.done():
                future.set_result(False)
