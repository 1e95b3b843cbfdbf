"""The owner of a worker's commit path: `send` a batch, then `complete` it.

Only the committer holds the connection, the worker's identity, the number of its transactions, the
task cache and the claimed attempts that are not loaded yet. The response to each failure is in `faults`.
Everything here runs in the database thread.
"""

from dataclasses import dataclass, replace
from typing import Final

import structlog

from agent.core.clock import Clock
from agent.core.state_machine import TASK_ENDED, TaskStatus
from agent.steps.attempt.outcome_rules import DECLARED_DEAD
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.outcome import Failed, StepError
from agent.store.artifacts import artifact_rows
from agent.store.db import json_values
from agent.store.db.database import Connection, Database, StoreError
from agent.store.engine import reads, task_rows
from agent.store.schema import migrate
from agent.tasks.commit import large_values, split, transaction
from agent.tasks.commit.attempt_loader import AttemptLoader, ClaimedStep
from agent.tasks.commit.batch import Batch, CommitResult, Completion, TxResult
from agent.tasks.commit.blocked_steps import BlockedSteps
from agent.tasks.commit.faults import (
    NEED_NEW_CONNECTION,
    RESPONSES,
    AnyCause,
    Cause,
    DroppedError,
    FencedError,
    Phase,
    Response,
    cause_of,
)
from agent.tasks.commit.metrics import CommitMetrics
from agent.tasks.commit.pipeline import InFlightTx, Pipeline
from agent.tasks.commit.scope import TxScope
from agent.tasks.commit.session import WorkerSession
from agent.tasks.commit.task_cache import TaskCache
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.settlement import Claim, claim_on
from agent.tasks.state.graph_cache import GraphCache

log = structlog.get_logger(__name__)

_NO_CAPACITY: Final = ClaimCapacity(slots=0, running=0, lease_us=0)
_NOT_WANTED: Final = "the task no longer wants this attempt"


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of a poll, which changes nothing."""

    next_wake_time: int | None
    lost_claims: dict[str, str]
    """Steps that this worker does not own any more, and why."""
    paused_steps: list[str]
    """Steps of paused tasks."""
    failing_steps: list[str]
    """Steps of tasks in which another step failed."""


class Committer:
    """Commits a worker's batches and loads the attempts that they claimed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.metrics = CommitMetrics()
        self.graphs = GraphCache()
        self.cache = TaskCache()
        self.session = WorkerSession(database, clock)
        self._pipeline = Pipeline(self.session)
        self._loader = AttemptLoader(self.graphs)
        self._set_aside = split.SetAsideTasks(clock)
        json_values.use_quick_encoder()

    @property
    def worker_id(self) -> str:
        """The worker's current identity."""
        return self.session.worker_id

    @property
    def connection(self) -> Connection:
        """The connection for commits, opened at its first use."""
        return self.session.connection

    @property
    def blocked(self) -> BlockedSteps:
        """Claimed steps that wait for a download."""
        return self._loader.blocked

    @property
    def pending_attempts(self) -> int:
        """How many claimed attempts the next commit loads."""
        return len(self._loader.pending)

    def enroll(self) -> None:
        """Take a new identity, and drop the claims of the old one."""
        try:
            self.session.enroll()
        except StoreError as error:
            self._handle_failure(Phase.ENROLL, error.fault)
            raise
        self._loader.clear()

    def refuse_newer_schema(self) -> None:
        """Raise `NewerSchemaError` if a newer version has upgraded the database."""
        migrate.refuse_newer(self.connection)

    def commit(self, batch: Batch, capacity: ClaimCapacity) -> CommitResult:
        """Send a batch and complete it."""
        return self.complete(self.send(batch, capacity))

    def send(self, batch: Batch, capacity: ClaimCapacity) -> InFlightTx:
        """Run the transaction of a batch and send it with its COMMIT.

        The caller must pass each transaction to `complete`, in the order of sending. On PostgreSQL it may
        send one batch more before that (`InFlightTx.is_unconfirmed`).
        """
        capacity = self._set_aside.exclude_from(capacity)
        tx = InFlightTx(batch, capacity, began=self.clock.monotonic())
        can_send = self._pipeline.add(tx)
        if can_send:
            self._send(tx)
        return tx

    def complete(self, tx: InFlightTx) -> CommitResult:
        """Wait until a transaction is committed, and load the attempts that it claimed.

        Raise `DroppedError`, `FencedError` or `StoreError` if nothing was committed.
        """
        self._pipeline.confirm(tx)
        self._pipeline.remove(tx)
        if tx.is_dropped:
            raise DroppedError
        committed = self._result_of(tx)
        batch = tx.batch
        items = len(batch.completions) + len(batch.submissions) + len(batch.work)
        self.metrics.add(self.clock.monotonic() - tx.began, items)
        self._loader.add(committed.result)
        if self._loader.pending:
            self._load(committed)
        if not self._loader.pending:
            # A claim that is not loaded yet may still fail its step, in a transaction of its own: the
            # rows of this one would then be out of date.
            self.cache.keep(committed.result)
        return committed

    def poll(self, claims: list[Claim]) -> PollResult:
        """Read when the next task is due, and the state of claims."""
        try:
            soonest = reads.next_wake_time(self.connection)
            step_ids = [claim.step_id for claim in claims]
            rows = reads.claims(self.connection, step_ids) if claims else []
        except StoreError as error:
            self._handle_failure(Phase.POLL, error.fault)
            raise
        by_step = {row[0]: row for row in rows}
        poll = PollResult(soonest, {}, [], [])
        for claim in claims:
            row = by_step.get(claim.step_id)
            if row is None or row[1] != claim.token or row[2] != self.worker_id:
                # The step of a task that goes on was taken over: its attempt may not stop a job that the
                # next one watches, although no commit has found yet that this worker is dead.
                is_wanted = row is not None and row[3] not in TASK_ENDED
                poll.lost_claims[claim.step_id] = DECLARED_DEAD if is_wanted else _NOT_WANTED
            elif row[3] == TaskStatus.PAUSED:
                poll.paused_steps.append(claim.step_id)
            elif row[4] == "failing":
                poll.failing_steps.append(claim.step_id)
        return poll

    def supply(self, address: str, content: bytes | None) -> None:
        """Add a downloaded value; the next commit loads the attempts that are complete with it."""
        self._loader.supply(address, content)

    def _handle_failure(
        self, phase: Phase, cause: AnyCause, batch: Batch | None = None
    ) -> Response:
        """Empty the cache, close a connection that is useless now, and return what must follow.

        No other method empties the cache: after any failure it may hold rows that were never committed.
        """
        response = RESPONSES[phase][cause]
        contended = batch.task_ids() if batch is not None and response is Response.RELOAD else ()
        self.cache.empty(contended)
        if cause in NEED_NEW_CONNECTION:
            self.session.disconnect()
        return response

    def _send(self, tx: InFlightTx) -> None:
        try:
            self._store_large_values(tx.batch)
        except Exception as error:
            tx.error = error
        else:
            self._pipeline.send(tx, self._run)

    def _run(self, connection: Connection, tx: InFlightTx) -> TxResult:
        """Run a transaction on an open connection; the pipeline commits it."""
        capacity = replace(tx.capacity, worker_id=self.session.worker_id, tx_number=tx.tx_number)
        now = self.clock.now()
        scope = TxScope(connection, tx.batch, capacity, self.graphs, self.cache, now, tx.may_assume)
        return transaction.run(scope)

    def _store_large_values(self, batch: Batch) -> None:
        """Store large values as artifacts, before the transaction that refers to them.

        Values for a store outside the database never reach this: the worker has uploaded them.
        """
        parts = large_values.large_parts(batch)
        if parts:
            now, connection = self.clock.now(), self.connection
            packed = [part.packed or artifact_rows.pack(part.content) for part in parts]
            with connection.transaction():
                for content in packed:
                    artifact_rows.put(connection, content, now)
            for part, content in zip(parts, packed, strict=True):
                part.replace(artifact_rows.reference(content.name))

    def _result_of(self, tx: InFlightTx) -> CommitResult:
        """Return the result of a transaction; where it failed, reload it, split it or raise its error."""
        while (cause := tx.cause) is not None:
            response = self._handle_failure(Phase.COMMIT, cause, tx.batch)
            if response is Response.PROCEED:
                break
            if response is Response.RELOAD:
                tx.may_assume = False
                self._send(tx)
            elif response is Response.SPLIT:
                return self._split(tx)
            else:
                assert tx.error is not None
                raise tx.error
        assert tx.result is not None
        return CommitResult(tx.result)

    def _split(self, tx: InFlightTx) -> CommitResult:
        """Commit a batch part by part, because something in it is bad."""
        if tx.cause is Cause.CODE:
            log.error("commit.defect", exc_info=tx.error)
        log.warning("commit.split", error=str(tx.error), outcomes=len(tx.batch.completions))
        total, tx_number = CommitResult(TxResult()), self.session.tx_number
        try:
            self._commit_parts(tx, total)
        except (StoreError, FencedError) as error:
            if self.session.tx_number == tx_number:
                raise
            # Some parts are committed, and the caller must act on them. `total.rest` has the others: the
            # next transaction sends them, and handles the same fault if it lasts.
            log.warning("commit.split_interrupted", error=str(error))
        return total

    def _commit_parts(self, tx: InFlightTx, total: CommitResult) -> None:
        if tx.batch.is_empty:
            split.commit_due_tasks(
                self.connection,
                tx.capacity,
                self._commit_part,
                total,
                self._set_aside,
                self._loader,
                self.clock.now(),
            )
        else:
            split.commit_parts(tx.batch, tx.capacity, self._commit_part, total, self._task_exists)

    def _task_exists(self, task_id: str) -> bool:
        return bool(task_rows.existing_tasks(self.connection, [task_id]))

    def _commit_part(
        self, batch: Batch, capacity: ClaimCapacity, total: CommitResult
    ) -> str | None:
        """Commit one part of a batch; return why it is refused, None if it is committed.

        Raise errors that are no fault of the part.
        """
        tx = InFlightTx(batch, self._set_aside.exclude_from(capacity), may_assume=False)
        self._pipeline.send(tx, self._run)
        response = Response.PROCEED
        if tx.cause is not None:
            response = self._handle_failure(Phase.PART, tx.cause)
        if response is Response.PROCEED:
            assert tx.result is not None
            total.result.merge(tx.result)
            return None
        assert tx.error is not None
        if response is not Response.REFUSE:
            raise tx.error
        if isinstance(tx.error, StoreError):
            return tx.error.message
        log.error("commit.bad_part", exc_info=tx.error)
        return f"{type(tx.error).__name__}: {tx.error}"

    def _load(self, committed: CommitResult) -> None:
        """Load the pending attempts. Those that the database does not yield now stay pending."""
        try:
            committed.attempts = self._load_pending(committed)
        except StoreError as error:
            log.warning("attempts.delayed", fault=str(error.fault), error=error.message)
            return
        committed.is_isolated = self._loader.is_isolated
        self._loader.blocked.tidy()

    def _load_pending(self, committed: CommitResult) -> list[AttemptInput]:
        """Load all pending attempts at once; one by one where something in them is bad."""
        try:
            return self._loader.load_all(self.connection)
        except Exception as error:
            if self._handle_failure(Phase.LOAD, cause_of(error)) is not Response.SPLIT:
                raise
        # `_fail_step` commits a transaction of its own, which no unconfirmed one may precede.
        self._pipeline.confirm_all()
        return self._load_each(committed)

    def _load_each(self, committed: CommitResult) -> list[AttemptInput]:
        """Load pending attempts one by one, so that a bad record costs only its own step."""
        attempts: list[AttemptInput] = []
        loaded: list[ClaimedStep] = []
        for claimed in list(self._loader.pending):
            try:
                attempts += self._loader.load_one(self.connection, claimed)
                loaded.append(claimed)
            except Exception as error:
                response = self._handle_failure(Phase.LOAD_ONE, cause_of(error))
                if response is Response.FETCH:
                    self._loader.block(claimed)
                elif response is Response.FAIL_STEP:
                    self._fail_step(claimed, error, committed)
                else:
                    raise
        for claimed in loaded:
            self._loader.discard(claimed)
        return attempts

    def _fail_step(self, claimed: ClaimedStep, error: Exception, committed: CommitResult) -> None:
        """Fail a claimed step whose record cannot be read."""
        locked, step = claimed
        log.error("attempt.unreadable", task=locked.task.id, step=step.id, exc_info=error)
        reason = f"the stored record of this step cannot be read: {error}"
        failed = Failed(StepError("bad_record", "internal", reason))
        batch = Batch(completions=[Completion(claim_on(step), locked.graph, failed)])
        refusal = self._commit_part(batch, _NO_CAPACITY, committed)
        if refusal is not None:
            # Nothing can be written to its task. The step stays claimed by this worker until the worker
            # ends; then another one takes the step over.
            log.error("step.cannot_be_failed", task=locked.task.id, step=step.id, error=refusal)
        # Only now: after a fault of the database the claim must still be pending, or the step would stay
        # running without an attempt.
        self._loader.discard(claimed)
