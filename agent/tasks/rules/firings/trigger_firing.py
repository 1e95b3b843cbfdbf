"""Applies one plan to one locked trigger: its runs are started, queued or skipped, by its overlap.

`firing` applies many plans in one transaction; a `TriggerFiring` decides one of them. It reads nothing but
the endings of the trigger's last tasks, and writes nothing: its rows are collected for `firing`.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from agent.core.clock import CLOCK_ERROR_US, SECOND
from agent.core.ids import new_id
from agent.core.state_machine import FIRING, TRIGGER, FiringStatus, TriggerStatus, moved
from agent.steps.types.outcome import Json
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules import creation
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.firings.trigger_update import FireResult, Mark, Run, TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.locked_task import LockedTask


@dataclass(slots=True)
class QueuedRun:
    """A run that waits for its time, or for other tasks of its trigger to end."""

    run_id: str
    keys: list[str]
    due_at: int
    nominal_at: int | None
    input: str
    context: str
    workflow_version: int
    recorded_at: int
    is_new: bool = False
    """Whether this transaction records it."""


@dataclass(slots=True)
class _Starting:
    """A task that this transaction creates."""

    submission: Submission
    version: int
    keys: list[str]
    is_recorded: bool = False
    """Whether its firings were recorded by an earlier transaction, as queued."""


_LATE_US: Final = 60 * SECOND
"""A run that starts this much after its time counts as late."""


def _without(runs: list[Run], taken: set[str]) -> list[Run]:
    """Return runs without the keys that have a fate already."""
    if not taken:
        return runs
    left = [
        replace(run, keys=tuple(pair for pair in run.keys if pair[0] not in taken)) for run in runs
    ]
    return [run for run in left if run.keys]


class TriggerFiring:
    """One plan on one locked trigger: decides fates, then creates the tasks of those that start."""

    def __init__(
        self,
        tx: Connection,
        graphs: GraphCache,
        row: TriggerRow,
        update: TriggerUpdate,
        now: int,
        open_tasks: list[tuple[str, bool]],
        queue: list[QueuedRun],
    ) -> None:
        self.row = row
        self.update = update
        self.result = FireResult("applied")
        self.new_rows: list[dict[str, Any]] = []
        self.settled: list[tuple[str, str, str, str | None, str | None]] = []
        self.events: list[tuple[Any, ...]] = []
        self.changes: dict[str, Any] = {}
        self._tx = tx
        self._graphs = graphs
        self._now = now
        spec = json_values.decode(row.spec)
        self._overlap: str = spec.get("overlap", "skip" if row.kind == "schedule" else "allow")
        ignores_waiting = spec.get("overlap_ignores_waiting", False)
        self._most_failures: int | None = spec.get("pause_after_failures")
        self._open = [
            task_id for task_id, only_waits in open_tasks if not (only_waits and ignores_waiting)
        ]
        self._queue = queue
        self._starting: list[_Starting] = []

    def decide(self, taken: set[str]) -> None:
        """Give every run of the plan its fate, then start the queued runs that may start.

        `taken` are the keys that have a fate already: no run starts for them.
        """
        update = self.update
        if update.version is not None:
            self.changes = {**update.values, "version": self.row.version + 1}
        for event, data in update.events:
            self._emit(event, data)
        if update.drop_queued is not None:
            for queued in self._queue:
                self._settle(queued, "firing.skipped", update.drop_queued)
            self._queue = []
        self.new_rows += [self._mark_row(mark) for mark in update.marks]
        is_pausing = self._pause_after_failures()
        for run in _without(update.runs, taken):
            if is_pausing and not run.ignores_overlap:
                self._record(run, FiringStatus.SKIPPED, "paused after failures")
            else:
                self._place(run)
        if self.changes.get("status", self.row.status) == TriggerStatus.ACTIVE:
            self._release()

    def _place(self, run: Run) -> None:
        """Start a run, queue it, or skip it."""
        if run.ignores_overlap:
            self._start(run)
        elif run.is_queued or run.due_at > self._now:
            self._enqueue(run)
        elif self._overlap == "allow" or not self._is_busy():
            self._start(run)
        elif self._overlap == "queue_all" or (self._overlap == "queue" and not self._queue):
            self._enqueue(run)
        elif self._overlap == "queue":
            self._record(run, FiringStatus.SKIPPED, "another run is queued already")
        elif self._overlap == "cancel_other":
            for queued in self._queue:
                self._settle(queued, "firing.skipped", "a later run replaced it")
            self._queue = []
            self._enqueue(run)
        else:
            self._record(run, FiringStatus.SKIPPED, self._why_busy())

    def _is_busy(self) -> bool:
        return bool(self._open or self._starting or self._queue)

    def _why_busy(self) -> str:
        if self._open:
            return f"task {self._open[-1]} is still open"
        return "another run is queued" if self._queue else "another run starts at the same time"

    def _release(self) -> None:
        """Start queued runs whose time has come, as the overlap allows."""
        for queued in list(self._queue):
            if not self._is_due(queued):
                continue
            if self._overlap != "allow" and (self._open or self._starting):
                break
            self._queue.remove(queued)
            self._start_queued(queued)
        if self._overlap == "cancel_other" and any(map(self._is_due, self._queue)):
            self.result.superseded = list(self._open)

    def _is_due(self, queued: QueuedRun) -> bool:
        # Runs that a clock ahead of time has queued must not wait until that time comes.
        return queued.due_at <= self._now or queued.recorded_at > self._now + CLOCK_ERROR_US

    def _start(self, run: Run) -> None:
        """Start a run that was not queued."""
        try:
            starting = self._task_of(self._queued(run))
        except UnreadableError as error:
            self._record(run, FiringStatus.SKIPPED, str(error))
            return
        status = FiringStatus.LATE if run.is_late else FiringStatus.STARTED
        for key, nominal_at in run.keys:
            row = self._row_of(key, nominal_at, status, run.reason)
            row |= {"task_id": starting.submission.task_id, "due_at": run.due_at}
            self.new_rows.append(row)
        self._starting.append(starting)

    def _start_queued(self, queued: QueuedRun) -> None:
        """Start a run that leaves the queue."""
        try:
            starting = self._task_of(queued)
        except UnreadableError as error:
            self._settle(queued, "firing.skipped", str(error))
            return
        is_late = self._is_late(queued, starting)
        event = "firing.started_late" if is_late else "firing.started"
        self._settle(queued, event, None, starting.submission.task_id)
        starting.is_recorded = not queued.is_new
        self._starting.append(starting)

    def _is_late(self, queued: QueuedRun, starting: _Starting) -> bool:
        """Whether a queued run was late when it was queued, or became so."""
        was_late = starting.submission.trigger.get("fate") == "late"
        return was_late or queued.due_at + _LATE_US < self._now

    def _task_of(self, queued: QueuedRun) -> "_Starting":
        """Return the task of a run; raise `UnreadableError` if its workflow cannot be read."""
        row, version = self.row, queued.workflow_version
        context = json_values.decode(queued.context)
        if queued.nominal_at is not None:
            context["late_by"] = max(0.0, (self._now - queued.nominal_at) / SECOND)
        submission = Submission(
            graph=self._graphs.get(self._tx, row.workflow, version),
            input=json_values.decode(queued.input),
            trigger=context,
            trigger_id=row.id,
            path=self._graphs.path(self._tx, row.workflow, version),
        )
        return _Starting(submission, version, queued.keys)

    def _enqueue(self, run: Run) -> None:
        queued = self._queued(run)
        self._queue.append(queued)
        for number, (key, nominal_at) in enumerate(run.keys):
            row = self._row_of(key, nominal_at, FiringStatus.QUEUED, run.reason)
            row |= {"run_id": queued.run_id, "due_at": run.due_at}
            row["workflow_version"] = run.workflow_version
            if number == 0:
                row |= {"input": queued.input, "context": queued.context}
            self.new_rows.append(row)

    def _queued(self, run: Run) -> QueuedRun:
        return QueuedRun(
            new_id(),
            [key for key, _ in run.keys],
            run.due_at,
            run.keys[0][1],
            json_values.encode(run.input, "input"),
            json_values.encode(run.context, "trigger"),
            run.workflow_version,
            self._now,
            is_new=True,
        )

    def _record(self, run: Run, status: FiringStatus, reason: str) -> None:
        self.new_rows += [
            self._row_of(key, nominal_at, status, reason) for key, nominal_at in run.keys
        ]

    def _row_of(
        self, key: str, nominal_at: int | None, status: FiringStatus, reason: str | None
    ) -> dict[str, Any]:
        self.result.fates[key] = status
        return {
            "trigger_id": self.row.id,
            "key": key,
            "status": status,
            "reason": reason,
            "nominal_at": nominal_at,
            "spec_hash": self.row.spec_hash,
            "recorded_at": self._now,
            "seen_at": self._now,
        }

    def _mark_row(self, mark: Mark) -> dict[str, Any]:
        row = self._row_of(mark.key, mark.nominal_at, mark.status, mark.reason)
        return row | {"until_at": mark.until_at, "count": mark.count, "run_id": mark.run_id}

    def _settle(
        self, queued: QueuedRun, event: str, reason: str | None, task_id: str | None = None
    ) -> None:
        """Give a queued run of an earlier transaction, or of this one, its fate."""
        status = FiringStatus(moved(FIRING, event, FiringStatus.QUEUED))
        for key in queued.keys:
            self.result.fates[key] = status
            self.settled.append((self.row.id, key, status, reason, task_id))

    def _pause_after_failures(self) -> bool:
        """Pause the trigger if its last tasks all failed; return whether it is paused for that."""
        most = self._most_failures
        status = self.changes.get("status", self.row.status)
        if most is None or status != TriggerStatus.ACTIVE:
            return False
        # A resume starts the count again, with the very change that it makes.
        since = self.changes.get("resumed_at", self.row.resumed_at) or 0
        endings = trigger_rows.last_endings(self._tx, self.row.id, since, most)
        if len(endings) < most or any(ending != "failed" for ending in endings):
            return False
        reason = f"its last {most} tasks failed" if most > 1 else "its last task failed"
        self.changes |= {
            "status": moved(TRIGGER, "trigger.paused", status),
            "pause_reason": reason,
            "paused_until": None,
            "pause_kind": trigger_rows.FAILURES,
            # A paused trigger with a next time is one whose pause ends then.
            "next_at": None,
            "version": self.row.version + 1,
        }
        self._emit("schedule.paused", {"reason": reason, "kind": self.row.kind})
        return True

    def _emit(self, event: str, data: dict[str, Json]) -> None:
        known = {"trigger": self.row.id, "workflow": self.row.workflow}
        text = json_values.encode({**known, **data}, "event")
        self.events.append((None, None, event, None, None, self._now, text))

    def create_tasks(self, inserted: set[tuple[str, str]]) -> list[LockedTask]:
        """Create the tasks of runs that start, except where another run has all of their keys."""
        tasks: list[LockedTask] = []
        for submission in self.update.submissions:
            version = creation.register(self._tx, submission, self._now)
            tasks.append(creation.create(self._tx, submission, version, self._now))
        for starting in self._starting:
            submission = starting.submission
            keys = [
                key
                for key in starting.keys
                if starting.is_recorded or (self.row.id, key) in inserted
            ]
            if keys:
                tasks.append(creation.create(self._tx, submission, starting.version, self._now))
                self.result.started.update(dict.fromkeys(keys, submission.task_id))
        return tasks
