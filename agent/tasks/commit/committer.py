"""The owner of a worker's commit path: `send` a batch, then `complete` it.

Only the committer holds the connection, the worker's identity, the number of its transactions, the
task cache and the claimed attempts that are not loaded yet. What follows each failure is in `faults`.
Everything here runs in the database thread.
"""

from dataclasses import dataclass, replace
from typing import Final

import structlog

from agent.core.clock import Clock
from agent.core.state_machine import TaskStatus
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


@dataclass(frozen=True, slots=True)
class PollResult:
    """What a poll found, without changing anything."""

    next_wake_time: int | None
    stops: list[str]
    """Steps whose claims are gone."""
    pauses: list[str]
    """Steps of paused tasks."""
    failing: list[str]
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
        """Take a new identity, and drop what the old one had claimed."""
        try:
            self.session.enroll()
        except StoreError as error:
            self._respond(Phase.ENROLL, error.fault)
            raise
        self._loader.clear()

    def refuse_newer_schema(self) -> None:
        """Raise `NewerSchemaError` if a newer version has upgraded the database."""
        migrate.refuse_newer(self.connection)

    def commit(self, batch: Batch, capacity: ClaimCapacity) -> CommitResult:
        """Send a batch and complete it."""
        return self.complete(self.send(batch, capacity))

    def send(self, batch: Batch, capacity: ClaimCapacity) -> InFlightTx:
        """Run the transaction of a batch and send it; `complete` must follow, in the same order.

        Where it is not confirmed yet, another batch may be sent first.
        """
        capacity = self._set_aside.exclude_from(capacity)
        tx = InFlightTx(batch, capacity, began=self.clock.monotonic())
        if self._pipeline.add(tx):
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
        done = self._outcome(tx)
        carried = len(tx.batch.completions) + len(tx.batch.submissions)
        self.metrics.add(self.clock.monotonic() - tx.began, carried)
        self._loader.add(done.result)
        if self._loader.pending:
            self._load(done)
        if not self._loader.pending:
            self.cache.keep(done.result)
        return done

    def poll(self, claims: list[Claim]) -> PollResult:
        """Read when the next task is due, and what became of claims."""
        try:
            soonest = reads.next_wake_time(self.connection)
            step_ids = [claim.step_id for claim in claims]
            rows = reads.claims(self.connection, step_ids) if claims else []
        except StoreError as error:
            self._respond(Phase.POLL, error.fault)
            raise
        found = {row[0]: row for row in rows}
        poll = PollResult(soonest, [], [], [])
        for claim in claims:
            row = found.get(claim.step_id)
            if row is None or row[1] != claim.token or row[2] != self.worker_id:
                poll.stops.append(claim.step_id)
            elif row[3] == TaskStatus.PAUSED:
                poll.pauses.append(claim.step_id)
            elif row[4] == "failing":
                poll.failing.append(claim.step_id)
        return poll

    def supply(self, address: str, content: bytes | None) -> None:
        """Add a downloaded value; the next commit loads the attempts that are complete with it."""
        self._loader.supply(address, content)

    def _respond(self, phase: Phase, cause: AnyCause, batch: Batch | None = None) -> Response:
        """Return what follows a failure.

        Only this empties the cache: after any failure it may hold rows that were never committed.
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

        What belongs outside the database was uploaded before it came here.
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

    def _outcome(self, tx: InFlightTx) -> CommitResult:
        """Return what a transaction did; reload or split it, or raise why it failed."""
        while (cause := tx.cause) is not None:
            response = self._respond(Phase.COMMIT, cause, tx.batch)
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
            # What was committed stands. The next transaction meets the same fault, and decides.
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
        """Commit one part of a batch; return why it is refused, None if it is not."""
        tx = InFlightTx(batch, self._set_aside.exclude_from(capacity), may_assume=False)
        self._pipeline.send(tx, self._run)
        cause = tx.cause
        if cause is not None and self._respond(Phase.PART, cause) is not Response.PROCEED:
            assert tx.error is not None
            if RESPONSES[Phase.PART][cause] is not Response.REFUSE:
                raise tx.error
            if isinstance(tx.error, StoreError):
                return tx.error.message
            log.error("commit.bad_part", exc_info=tx.error)
            return f"{type(tx.error).__name__}: {tx.error}"
        assert tx.result is not None
        total.result.merge(tx.result)
        return None

    def _load(self, done: CommitResult) -> None:
        """Load the pending attempts; where that fails, the next commit tries again."""
        try:
            try:
                attempts = self._loader.load_all(self.connection)
            except Exception as error:
                if self._respond(Phase.LOAD, cause_of(error)) is not Response.SPLIT:
                    raise
                # A step that fails is committed at once: nothing may be in flight beside that.
                self._pipeline.confirm_all()
                attempts = self._load_each(done)
        except StoreError as error:
            log.warning("attempts.delayed", fault=str(error.fault), error=error.message)
            return
        done.attempts, done.is_isolated = attempts, self._loader.is_isolated
        self._loader.blocked.tidy()

    def _load_each(self, done: CommitResult) -> list[AttemptInput]:
        """Load pending attempts one by one, so that a bad record costs only its own step."""
        attempts: list[AttemptInput] = []
        loaded: list[ClaimedStep] = []
        for claimed in list(self._loader.pending):
            try:
                attempts += self._loader.load_one(self.connection, claimed)
                loaded.append(claimed)
            except Exception as error:
                response = self._respond(Phase.LOAD_ONE, cause_of(error))
                if response is Response.FETCH:
                    self._loader.block(claimed)
                elif response is Response.FAIL_STEP:
                    self._fail_step(claimed, error, done)
                else:
                    raise
        for claimed in loaded:
            self._loader.discard(claimed)
        return attempts

    def _fail_step(self, claimed: ClaimedStep, error: Exception, done: CommitResult) -> None:
        """Fail a claimed step whose record cannot be read."""
        locked, step = claimed
        log.error("attempt.unreadable", task=locked.task.id, step=step.id, exc_info=error)
        reason = f"what is on record of it cannot be read: {error}"
        failed = Failed(StepError("bad_record", "internal", reason))
        self._loader.discard(claimed)
        batch = Batch(completions=[Completion(claim_on(step), locked.graph, failed)])
        self._commit_part(batch, _NO_CAPACITY, done)
