"""The schema, declared once for both databases.

Instants are whole microseconds (BIGINT). JSON values are TEXT: they are written and read whole, and
plain text has the same rules on both databases. At run time the engine uses set-based SQL
(`engine.reads`, `engine.writes`), never these classes; they declare the schema, and a test compares
the migrations with it.
"""

from typing import ClassVar

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, LargeBinary, Text, text
from sqlmodel import Field, SQLModel

from agent.core.state_machine import ApprovalStatus, CallStatus, StepStatus, TaskStatus
from agent.store.schema import (  # noqa: F401  (parts of the same schema)
    channel_tables,
    state_tables,
    trigger_tables,
    work_tables,
)

# On SQLite only INTEGER PRIMARY KEY columns are row ids.
_Serial = BigInteger().with_variant(Integer, "sqlite")


def _one_of(
    column: str, states: type[TaskStatus | StepStatus | CallStatus | ApprovalStatus]
) -> CheckConstraint:
    names = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({names})", name=f"{column}_known")


class Workflow(SQLModel, table=True):
    """One version of a named definition; a task keeps the version it started with."""

    __tablename__: ClassVar[str] = "workflows"

    name: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(sa_type=BigInteger, primary_key=True)
    hash: str = Field(sa_type=Text)
    source: str | None = Field(default=None, sa_type=Text)
    graph: str = Field(sa_type=Text)
    path: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    removed_at: int | None = Field(default=None, sa_type=BigInteger)
    # The hash of each step's code, by step; null where no file was known.
    code: str | None = Field(default=None, sa_type=Text)


class Task(SQLModel, table=True):
    """One execution of a workflow: the lock and the queue of all its steps."""

    __tablename__: ClassVar[str] = "tasks"
    __table_args__ = (
        _one_of("status", TaskStatus),
        CheckConstraint("priority IN (0, 1, 2)", name="priority_known"),
        Index(
            "tasks_due",
            "priority",
            "next_wake_time",
            sqlite_where=text("status = 'running'"),
            postgresql_where=text("status = 'running'"),
        ),
        Index("tasks_by_status", "status", "id"),
        Index(
            "tasks_by_dedupe_key",
            "dedupe_key",
            unique=True,
            sqlite_where=text("dedupe_key IS NOT NULL"),
            postgresql_where=text("dedupe_key IS NOT NULL"),
        ),
        Index(
            "tasks_by_parent",
            "parent_step_id",
            sqlite_where=text("parent_step_id IS NOT NULL"),
            postgresql_where=text("parent_step_id IS NOT NULL"),
        ),
        Index(
            "tasks_by_retry",
            "retry_of",
            sqlite_where=text("retry_of IS NOT NULL"),
            postgresql_where=text("retry_of IS NOT NULL"),
        ),
        Index("tasks_by_workflow", "workflow_name", "workflow_version"),
        # Pages of one workflow's tasks, the newest first.
        Index("tasks_of_workflow_by_id", "workflow_name", "id"),
        Index(
            "tasks_by_trigger",
            "trigger_id",
            "id",
            sqlite_where=text("trigger_id IS NOT NULL"),
            postgresql_where=text("trigger_id IS NOT NULL"),
        ),
        Index(
            "tasks_open_by_trigger",
            "trigger_id",
            sqlite_where=text(
                "trigger_id IS NOT NULL AND status IN ('pending', 'running', 'paused')"
            ),
            postgresql_where=text(
                "trigger_id IS NOT NULL AND status IN ('pending', 'running', 'paused')"
            ),
        ),
        Index(
            "tasks_open_by_conversation",
            "conversation",
            "id",
            sqlite_where=text(
                "conversation IS NOT NULL AND status IN ('pending', 'running', 'paused')"
            ),
            postgresql_where=text(
                "conversation IS NOT NULL AND status IN ('pending', 'running', 'paused')"
            ),
        ),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    status: str = Field(sa_type=Text)
    workflow_name: str = Field(sa_type=Text)
    workflow_version: int = Field(sa_type=BigInteger)
    priority: int = Field(default=1, sa_type=BigInteger)
    input: str = Field(sa_type=Text)
    output: str | None = Field(default=None, sa_type=Text)
    error: str | None = Field(default=None, sa_type=Text)
    next_wake_time: int | None = Field(default=None, sa_type=BigInteger)
    deadline: int | None = Field(default=None, sa_type=BigInteger)
    # Counters, so that ending a step costs the same however wide the graph is.
    steps_open: int = Field(default=0, sa_type=BigInteger)
    steps_running: int = Field(default=0, sa_type=BigInteger)
    steps_failed: int = Field(default=0, sa_type=BigInteger)
    steps_held: int = Field(default=0, sa_type=BigInteger)
    places_taken: int = Field(default=0, sa_type=BigInteger)
    phase: str = Field(default="normal", sa_type=Text)
    event_seq: int = Field(default=0, sa_type=BigInteger)
    trigger: str | None = Field(default=None, sa_type=Text)
    dedupe_key: str | None = Field(default=None, sa_type=Text)
    parent_task_id: str | None = Field(default=None, sa_type=Text)
    parent_step_id: str | None = Field(default=None, sa_type=Text)
    depth: int = Field(default=0, sa_type=BigInteger)
    origin_id: str = Field(sa_type=Text)
    retry_of: str | None = Field(default=None, sa_type=Text)
    forked_from: str | None = Field(default=None, sa_type=Text)
    pause_reason: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)
    pause_kind: str | None = Field(default=None, sa_type=Text)
    pause_command: str | None = Field(default=None, sa_type=Text)
    # The schedule or watcher that started it; no foreign key, since it may be pruned first.
    trigger_id: str | None = Field(default=None, sa_type=Text)
    # The chat where it was started: channel, recipient and thread. Children and retries inherit it.
    chat_origin: str | None = Field(default=None, sa_type=Text)
    # The conversation whose turn it takes; null unless a step of its workflow keeps one.
    conversation: str | None = Field(default=None, sa_type=Text)


class Step(SQLModel, table=True):
    """One node of one task; `parallel_index` is -1, or the number of a group's item."""

    __tablename__: ClassVar[str] = "steps"
    __table_args__ = (
        _one_of("status", StepStatus),
        CheckConstraint(
            "(status = 'running') = (owner IS NOT NULL) AND (owner IS NULL) = (claim_turn IS NULL)",
            name="claim_whole",
        ),
        Index("steps_by_place", "task_id", "index", "parallel_index", unique=True),
        Index(
            "steps_due",
            "task_id",
            "wake_at",
            "index",
            sqlite_where=text("wake_at IS NOT NULL"),
            postgresql_where=text("wake_at IS NOT NULL"),
        ),
        Index(
            "steps_held",
            "task_id",
            "index",
            "parallel_index",
            sqlite_where=text("held = 1"),
            postgresql_where=text("held = 1"),
        ),
        Index(
            "steps_by_owner",
            "owner",
            sqlite_where=text("owner IS NOT NULL"),
            postgresql_where=text("owner IS NOT NULL"),
        ),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    index: int = Field(sa_type=BigInteger)
    parallel_index: int = Field(default=-1, sa_type=BigInteger)
    name: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    status: str = Field(sa_type=Text)
    attempt: int = Field(default=1, sa_type=BigInteger)
    max_attempts: int = Field(default=1, sa_type=BigInteger)
    deps_remaining: int = Field(default=0, sa_type=BigInteger)
    deps_failed: int = Field(default=0, sa_type=BigInteger)
    wake_at: int | None = Field(default=None, sa_type=BigInteger)
    held: int = Field(default=0, sa_type=BigInteger)
    placed: int = Field(default=0, sa_type=BigInteger)
    alone: int = Field(default=0, sa_type=BigInteger)
    owner: str | None = Field(default=None, sa_type=Text)
    claim_token: int = Field(default=0, sa_type=BigInteger)
    claim_turn: int | None = Field(default=None, sa_type=BigInteger)
    failures: int = Field(default=0, sa_type=BigInteger)
    waiting_on: str | None = Field(default=None, sa_type=Text)
    checkpoint: str | None = Field(default=None, sa_type=Text)
    output: str | None = Field(default=None, sa_type=Text)
    error: str | None = Field(default=None, sa_type=Text)
    skip_reason: str | None = Field(default=None, sa_type=Text)
    idempotency_key: str | None = Field(default=None, sa_type=Text)
    # An item has its value; a group has its items and their progress.
    item: str | None = Field(default=None, sa_type=Text)
    items: str | None = Field(default=None, sa_type=Text)
    parallel_count: int | None = Field(default=None, sa_type=BigInteger)
    items_done: int = Field(default=0, sa_type=BigInteger)
    items_placed: int = Field(default=0, sa_type=BigInteger)
    items_ended: int = Field(default=0, sa_type=BigInteger)
    items_failed: int = Field(default=0, sa_type=BigInteger)
    process_id: int | None = Field(default=None, sa_type=BigInteger)
    process_started: str | None = Field(default=None, sa_type=Text)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)
    # What it reads of `state`, with versions, as recorded at its first claim.
    state_read: str | None = Field(default=None, sa_type=Text)
    # Of a step that inherited calls: when it was first claimed, in whichever task of its line.
    first_claimed_at: int | None = Field(default=None, sa_type=BigInteger)


class ToolCall(SQLModel, table=True):
    """One call of an attempt to the outside world, and its result."""

    __tablename__: ClassVar[str] = "tool_calls"
    __table_args__ = (
        Index("tool_calls_by_step", "step_id", "number", "attempt"),
        Index("tool_calls_by_task", "task_id"),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    step_id: str = Field(sa_type=Text)
    number: int = Field(sa_type=BigInteger)
    attempt: int = Field(sa_type=BigInteger)
    action: str = Field(sa_type=Text)
    idempotency_key: str = Field(sa_type=Text)
    remote_key: str = Field(sa_type=Text)
    request_hash: str = Field(sa_type=Text)
    request: str | None = Field(default=None, sa_type=Text)
    response: str | None = Field(default=None, sa_type=Text)
    error: str | None = Field(default=None, sa_type=Text)
    on_unknown: str = Field(default="ask", sa_type=Text)
    send_by: int = Field(sa_type=BigInteger)
    expires_at: int = Field(sa_type=BigInteger)
    model: str | None = Field(default=None, sa_type=Text)
    prompt_hash: str | None = Field(default=None, sa_type=Text)
    tokens_in: int | None = Field(default=None, sa_type=BigInteger)
    tokens_out: int | None = Field(default=None, sa_type=BigInteger)
    cost_microusd: int | None = Field(default=None, sa_type=BigInteger)
    reserved_microusd: int | None = Field(default=None, sa_type=BigInteger)
    reserved_tokens: int | None = Field(default=None, sa_type=BigInteger)
    request_id: str | None = Field(default=None, sa_type=Text)
    stop_reason: str | None = Field(default=None, sa_type=Text)
    latency_ms: int | None = Field(default=None, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    reserved_ms: int | None = Field(default=None, sa_type=BigInteger)


class IdempotencyOutcome(SQLModel, table=True):
    """The ledger: the verdict on each call; `unknown` until a result is recorded."""

    __tablename__: ClassVar[str] = "idempotency_outcomes"
    __table_args__ = (_one_of("status", CallStatus), Index("outcomes_by_call", "tool_call_id"))

    idempotency_key: str = Field(sa_type=Text, primary_key=True)
    tool_call_id: str = Field(sa_type=Text, foreign_key="tool_calls.id", ondelete="CASCADE")
    status: str = Field(sa_type=Text)
    response_hash: str | None = Field(default=None, sa_type=Text)
    resolved_at: int | None = Field(default=None, sa_type=BigInteger)


class Event(SQLModel, table=True):
    """One row of the append-only log; the cursor over all tasks is the pair (xid, id)."""

    __tablename__: ClassVar[str] = "events"
    __table_args__ = (
        Index(
            "events_by_task",
            "task_id",
            "seq",
            unique=True,
            sqlite_where=text("task_id IS NOT NULL"),
            postgresql_where=text("task_id IS NOT NULL"),
        ),
        # SQLite's commits are in the order of ids: there the primary key is the cursor.
        Index("events_by_cursor", "xid", "id").ddl_if(dialect="postgresql"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, sa_column=Column(_Serial, primary_key=True))
    # On PostgreSQL the id of the writing transaction; on SQLite commits are in the order of ids.
    xid: int = Field(default=0, sa_type=BigInteger)
    task_id: str | None = Field(
        default=None, sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE"
    )
    seq: int | None = Field(default=None, sa_type=BigInteger)
    type: str = Field(sa_type=Text)
    step_id: str | None = Field(default=None, sa_type=Text)
    attempt: int | None = Field(default=None, sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)
    data: str | None = Field(default=None, sa_type=Text)


class StepLog(SQLModel, table=True):
    """One piece of an attempt's log."""

    __tablename__: ClassVar[str] = "step_logs"
    __table_args__ = (
        Index("step_logs_by_task", "task_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, sa_column=Column(_Serial, primary_key=True))
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    step_id: str = Field(sa_type=Text)
    attempt: int = Field(sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)
    stream: str = Field(sa_type=Text)
    text: str = Field(sa_type=Text)


class Signal(SQLModel, table=True):
    """A named value that was sent to a task; kept until a step takes it."""

    __tablename__: ClassVar[str] = "signals"
    __table_args__ = (Index("signals_by_task", "task_id", "name", "id"),)

    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    name: str = Field(sa_type=Text)
    payload: str | None = Field(default=None, sa_type=Text)
    sent_at: int = Field(sa_type=BigInteger)
    taken_by: str | None = Field(default=None, sa_type=Text)


class Approval(SQLModel, table=True):
    """A question to a person that a step waits on: the action, and the decision."""

    __tablename__: ClassVar[str] = "approvals"
    __table_args__ = (
        _one_of("status", ApprovalStatus),
        CheckConstraint("(status = 'pending') = (decided_at IS NULL)", name="decided_whole"),
        Index(
            "approvals_pending",
            "id",
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        Index(
            "approvals_decided",
            "decided_at",
            sqlite_where=text("decided_at IS NOT NULL"),
            postgresql_where=text("decided_at IS NOT NULL"),
        ),
        Index("approvals_by_step", "step_id"),
        Index("approvals_by_task", "task_id"),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    step_id: str = Field(sa_type=Text)
    attempt: int = Field(sa_type=BigInteger)
    # approval, input, unknown (an effect without a result) or tool (a call that an agent wants).
    kind: str = Field(sa_type=Text)
    status: str = Field(sa_type=Text)
    message: str = Field(sa_type=Text)
    # The complete request; an answer holds for exactly this.
    request: str = Field(sa_type=Text)
    request_hash: str = Field(sa_type=Text)
    choices: str | None = Field(default=None, sa_type=Text)
    value_schema: str | None = Field(default=None, sa_type=Text)
    editable: str | None = Field(default=None, sa_type=Text)
    who: str | None = Field(default=None, sa_type=Text)
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    on_expiry: str = Field(default="fail", sa_type=Text)
    remind_at: int | None = Field(default=None, sa_type=BigInteger)
    remind_us: int | None = Field(default=None, sa_type=BigInteger)
    renews: str | None = Field(default=None, sa_type=Text)
    decided_by: str | None = Field(default=None, sa_type=Text)
    decided_channel: str | None = Field(default=None, sa_type=Text)
    decided_at: int | None = Field(default=None, sa_type=BigInteger)
    comment: str | None = Field(default=None, sa_type=Text)
    value: str | None = Field(default=None, sa_type=Text)
    edits: str | None = Field(default=None, sa_type=Text)
    approved_hash: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class Artifact(SQLModel, table=True):
    """A large value, named by its content and compressed."""

    __tablename__: ClassVar[str] = "artifacts"

    hash: str = Field(sa_type=Text, primary_key=True)
    size: int = Field(sa_type=BigInteger)
    encoding: str = Field(sa_type=Text)
    data: bytes = Field(sa_type=LargeBinary)
    created_at: int = Field(sa_type=BigInteger)
    touched_at: int = Field(sa_type=BigInteger)


class RequestKey(SQLModel, table=True):
    """The `Idempotency-Key` of a request that created something, and the request's hash."""

    __tablename__: ClassVar[str] = "request_keys"

    key: str = Field(sa_type=Text, primary_key=True)
    request_hash: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class Budget(SQLModel, table=True):
    """The budget of a task (children included) or a step: what it may use of models, and has used.

    Inserted at the first call of a model. An amount that is reserved and never replaced stays reserved,
    and counts as used.
    """

    __tablename__: ClassVar[str] = "budgets"
    __table_args__ = (Index("budgets_by_task", "task_id"),)

    # A task's id, or for a step's own budget the task's id and the step's index.
    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    tokens_limit: int | None = Field(default=None, sa_type=BigInteger)
    microusd_limit: int | None = Field(default=None, sa_type=BigInteger)
    tokens_used: int = Field(default=0, sa_type=BigInteger)
    microusd_used: int = Field(default=0, sa_type=BigInteger)
    tokens_reserved: int = Field(default=0, sa_type=BigInteger)
    microusd_reserved: int = Field(default=0, sa_type=BigInteger)


class DailySpend(SQLModel, table=True):
    """The use of models by all tasks together on one day (UTC)."""

    __tablename__: ClassVar[str] = "daily_spend"

    day: str = Field(sa_type=Text, primary_key=True)
    tokens_used: int = Field(default=0, sa_type=BigInteger)
    microusd_used: int = Field(default=0, sa_type=BigInteger)
    tokens_reserved: int = Field(default=0, sa_type=BigInteger)
    microusd_reserved: int = Field(default=0, sa_type=BigInteger)
    ms_used: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    ms_reserved: int = Field(
        default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"}
    )


class Worker(SQLModel, table=True):
    """One row per worker: heartbeat, fence, and record of its last commit."""

    __tablename__: ClassVar[str] = "workers"

    id: str = Field(sa_type=Text, primary_key=True)
    turn: int = Field(default=0, sa_type=BigInteger)
    dead: int = Field(default=0, sa_type=BigInteger)
    host: str = Field(sa_type=Text)
    process_id: int = Field(sa_type=BigInteger)
    process_started: str = Field(sa_type=Text)
    started_at: int = Field(sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)


class SchemaRevision(SQLModel, table=True):
    """One row: the revision of this schema."""

    __tablename__: ClassVar[str] = "schema_revision"

    revision: str = Field(sa_type=Text, primary_key=True)
