"""The tables of triggers and firings: schedules and watchers, and the fate of each instant and item.

A part of the schema that `tables` declares.
"""

from typing import ClassVar

from sqlalchemy import BigInteger, CheckConstraint, Index, Text, text
from sqlmodel import Field, SQLModel

from agent.core.state_machine import FiringStatus, TriggerStatus


def _one_of(column: str, states: type[TriggerStatus | FiringStatus]) -> CheckConstraint:
    names = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({names})", name=f"{column}_known")


class Trigger(SQLModel, table=True):
    """One schedule or watcher of a workflow."""

    __tablename__: ClassVar[str] = "triggers"
    __table_args__ = (
        _one_of("status", TriggerStatus),
        Index(
            "triggers_due",
            "kind",
            "next_at",
            sqlite_where=text("status IN ('active', 'paused') AND next_at IS NOT NULL"),
            postgresql_where=text("status IN ('active', 'paused') AND next_at IS NOT NULL"),
        ),
        Index("triggers_by_workflow", "workflow"),
    )

    # The workflow and the name: WORKFLOW:NAME.
    id: str = Field(sa_type=Text, primary_key=True)
    workflow: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    # schedule or watch
    kind: str = Field(sa_type=Text)
    spec: str = Field(sa_type=Text)
    spec_hash: str = Field(sa_type=Text)
    # Of the keys that decide its instants, or of its source.
    timing_hash: str = Field(sa_type=Text)
    workflow_version: int = Field(sa_type=BigInteger)
    status: str = Field(sa_type=Text)
    # Counts the changes of this row: a firing holds for the version that it was planned from.
    version: int = Field(default=0, sa_type=BigInteger)
    pause_reason: str | None = Field(default=None, sa_type=Text)
    paused_until: int | None = Field(default=None, sa_type=BigInteger)
    # Tasks that were created before this time do not count as failures in a row.
    resumed_at: int | None = Field(default=None, sa_type=BigInteger)
    # The problem of the file that defines it; the last good definition stays in force.
    problem: str | None = Field(default=None, sa_type=Text)
    # A schedule: its next instant with jitter, and without. A watcher: its next poll.
    next_at: int | None = Field(default=None, sa_type=BigInteger)
    next_nominal: int | None = Field(default=None, sa_type=BigInteger)
    # Every instant up to this one has its fate.
    last_nominal: int | None = Field(default=None, sa_type=BigInteger)
    # The origin of `every`.
    anchor_at: int = Field(sa_type=BigInteger)
    # A watcher: where its next poll starts, and how its polls went.
    cursor: str | None = Field(default=None, sa_type=Text)
    polls: int = Field(default=0, sa_type=BigInteger)
    failures: int = Field(default=0, sa_type=BigInteger)
    last_ok_at: int | None = Field(default=None, sa_type=BigInteger)
    last_item_at: int | None = Field(default=None, sa_type=BigInteger)
    last_error: str | None = Field(default=None, sa_type=Text)
    # Why the items that the next poll finds are skipped: it was paused or removed.
    skip_items: str | None = Field(default=None, sa_type=Text)
    # The open trouble that the operator was notified of: failed or silent.
    alert: str | None = Field(default=None, sa_type=Text)
    # The daemon that polls now, of several on one PostgreSQL, and until when.
    owner: str | None = Field(default=None, sa_type=Text)
    owned_until: int | None = Field(default=None, sa_type=BigInteger)
    # The workflow directory that defines it; only a daemon of that directory removes it.
    directory: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    removed_at: int | None = Field(default=None, sa_type=BigInteger)
    # A schedule: fates of instants up to this one may have been pruned.
    pruned_until: int | None = Field(default=None, sa_type=BigInteger)
    # A watcher whose source could tell of changes: why it is only polled.
    not_listening: str | None = Field(default=None, sa_type=Text)
    # The cause of a pause that code acts on: `failures` of its tasks, or a `restore` of the database.
    pause_kind: str | None = Field(default=None, sa_type=Text)


class Firing(SQLModel, table=True):
    """The fate of one instant of a schedule or one item of a watcher; or of a range of missed ones."""

    __tablename__: ClassVar[str] = "firings"
    __table_args__ = (
        _one_of("status", FiringStatus),
        CheckConstraint(
            "(status IN ('started', 'late')) = (task_id IS NOT NULL)", name="started_whole"
        ),
        Index("firings_by_time", "trigger_id", "recorded_at"),
        Index(
            "firings_queued",
            "trigger_id",
            "due_at",
            sqlite_where=text("status = 'queued'"),
            postgresql_where=text("status = 'queued'"),
        ),
    )

    trigger_id: str = Field(
        sa_type=Text, primary_key=True, foreign_key="triggers.id", ondelete="CASCADE"
    )
    # The nominal instant in UTC, the key of the item, or for a range `FROM/TO`.
    key: str = Field(sa_type=Text, primary_key=True)
    status: str = Field(sa_type=Text)
    reason: str | None = Field(default=None, sa_type=Text)
    nominal_at: int | None = Field(default=None, sa_type=BigInteger)
    # When it may start: the nominal instant with its jitter, or later where runs are staggered.
    due_at: int | None = Field(default=None, sa_type=BigInteger)
    # No foreign key: a task may be pruned before its firing.
    task_id: str | None = Field(default=None, sa_type=Text)
    # Items of one batch start one task: they share this. An instant that was skipped by a request
    # which may come twice, as those of chats: the request.
    run_id: str | None = Field(default=None, sa_type=Text)
    # Of a queued run: the input and trigger of its task.
    input: str | None = Field(default=None, sa_type=Text)
    context: str | None = Field(default=None, sa_type=Text)
    workflow_version: int | None = Field(default=None, sa_type=BigInteger)
    # The definition under which it was decided.
    spec_hash: str | None = Field(default=None, sa_type=Text)
    # A range: its last instant, and at least how many it holds.
    until_at: int | None = Field(default=None, sa_type=BigInteger)
    count: int | None = Field(default=None, sa_type=BigInteger)
    recorded_at: int = Field(sa_type=BigInteger)
    # An item: the day of the last poll that showed it.
    seen_at: int | None = Field(default=None, sa_type=BigInteger)
