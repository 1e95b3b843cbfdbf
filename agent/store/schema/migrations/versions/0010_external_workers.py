"""Work for external workers, with its leases; snapshots of a task's context."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_STATES = (
    "status IN ('queued', 'leased', 'running', 'asked', 'completed', 'failed', 'expired',"
    " 'withdrawn')"
)
_LEASE_WHOLE = " AND ".join(
    f"(status IN ('leased', 'running')) = ({column} IS NOT NULL)"
    for column in ("lease_id", "leased_by", "lease_expires_at")
)


def _text(name: str, *, is_null: bool = True) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=is_null)


def _number(name: str, *, is_null: bool = True) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=is_null)


def _task() -> "sa.Column[str]":
    return sa.Column(
        "task_id", sa.Text, sa.ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False
    )


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "work",
        sa.Column("id", sa.Text, primary_key=True),
        _task(),
        _text("step_id", is_null=False),
        _number("step_index", is_null=False),
        _number("parallel_index", is_null=False),
        _number("attempt", is_null=False),
        _text("queue", is_null=False),
        _number("priority", is_null=False),
        _text("status", is_null=False),
        _text("input", is_null=False),
        _text("intent"),
        _text("call_id"),
        _number("lease_us", is_null=False),
        _number("start_within_us", is_null=False),
        _number("timeout_us"),
        _text("lease_id"),
        _text("leased_by"),
        _number("lease_expires_at"),
        _number("leased_at"),
        _number("start_by"),
        _number("started_at"),
        _number("run_by"),
        _text("client_token"),
        _text("last_lease_id"),
        _text("approval_id"),
        _text("answer"),
        _text("reason"),
        _number("created_at", is_null=False),
        _number("ended_at"),
        sa.CheckConstraint(_STATES, name="status_known"),
        sa.CheckConstraint(_LEASE_WHOLE, name="lease_whole"),
    )
    _index("work_queued", ["queue", "priority", "id"], "status = 'queued'")
    _index("work_open", ["queue", "status"], "status IN ('leased', 'running', 'asked')")
    _index("work_dead", ["id"], "status IN ('failed', 'expired')")
    _index("work_by_client_token", ["client_token"], "client_token IS NOT NULL")
    op.create_index("work_by_task", "work", ["task_id"])
    op.create_index("work_by_step", "work", ["step_id"])
    op.create_table(
        "context_snapshots",
        sa.Column("id", sa.Text, primary_key=True),
        _task(),
        _text("step_id"),
        _text("parent"),
        _text("label"),
        _text("value", is_null=False),
        _text("written_by", is_null=False),
        _number("created_at", is_null=False),
    )
    op.create_index("context_snapshots_by_task", "context_snapshots", ["task_id", "id"])


def _index(name: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "work", columns, sqlite_where=where, postgresql_where=where)
