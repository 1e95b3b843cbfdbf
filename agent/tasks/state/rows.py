"""Rows of tasks and steps in memory, which record their changes since they were read.

Columns that are only ever written here (outputs, errors, checkpoints) are not read: a task's rows
stay small however large its values are.
"""

from functools import cache
from itertools import compress
from operator import attrgetter, ne
from typing import Any, ClassVar, Final, Self

from agent.core import waits
from agent.core.waits import Wait

NO_ITEM: Final = -1
"""The `parallel_index` of a step that is no item: a plain step, or a group."""

TASK_COLUMNS: Final = (
    "id",
    "status",
    "workflow_name",
    "workflow_version",
    "priority",
    "next_wake_time",
    "deadline",
    "steps_open",
    "steps_running",
    "steps_failed",
    "steps_held",
    "places_taken",
    "phase",
    "event_seq",
    "parent_task_id",
    "parent_step_id",
    "depth",
    "origin_id",
    "trigger_id",
    "chat_origin",
)

STEP_COLUMNS: Final = (
    "id",
    "task_id",
    "index",
    "parallel_index",
    "status",
    "attempt",
    "max_attempts",
    "deps_remaining",
    "deps_failed",
    "wake_at",
    "held",
    "placed",
    "alone",
    "owner",
    "claim_token",
    "claim_turn",
    "failures",
    "waiting_on",
    "idempotency_key",
    "parallel_count",
    "items_done",
    "items_placed",
    "items_ended",
    "items_failed",
    "process_id",
    "started_at",
)


class Row:
    """A row that remembers how it was read, so that only changed columns are written."""

    __slots__ = ("extra", "original", "written")

    columns: ClassVar[tuple[str, ...]]
    values: ClassVar["attrgetter[tuple[Any, ...]]"]

    original: tuple[Any, ...]
    """The columns as they were read; empty for a row that is to be inserted."""
    extra: dict[str, Any]
    """Columns that are written without ever having been read."""
    written: tuple[Any, ...]
    """The columns as `changes` found them, until they are committed; else empty."""

    def set_columns(self, **values: Any) -> None:
        """Set columns that this row has no attributes for: they are written, and never read."""
        self.extra.update(values)

    def mark_committed(self) -> None:
        """Take the row as it is now as the stored one."""
        self.original = self.written or type(self).values(self)
        self.written = ()
        if self.extra:
            self.extra = {}

    def changes(self) -> tuple[tuple[str, ...], list[Any]] | None:
        """Return the changed columns with their new values; None if none has changed."""
        values = self.written = type(self).values(self)
        extra = self.extra
        if values == self.original:
            return (tuple(extra), list(extra.values())) if extra else None
        # A few of some twenty columns change, in every row of a transaction: compared in C, not in a loop.
        differs = tuple(map(ne, values, self.original))
        names = _names_of(self.columns, differs)
        changed = list(compress(values, differs))
        if extra:
            names = (*names, *extra)
            changed += extra.values()
        return names, changed


@cache
def _names_of(columns: tuple[str, ...], differs: tuple[bool, ...]) -> tuple[str, ...]:
    return tuple(compress(columns, differs))


class TaskRow(Row):
    """The columns of a task that the engine needs."""

    __slots__ = TASK_COLUMNS

    columns = TASK_COLUMNS
    values = attrgetter(*TASK_COLUMNS)

    id: str
    status: str
    workflow_name: str
    workflow_version: int
    priority: int
    next_wake_time: int | None
    deadline: int | None
    steps_open: int
    steps_running: int
    steps_failed: int
    steps_held: int
    places_taken: int
    phase: str
    event_seq: int
    parent_task_id: str | None
    parent_step_id: str | None
    depth: int
    origin_id: str
    trigger_id: str | None
    chat_origin: str | None

    @classmethod
    def read(cls, values: tuple[Any, ...]) -> Self:
        """Return the row of a query over `TASK_COLUMNS`."""
        row = cls()
        (
            row.id,
            row.status,
            row.workflow_name,
            row.workflow_version,
            row.priority,
            row.next_wake_time,
            row.deadline,
            row.steps_open,
            row.steps_running,
            row.steps_failed,
            row.steps_held,
            row.places_taken,
            row.phase,
            row.event_seq,
            row.parent_task_id,
            row.parent_step_id,
            row.depth,
            row.origin_id,
            row.trigger_id,
            row.chat_origin,
        ) = row.original = values
        row.extra = {}
        row.written = ()
        return row

    @classmethod
    def new(cls, task_id: str, status: str, **values: Any) -> Self:
        """Make a row that is to be inserted."""
        row = cls()
        row.id, row.status = task_id, status
        row.priority = 1
        row.steps_open = row.steps_running = row.steps_failed = row.steps_held = 0
        row.places_taken = row.event_seq = row.depth = 0
        row.phase = "normal"
        row.next_wake_time = row.deadline = row.trigger_id = row.chat_origin = None
        row.parent_task_id = row.parent_step_id = None
        row.origin_id = task_id
        row.original, row.extra, row.written = (), {}, ()
        for name, value in values.items():
            setattr(row, name, value)
        return row


class StepRow(Row):
    """The columns of a step, an item, or a group that the engine needs."""

    __slots__ = (*STEP_COLUMNS, "is_new")

    columns = STEP_COLUMNS
    values = attrgetter(*STEP_COLUMNS)

    id: str
    task_id: str
    index: int
    parallel_index: int
    status: str
    attempt: int
    max_attempts: int
    deps_remaining: int
    deps_failed: int
    wake_at: int | None
    held: int
    placed: int
    alone: int
    owner: str | None
    claim_token: int
    claim_turn: int | None
    failures: int
    waiting_on: str | None
    idempotency_key: str | None
    parallel_count: int | None
    items_done: int
    items_placed: int
    items_ended: int
    items_failed: int
    process_id: int | None
    started_at: int | None
    is_new: bool

    @classmethod
    def read(cls, values: tuple[Any, ...]) -> Self:
        """Return the row of a query over `STEP_COLUMNS`."""
        row = cls()
        (
            row.id,
            row.task_id,
            row.index,
            row.parallel_index,
            row.status,
            row.attempt,
            row.max_attempts,
            row.deps_remaining,
            row.deps_failed,
            row.wake_at,
            row.held,
            row.placed,
            row.alone,
            row.owner,
            row.claim_token,
            row.claim_turn,
            row.failures,
            row.waiting_on,
            row.idempotency_key,
            row.parallel_count,
            row.items_done,
            row.items_placed,
            row.items_ended,
            row.items_failed,
            row.process_id,
            row.started_at,
        ) = row.original = values
        row.extra = {}
        row.written = ()
        row.is_new = False
        return row

    @classmethod
    def new(
        cls,
        step_id: str,
        task_id: str,
        index: int,
        *,
        max_attempts: int = 1,
        deps_remaining: int = 0,
        parallel_index: int = NO_ITEM,
        parallel_count: int | None = None,
        **values: Any,
    ) -> Self:
        """Make a row that is to be inserted."""
        row = cls()
        row.id, row.task_id, row.index, row.parallel_index = step_id, task_id, index, parallel_index
        row.max_attempts, row.deps_remaining = max_attempts, deps_remaining
        row.parallel_count = parallel_count
        row.status = "pending"
        row.attempt = 1
        row.deps_failed = row.held = row.placed = row.alone = row.claim_token = row.failures = 0
        row.items_done = row.items_placed = row.items_ended = row.items_failed = 0
        row.wake_at = row.owner = row.claim_turn = row.waiting_on = None
        row.idempotency_key = row.process_id = row.started_at = None
        row.original, row.extra, row.written = (), {}, ()
        row.is_new = True
        for name, value in values.items():
            setattr(row, name, value)
        return row

    @property
    def wait(self) -> Wait | None:
        """Its present or last wait."""
        return waits.parse(self.waiting_on)

    @wait.setter
    def wait(self, on: Wait) -> None:
        self.waiting_on = waits.dump(on)

    @property
    def has_history(self) -> bool:
        """Of a claimed step: whether calls, approvals or a checkpoint of it may be recorded."""
        return self.claim_token > 1

    def inherit_history(self) -> None:
        """Record that a new step has calls of the task that this one retries.

        Its first claim then has the token 2. This is no column of its own: workers of every version
        read the calls of a step by its token, and one that did not would repeat them.
        """
        self.claim_token = 1

    @property
    def is_item(self) -> bool:
        """Whether this is one of a group's items."""
        return self.parallel_index >= 0

    @property
    def is_group(self) -> bool:
        """Whether this is a group whose items have been decided."""
        return self.parallel_index < 0 and self.parallel_count is not None
