"""One locked task in memory, with those of its steps that a transaction touches.

A transaction loads tasks, changes their rows through `transitions`, ends with `advance`, and writes
everything at once. The address of a step is ``(index, parallel_index)``. Steps that are not
in memory are loaded when a rule needs them, so ending a step costs the same however wide its graph is.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.core.plain_json import Json
from agent.core.state_machine import STEP_ENDED
from agent.core.waits import ChildRequest
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.conversation import Exchange
from agent.store.db.database import Connection
from agent.store.engine import reads
from agent.store.engine.approval_rows import ApprovalRow
from agent.tasks.state.pauses import Pause
from agent.tasks.state.rows import STEP_COLUMNS, StepRow, TaskRow
from agent.workflows.graph import Graph, Step

if TYPE_CHECKING:
    from agent.store.engine.snapshot_rows import SnapshotRow
    from agent.store.engine.work_rows import WorkRow

StepAddress = tuple[int, int]

MAX_NEW_ROWS = 500
"""How many steps one transaction may insert in one task; the next ones insert the rest."""


WAKE_NOT_KNOWN = -1
"""Of a cached task: the database derived its next wake time, and it was not read."""


class FamilyPause(NamedTuple):
    """An exhausted budget: its task and all descendants are to be paused."""

    task_id: str
    """The task whose budget it is."""
    witness_id: str
    """The task whose call did not fit; it is already paused."""
    pause: Pause


class LockedTask:
    """A task that this transaction holds the lock of."""

    __slots__ = (
        "admissions",
        "changed_work",
        "children",
        "ended",
        "events",
        "exchanges",
        "graph",
        "intents",
        "is_complete",
        "is_new",
        "is_touched",
        "is_written",
        "new_work",
        "now",
        "orphans",
        "pauses",
        "questions",
        "results",
        "retries",
        "snapshots",
        "source_path",
        "steps",
        "stops",
        "task",
        "unused_steps",
        "version",
        "withdrawals",
        "withdrawn_work",
        "work",
    )

    def __init__(self, task: TaskRow, graph: Graph, now: int, *, is_new: bool = False) -> None:
        self.task = task
        self.graph = graph
        self.now = now
        self.is_new = is_new
        self.is_complete = is_new
        """Whether every open step is in memory."""
        self.steps: dict[StepAddress, StepRow] = {}
        """Those that this transaction has used."""
        self.unused_steps: dict[StepAddress, StepRow] = {}
        """Open steps as they are stored, which this transaction has not used."""
        self.version = ""
        """The version of the task's stored row, where that is known."""
        self._begin()

    def _begin(self) -> None:
        """Forget everything that the last transaction did."""
        self.events: list[tuple[Any, ...]] = []
        self.ended: list[StepRow] = []
        """Steps that ended and whose dependents `advance` has not updated yet."""
        self.stops: list[StepRow] = []
        """Running steps whose attempts the worker stops after the commit."""
        self.intents: list[tuple[str, int, Intent]] = []
        """(step id, attempt, intent) of calls that are about to be sent."""
        self.results: list[CallResult] = []
        self.exchanges: list[tuple[str, Exchange]] = []
        """(step id, exchange) that succeeded steps append to conversations."""
        self.children: list[tuple[StepRow, ChildRequest]] = []
        """Steps that wait on a child task, which this transaction creates at its end."""
        self.source_path: str | None = None
        """The workflow's file, of a new task."""
        self.is_written = False
        """Whether this transaction writes the task's row."""
        self.is_touched = False
        """Whether to derive the wake time again although nothing else changed."""
        self.orphans: list[str] = []
        """Children whose parent no longer waits on them."""
        self.questions: list[ApprovalRow] = []
        """Approvals that this transaction inserts."""
        self.withdrawals: list[str] = []
        """Approvals that no step waits on any more."""
        self.pauses: list[FamilyPause] = []
        """Families of tasks to pause for a budget."""
        self.work: dict[str, WorkRow] = {}
        """Work of its steps that was read, by id."""
        self.new_work: list[WorkRow] = []
        """Work that this transaction queues."""
        self.changed_work: set[str] = set()
        """The ids of `work` that this transaction writes."""
        self.withdrawn_work: list[str] = []
        """Work that no step waits on any more."""
        self.snapshots: list[SnapshotRow] = []
        """Snapshots that this transaction appends."""
        self.retries: LockedTask | None = None
        """Of a new task: the one whose calls it inherits."""
        self.admissions = MAX_NEW_ROWS

    def mark_committed(self) -> None:
        """Take the committed rows as the stored ones; the next transaction starts from there."""
        self.is_new = False
        self.task.mark_committed()
        if not self.is_complete:
            self.task.next_wake_time = WAKE_NOT_KNOWN
            self.task.original = TaskRow.values(self.task)
        for address, step in self.steps.items():
            if step.status not in STEP_ENDED:
                step.mark_committed()
                step.is_new = False
                self.unused_steps[address] = step
        self.steps = {}
        self._begin()

    def add(self, step: StepRow) -> StepRow:
        """Add a step; a row that is already in memory wins over one read later."""
        address = (step.index, step.parallel_index)
        self.unused_steps.pop(address, None)
        return self.steps.setdefault(address, step)

    def has(self, address: StepAddress) -> bool:
        """Whether a step is in memory; if so, this transaction uses it."""
        if address in self.steps:
            return True
        step = self.unused_steps.pop(address, None)
        if step is None:
            return False
        self.steps[address] = step
        return True

    def _use_all(self) -> None:
        self.steps.update(self.unused_steps)
        self.unused_steps = {}

    def definition(self, step: StepRow) -> Step:
        """Return a step's definition."""
        return self.graph.steps[step.index]

    def title(self, step: StepRow) -> str:
        """Return a step's name as commands write it: an item of a group is `step[2]`."""
        name = self.definition(step).name
        return f"{name}[{step.parallel_index}]" if step.is_item else name

    def emit(
        self, event: str, step: StepRow | None = None, data: dict[str, Json] | None = None
    ) -> None:
        """Append an event; it commits with the change it describes."""
        task = self.task
        task.event_seq += 1
        self.events.append(
            (
                task.id,
                task.event_seq,
                event,
                step.id if step is not None else None,
                step.attempt if step is not None else None,
                self.now,
                json.dumps(data, ensure_ascii=False) if data is not None else None,
            )
        )

    def load(self, tx: Connection, addresses: Iterable[StepAddress]) -> None:
        """Bring steps into memory by their addresses."""
        if self.is_complete and self.is_new:
            return
        missing = [address for address in addresses if not self.has(address)]
        if missing:
            rows = [[self.task.id, index, parallel_index] for index, parallel_index in missing]
            for values in reads.steps_at(tx, STEP_COLUMNS, rows):
                self.add(StepRow.read(values))

    def load_open(self, tx: Connection) -> list[StepRow]:
        """Bring every open step into memory and return them in order."""
        self._use_all()
        if not self.is_complete:
            for values in reads.open_steps(tx, STEP_COLUMNS, self.task.id):
                self.add(StepRow.read(values))
            self.is_complete = True
        return [self.steps[address] for address in sorted(self.steps)]

    def load_held(self, tx: Connection, limit: int) -> list[StepRow]:
        """Return the first steps that are held for a full window, in order."""
        self._use_all()
        if not self.is_complete:
            # Rows in memory may have been released since they were written.
            known = sum(1 for step in self.steps.values() if not step.is_new)
            for values in reads.held_steps(tx, STEP_COLUMNS, self.task.id, limit + known):
                self.add(StepRow.read(values))
        held = [address for address, step in self.steps.items() if step.held and not step.is_item]
        return [self.steps[address] for address in sorted(held)[:limit]]

    def load_held_items(self, tx: Connection, index: int) -> list[StepRow]:
        """Return the items of a group that have rows and no slot yet, in order."""
        self._use_all()
        if not self.is_complete:
            for values in reads.held_items(tx, STEP_COLUMNS, self.task.id, index):
                self.add(StepRow.read(values))
        held = [address for address, step in self.steps.items() if step.held and step.is_item]
        return [self.steps[address] for address in sorted(held) if address[0] == index]
