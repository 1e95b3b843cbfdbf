"""What becomes of a batch: a turn that is sent, the attempts that follow, and what to do if it fails.

Everything here runs in the database's thread. Only a data error is an outcome's own fault; any other
error repeats the same turn.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from agent.core.clock import Clock
from agent.core.state_machine import TaskStatus
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.outcome import Failed, StepError
from agent.store.artifacts import artifact_rows
from agent.store.artifacts.artifact_rows import NotFetchedError
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import reads
from agent.tasks.commit import large_values
from agent.tasks.commit.attempt_inputs import Memory, equip
from agent.tasks.commit.batch import Batch, Completion, TxResult
from agent.tasks.commit.metrics import CommitMetrics
from agent.tasks.commit.pipeline import InFlightTx, Sender
from agent.tasks.commit.transaction import FencedError
from agent.tasks.commit.unfetched_steps import WaitingRoom
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.settlement import Claim, claim_on
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

log = structlog.get_logger(__name__)

_SET_ASIDE_SECONDS: Final = 60.0
_MOST_APART: Final = 64
_NO_ROOM: Final = ClaimCapacity(worker_id="", turn=0, slots=0, running=0, lease_us=0)


@dataclass(slots=True)
class CommitResult:
    """A committed turn and the attempts to start."""

    turned: TxResult
    attempts: list[AttemptInput] = field(default_factory=list)
    is_alone: bool = False
    """Whether those attempts run with nothing beside them."""
    refused: dict[str, str] = field(default_factory=dict)
    """Submissions that cannot be created, by their proposed ids, and why."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the database found, without changing anything."""

    next_wake_time: int | None
    stops: list[str]
    """Steps whose claims are gone."""
    pauses: list[str]
    """Steps of paused tasks."""
    failing: list[str]
    """Steps of tasks that another step has failed."""


class Delivery:
    """Commits a worker's batches and prepares what they claimed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.clock = clock
        self.sender = Sender(database, clock)
        self.memory = Memory()
        self.turns = CommitMetrics()
        self.waiting_room = WaitingRoom()
        self._unequipped: list[tuple[LockedTask, StepRow]] = []
        self._is_alone = False
        self._set_aside: dict[str, float] = {}
        """Tasks that could not be looked at, and until when nobody tries again."""

    @property
    def has_unequipped(self) -> bool:
        """Whether something is claimed whose attempt could not be prepared yet."""
        return bool(self._unequipped)

    @property
    def unequipped(self) -> int:
        """How many steps are claimed whose attempts are about to be prepared."""
        return len(self._unequipped)

    def enroll(self) -> None:
        """Take a new identity: what the old one had claimed is others'."""
        self.sender.enroll()
        self._unequipped = []
        self.waiting_room.clear()

    def deliver(self, batch: Batch, room: ClaimCapacity) -> CommitResult:
        """Commit a turn and prepare the attempts that it claimed."""
        delivered = self.land(self.launch(batch, room))
        assert delivered is not None
        return delivered

    def launch(self, batch: Batch, room: ClaimCapacity) -> InFlightTx:
        """Send a turn without waiting for it, if all that it is about is remembered.

        The next one can be computed, and sent, while the database is at work on it.
        """
        flight = InFlightTx(batch, self._without_set_aside(room), began=self.clock.monotonic())
        self.sender.flights.append(flight)
        try:
            self._keep_apart(batch)
            self.sender.send(flight)
        except Exception as error:
            # Told when it lands: whoever was sent before is to land first.
            flight.error = error
            self.sender.cache.forget()
        return flight

    def land(self, flight: InFlightTx) -> CommitResult | None:
        """Wait until a turn is committed and prepare the attempts that it claimed.

        None: one that was sent before it has failed, and nothing came of this one either. Turns
        land in the order in which they were sent.
        """
        self.sender.wait_for(flight)
        self.sender.flights.remove(flight)
        if flight.is_dropped:
            return None
        batch, room = flight.batch, flight.room
        try:
            delivered = CommitResult(self.sender.turned(flight))
        except FencedError:
            raise
        except StoreError as error:
            if _is_passing(error):
                self.sender.after_failure(error)
                raise
            delivered = self._deliver_apart(batch, room, error)
        except Exception as error:
            log.exception("turn.defect")
            delivered = self._deliver_apart(batch, room, error)
        began = flight.began
        self.turns.add(self.clock.monotonic() - began, len(batch.settles) + len(batch.submissions))
        self.memory.learn(delivered.turned.locked_tasks)
        if delivered.turned.claimed:
            self._unequipped += delivered.turned.claimed
            self._is_alone = delivered.turned.is_alone
        if self._unequipped:
            self._equip(delivered)
        if not self._unequipped:
            self.sender.cache.keep(delivered.turned)
        return delivered

    def _equip(self, delivered: CommitResult) -> None:
        """Prepare the attempts of what is claimed; without the database, with the next turn."""
        try:
            try:
                attempts = equip(
                    self.sender.connection,
                    self._unequipped,
                    self.memory,
                    self.sender.graphs,
                    self.waiting_room.fetched,
                )
            except Exception as error:
                if _is_passing(error):
                    raise
                for flight in self.sender.flights:
                    self.sender.wait_for(flight)
                attempts = self._equip_apart(delivered)
        except StoreError as error:
            # The turn is committed: to send it again would leave its claims to nobody.
            self.sender.after_failure(error)
            log.warning("attempts.delayed", fault=str(error.fault), error=error.message)
            return
        self._unequipped = []
        delivered.attempts, delivered.is_alone = attempts, self._is_alone
        self.waiting_room.tidy()

    def _equip_apart(self, delivered: CommitResult) -> list[AttemptInput]:
        """Prepare attempts one by one; a step whose record cannot be read fails, and says so."""
        attempts: list[AttemptInput] = []
        for locked, step in list(self._unequipped):
            try:
                attempts += equip(
                    self.sender.connection,
                    [(locked, step)],
                    self.memory,
                    self.sender.graphs,
                    self.waiting_room.fetched,
                )
            except NotFetchedError:
                self.waiting_room.add(locked, step, is_alone=self._is_alone)
                self._unequipped.remove((locked, step))
                # Its unit stands aside as it is: turns that follow read their own.
                self.sender.cache.forget()
            except Exception as error:
                if _is_passing(error):
                    raise
                log.exception("attempt.unreadable", task=locked.task.id, step=step.id)
                text = f"what is on record of it cannot be read: {error}"
                failed = Failed(StepError("bad_record", "internal", text))
                self._unequipped.remove((locked, step))
                batch = Batch(settles=[Completion(claim_on(step), locked.graph, failed)])
                self._alone(batch, _NO_ROOM, delivered)
                self.sender.cache.forget()
        return attempts

    def supply(self, address: str, content: bytes | None) -> None:
        """Take a value that was fetched; who has all that it needs is prepared with the next turn."""
        for each in self.waiting_room.supply(address, content):
            self._unequipped.append((each.locked, each.step))
            self._is_alone = each.is_alone

    def _keep_apart(self, batch: Batch) -> None:
        """Put what is large into artifacts, before the turn that refers to it.

        What is kept outside the database was written there before it came here.
        """
        apart = large_values.large_parts(batch)
        if apart:
            now = self.clock.now()
            packed = [part.packed or artifact_rows.pack(part.content) for part in apart]
            connection = self.sender.connection
            with connection.transaction():
                for each in packed:
                    artifact_rows.put(connection, each, now)
            for part, each in zip(apart, packed, strict=True):
                part.replace(artifact_rows.reference(each.name))

    def _deliver_apart(self, batch: Batch, room: ClaimCapacity, error: Exception) -> CommitResult:
        """Deliver a batch that failed for its own sake: each part alone, the bad ones replaced.

        A bad outcome keeps its verdict in the ledger; its output is replaced by the reason.
        """
        log.warning("turn.split", error=str(error), outcomes=len(batch.settles))
        total = CommitResult(TxResult())
        nothing = replace(room, slots=0, most_due=0)
        for note in batch.notes:
            note.problem = self._alone(Batch(notes=[note]), nothing, total)
            if note.problem is not None:
                # Its attempt waits for an answer.
                total.turned.noted.append((note, False))
        for settle in batch.settles:
            failure = self._alone(Batch(settles=[settle]), nothing, total)
            if failure is not None:
                reason = StepError("bad_outcome", "internal", f"it could not be kept: {failure}")
                replaced = Completion(settle.claim, settle.graph, Failed(reason))
                if self._alone(Batch(settles=[replaced]), nothing, total) is not None:
                    # Whatever its task is, nothing can be written of it: the slot at least is free.
                    total.turned.settled.append((settle, False))
        for submission in batch.submissions:
            failure = self._alone(Batch(submissions=[submission]), nothing, total)
            if failure is not None:
                total.refused[submission.task_id] = failure
        for end in batch.child_ends:
            self._alone(Batch(child_ends=[end]), nothing, total)
        if batch.logs:
            self._alone(Batch(logs=batch.logs), nothing, total)
        if batch.is_empty:
            # Claiming itself failed: nothing of ours to blame, but something that is due.
            self._alone(Batch(), nothing, total)
            total.turned.has_more = self._look_apart(room, total)
        else:
            total.turned.has_more = True
        # Several transactions, each with units of its own.
        self.sender.cache.forget()
        return total

    def _look_apart(self, room: ClaimCapacity, total: CommitResult) -> bool:
        """Look at what is due task by task, and set aside what cannot be looked at.

        One task whose record is broken must not stop all others. Return whether any was claimed.
        """
        now, most = self.clock.now(), min(room.most_due, _MOST_APART)
        connection = self.sender.connection
        due = frozenset(str(row[0]) for row in reads.due_tasks(connection, now, most))
        claimed = 0
        for task_id in sorted(due - self._still_set_aside()):
            alone = replace(
                room,
                slots=max(room.slots - claimed, 0),
                running=room.running + claimed,
                passed_over=due - {task_id},
            )
            failure = self._alone(Batch(), alone, total)
            if failure is not None:
                log.error("task.set_aside", task=task_id, error=failure)
                self._set_aside[task_id] = self.clock.monotonic() + _SET_ASIDE_SECONDS
            # At once: should the next one fail for the database's sake, these are claimed.
            self._unequipped += total.turned.claimed
            self._is_alone = total.turned.is_alone
            claimed += len(total.turned.claimed)
            total.turned.claimed = []
            if total.turned.is_alone or total.turned.is_draining:
                break
        return claimed > 0

    def _without_set_aside(self, room: ClaimCapacity) -> ClaimCapacity:
        if not self._set_aside:
            return room
        return replace(room, passed_over=room.passed_over | self._still_set_aside())

    def _still_set_aside(self) -> frozenset[str]:
        now = self.clock.monotonic()
        self._set_aside = {task: until for task, until in self._set_aside.items() if until > now}
        return frozenset(self._set_aside)

    def _alone(self, batch: Batch, room: ClaimCapacity, total: CommitResult) -> str | None:
        try:
            turned = self.sender.commit(batch, self._without_set_aside(room))
        except FencedError:
            raise
        except StoreError as error:
            if _is_passing(error):
                self.sender.after_failure(error)
                raise
            return error.message
        except Exception as error:
            log.exception("turn.bad_part")
            return f"{type(error).__name__}: {error}"
        _merge(total.turned, turned)
        return None

    def look(self, claims: list[Claim]) -> Look:
        """Find out what is due next, and what became of claims in flight; changes nothing."""
        connection = self.sender.connection
        try:
            soonest = reads.next_wake_time(connection)
            found = {}
            if claims:
                rows = reads.claims(connection, [claim.step_id for claim in claims])
                found = {row[0]: row for row in rows}
        except StoreError as error:
            self.sender.after_failure(error)
            raise
        look = Look(soonest, [], [], [])
        for claim in claims:
            row = found.get(claim.step_id)
            if row is None or row[1] != claim.token or row[2] != self.sender.worker_id:
                look.stops.append(claim.step_id)
            elif row[3] == TaskStatus.PAUSED:
                look.pauses.append(claim.step_id)
            elif row[4] == "failing":
                look.failing.append(claim.step_id)
        return look


def _is_passing(error: Exception) -> bool:
    """Whether an error is the database's, and what met it can be tried again."""
    return isinstance(error, StoreError) and error.fault not in (Fault.DATA, Fault.DEFECT)


def _merge(total: TxResult, part: TxResult) -> None:
    total.created.update(part.created)
    total.is_alone = total.is_alone or part.is_alone
    total.is_draining = total.is_draining or part.is_draining
    for name in (
        "claimed",
        "settled",
        "noted",
        "carried_settles",
        "carried_notes",
        "carried_ends",
        "stops",
        "ended",
        "orphans",
        "pauses",
        "events",
        "locked_tasks",
    ):
        getattr(total, name).extend(getattr(part, name))
