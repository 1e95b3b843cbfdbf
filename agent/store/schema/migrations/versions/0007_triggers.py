"""Triggers and their firings; a task names the trigger that started it."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TRIGGER_STATES = "status IN ('active', 'paused', 'broken', 'removed')"
_FIRING_STATES = "status IN ('started', 'late', 'queued', 'skipped', 'missed', 'baseline')"


def _text(name: str, *, is_null: bool = True) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=is_null)


def _number(name: str, *, is_null: bool = True) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=is_null)


def upgrade() -> None:
    """Add the tables, the column and its indexes."""
    _create_triggers()
    _create_firings()
    op.add_column("tasks", sa.Column("trigger_id", sa.Text, nullable=True))
    _index("tasks_by_trigger", "tasks", ["trigger_id", "id"], "trigger_id IS NOT NULL")
    _index(
        "tasks_open_by_trigger",
        "tasks",
        ["trigger_id"],
        "trigger_id IS NOT NULL AND status IN ('pending', 'running', 'paused')",
    )


def _create_triggers() -> None:
    op.create_table(
        "triggers",
        sa.Column("id", sa.Text, primary_key=True),
        *(
            _text(name, is_null=False)
            for name in ("workflow", "name", "kind", "spec", "spec_hash", "timing_hash")
        ),
        _number("workflow_version", is_null=False),
        _text("status", is_null=False),
        _number("version", is_null=False),
        _text("pause_reason"),
        _number("paused_until"),
        _number("resumed_at"),
        _text("problem"),
        _number("next_at"),
        _number("next_nominal"),
        _number("last_nominal"),
        _number("anchor_at", is_null=False),
        _text("cursor"),
        _number("polls", is_null=False),
        _number("failures", is_null=False),
        _number("last_ok_at"),
        _number("last_item_at"),
        _text("last_error"),
        _text("skip_items"),
        _text("alert"),
        _text("owner"),
        _number("owned_until"),
        _text("directory"),
        _number("created_at", is_null=False),
        _number("removed_at"),
        _number("pruned_until"),
        sa.CheckConstraint(_TRIGGER_STATES, name="status_known"),
    )
    _index(
        "triggers_due",
        "triggers",
        ["kind", "next_at"],
        "status IN ('active', 'paused') AND next_at IS NOT NULL",
    )
    op.create_index("triggers_by_workflow", "triggers", ["workflow"])


def _create_firings() -> None:
    op.create_table(
        "firings",
        sa.Column(
            "trigger_id",
            sa.Text,
            sa.ForeignKey("triggers.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("key", sa.Text, primary_key=True),
        _text("status", is_null=False),
        _text("reason"),
        _number("nominal_at"),
        _number("due_at"),
        _text("task_id"),
        _text("run_id"),
        _text("input"),
        _text("context"),
        _number("workflow_version"),
        _text("spec_hash"),
        _number("until_at"),
        _number("count"),
        _number("recorded_at", is_null=False),
        _number("seen_at"),
        sa.CheckConstraint(_FIRING_STATES, name="status_known"),
        sa.CheckConstraint(
            "(status IN ('started', 'late')) = (task_id IS NOT NULL)", name="started_whole"
        ),
    )
    op.create_index("firings_by_time", "firings", ["trigger_id", "recorded_at"])
    _index("firings_queued", "firings", ["trigger_id", "due_at"], "status = 'queued'")


def _index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
