"""The tables of external workers: the work that steps offer, and the context that tasks collect.

A part of the schema that `tables` declares.
"""

from typing import ClassVar

from sqlalchemy import BigInteger, CheckConstraint, Index, Text, text
from sqlmodel import Field, SQLModel

from agent.core.state_machine import WORK_LEASED, WorkStatus


def _among(states: "type[WorkStatus] | tuple[WorkStatus, ...]") -> str:
    return "status IN (" + ", ".join(f"'{state.value}'" for state in states) + ")"


IS_LEASED = _among(WORK_LEASED)
LEASE_WHOLE = " AND ".join(
    f"({IS_LEASED}) = ({column} IS NOT NULL)"
    for column in ("lease_id", "leased_by", "lease_expires_at")
)


class Work(SQLModel, table=True):
    """The work that one attempt of a step offers to external workers, and its lease."""

    __tablename__: ClassVar[str] = "work"
    __table_args__ = (
        CheckConstraint(_among(WorkStatus), name="status_known"),
        CheckConstraint(LEASE_WHOLE, name="lease_whole"),
        Index(
            "work_queued",
            "queue",
            "priority",
            "id",
            sqlite_where=text("status = 'queued'"),
            postgresql_where=text("status = 'queued'"),
        ),
        Index(
            "work_open",
            "queue",
            "status",
            sqlite_where=text("status IN ('leased', 'running', 'asked')"),
            postgresql_where=text("status IN ('leased', 'running', 'asked')"),
        ),
        Index(
            "work_dead",
            "id",
            sqlite_where=text("status IN ('failed', 'expired')"),
            postgresql_where=text("status IN ('failed', 'expired')"),
        ),
        Index(
            "work_by_client_token",
            "client_token",
            sqlite_where=text("client_token IS NOT NULL"),
            postgresql_where=text("client_token IS NOT NULL"),
        ),
        Index("work_by_task", "task_id"),
        Index("work_by_step", "step_id"),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    step_id: str = Field(sa_type=Text)
    step_index: int = Field(sa_type=BigInteger)
    parallel_index: int = Field(sa_type=BigInteger)
    attempt: int = Field(sa_type=BigInteger)
    queue: str = Field(sa_type=Text)
    priority: int = Field(sa_type=BigInteger)
    status: str = Field(sa_type=Text)
    # The rendered `with`, or a reference to it.
    input: str = Field(sa_type=Text)
    # Of an effect: the call that its beginning records.
    intent: str | None = Field(default=None, sa_type=Text)
    # Of an effect that has begun: its call in the ledger.
    call_id: str | None = Field(default=None, sa_type=Text)
    lease_us: int = Field(sa_type=BigInteger)
    start_within_us: int = Field(sa_type=BigInteger)
    timeout_us: int | None = Field(default=None, sa_type=BigInteger)
    lease_id: str | None = Field(default=None, sa_type=Text)
    leased_by: str | None = Field(default=None, sa_type=Text)
    lease_expires_at: int | None = Field(default=None, sa_type=BigInteger)
    leased_at: int | None = Field(default=None, sa_type=BigInteger)
    # Of the present lease: until when it must begin, when it began, and until when it must end.
    start_by: int | None = Field(default=None, sa_type=BigInteger)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    run_by: int | None = Field(default=None, sa_type=BigInteger)
    # A repeated claim with this token gets the same lease.
    client_token: str | None = Field(default=None, sa_type=Text)
    # The lease that ended last, whose worker may still repeat its last call.
    last_lease_id: str | None = Field(default=None, sa_type=Text)
    # A worker's question to a person, and the answer that the next claim carries.
    approval_id: str | None = Field(default=None, sa_type=Text)
    answer: str | None = Field(default=None, sa_type=Text)
    # Why it was released, has expired or was withdrawn.
    reason: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)


class ContextSnapshot(SQLModel, table=True):
    """A value that a step, a worker or an operator appended to a task; it never changes."""

    __tablename__: ClassVar[str] = "context_snapshots"
    __table_args__ = (
        Index("context_snapshots_by_task", "task_id", "id"),
        Index(
            "context_snapshots_by_client_token",
            "task_id",
            "client_token",
            sqlite_where=text("client_token IS NOT NULL"),
            postgresql_where=text("client_token IS NOT NULL"),
        ),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    task_id: str = Field(sa_type=Text, foreign_key="tasks.id", ondelete="CASCADE")
    step_id: str | None = Field(default=None, sa_type=Text)
    # The snapshot that this one continues.
    parent: str | None = Field(default=None, sa_type=Text)
    label: str | None = Field(default=None, sa_type=Text)
    value: str = Field(sa_type=Text)
    # Who appended it: step:NAME, worker:NAME or the caller of the API.
    written_by: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    # A hash of the caller and its token: the repetition of a call whose answer was lost finds its row.
    client_token: str | None = Field(default=None, sa_type=Text)
