"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite gives only INTEGER PRIMARY KEY columns a row id of their own.
_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of an empty database."""
    _make_artifacts()
    _make_request_keys()
    _make_tasks()
    _make_workers()
    _make_workflows()
    _make_approvals()
    _make_channels()
    _make_budgets()
    _make_daily_spend()
    _make_events()
    _make_signals()
    _make_step_logs()
    _make_steps()
    _make_tool_calls()
    _make_idempotency_outcomes()


def _make_artifacts() -> None:
    op.create_table(
        "artifacts",
        _text("hash", is_key=True),
        _int("size"),
        _text("encoding"),
        sa.Column("data", sa.LargeBinary, nullable=False),
        _int("created_at"),
        _int("touched_at"),
    )


def _make_request_keys() -> None:
    op.create_table(
        "request_keys",
        _text("key", is_key=True),
        _text("request_hash"),
        _int("created_at"),
    )


def _make_tasks() -> None:
    op.create_table(
        "tasks",
        _text("id", is_key=True),
        _text("status"),
        _text("workflow_name"),
        _int("workflow_version"),
        _int("priority"),
        _text("input"),
        _text("output", is_nullable=True),
        _text("error", is_nullable=True),
        _int("next_wake_time", is_nullable=True),
        _int("deadline", is_nullable=True),
        _int("steps_open"),
        _int("steps_running"),
        _int("steps_failed"),
        _int("steps_held"),
        _int("places_taken"),
        _text("phase"),
        _int("event_seq"),
        _text("trigger", is_nullable=True),
        _text("dedupe_key", is_nullable=True),
        _text("parent_task_id", is_nullable=True),
        _text("parent_step_id", is_nullable=True),
        _int("depth"),
        _text("origin_id"),
        _text("retry_of", is_nullable=True),
        _text("forked_from", is_nullable=True),
        _text("pause_reason", is_nullable=True),
        _int("created_at"),
        _int("started_at", is_nullable=True),
        _int("ended_at", is_nullable=True),
        sa.CheckConstraint("priority IN (0, 1, 2)", name="priority_known"),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'paused', 'succeeded', 'failed', 'canceled')",
            name="status_known",
        ),
    )
    _index(
        "tasks_by_dedupe_key",
        "tasks",
        ["dedupe_key"],
        is_unique=True,
        where="dedupe_key IS NOT NULL",
    )
    _index("tasks_by_parent", "tasks", ["parent_step_id"], where="parent_step_id IS NOT NULL")
    _index("tasks_by_status", "tasks", ["status", "id"])
    _index("tasks_by_workflow", "tasks", ["workflow_name", "workflow_version"])
    _index("tasks_due", "tasks", ["priority", "next_wake_time"], where="status = 'running'")


def _make_workers() -> None:
    op.create_table(
        "workers",
        _text("id", is_key=True),
        _int("turn"),
        _int("dead"),
        _text("host"),
        _int("process_id"),
        _text("process_started"),
        _int("started_at"),
        _int("ended_at", is_nullable=True),
    )


def _make_workflows() -> None:
    op.create_table(
        "workflows",
        _text("name", is_key=True),
        _int("version", is_key=True),
        _text("hash"),
        _text("source", is_nullable=True),
        _text("graph"),
        _text("path", is_nullable=True),
        _int("created_at"),
        _int("removed_at", is_nullable=True),
    )


def _make_budgets() -> None:
    op.create_table(
        "budgets",
        _text("id", is_key=True),
        _text("task_id", refers_to="tasks.id"),
        _int("tokens_limit", is_nullable=True),
        _int("microusd_limit", is_nullable=True),
        _int("tokens_used"),
        _int("microusd_used"),
        _int("tokens_reserved"),
        _int("microusd_reserved"),
    )
    _index("budgets_by_task", "budgets", ["task_id"])


def _make_daily_spend() -> None:
    op.create_table(
        "daily_spend",
        _text("day", is_key=True),
        _int("tokens_used"),
        _int("microusd_used"),
        _int("tokens_reserved"),
        _int("microusd_reserved"),
    )


def _make_approvals() -> None:
    op.create_table(
        "approvals",
        _text("id", is_key=True),
        _text("task_id", refers_to="tasks.id"),
        _text("step_id"),
        _int("attempt"),
        _text("kind"),
        _text("status"),
        _text("message"),
        _text("request"),
        _text("request_hash"),
        _text("choices", is_nullable=True),
        _text("value_schema", is_nullable=True),
        _text("editable", is_nullable=True),
        _text("who", is_nullable=True),
        _int("expires_at", is_nullable=True),
        _text("on_expiry"),
        _int("remind_at", is_nullable=True),
        _int("remind_us", is_nullable=True),
        _text("renews", is_nullable=True),
        _text("decided_by", is_nullable=True),
        _text("decided_channel", is_nullable=True),
        _int("decided_at", is_nullable=True),
        _text("comment", is_nullable=True),
        _text("value", is_nullable=True),
        _text("edits", is_nullable=True),
        _text("approved_hash", is_nullable=True),
        _int("created_at"),
        sa.CheckConstraint("(status = 'pending') = (decided_at IS NULL)", name="decided_whole"),
        sa.CheckConstraint(
            "status IN ('pending', 'approved', 'denied', 'answered', 'expired', 'withdrawn')",
            name="status_known",
        ),
    )
    _index("approvals_by_step", "approvals", ["step_id"])
    _index("approvals_by_task", "approvals", ["task_id"])
    _index("approvals_decided", "approvals", ["decided_at"], where="decided_at IS NOT NULL")
    _index("approvals_pending", "approvals", ["id"], where="status = 'pending'")


def _make_channels() -> None:
    op.create_table(
        "channel_cursors",
        _text("channel", is_key=True),
        _int("xid"),
        _int("event_id"),
        _text("owner", is_nullable=True),
        _int("owned_until"),
        _int("failures"),
        _text("error", is_nullable=True),
        _int("retry_at", is_nullable=True),
        _int("updated_at"),
    )
    op.create_table(
        "channel_messages",
        _text("channel", is_key=True),
        _text("place", is_key=True),
        _text("approval_id", is_key=True, refers_to="approvals.id"),
        _text("reference"),
        _text("shown"),
        _int("delivered_at"),
    )
    _index("channel_messages_by_approval", "channel_messages", ["approval_id"])
    op.create_table(
        "answer_tokens",
        _text("hash", is_key=True),
        _text("channel"),
        _text("identity"),
        _text("approval_id", refers_to="approvals.id"),
        _text("said", is_nullable=True),
        _int("expires_at"),
        _int("used_at", is_nullable=True),
    )
    _index("answer_tokens_by_approval", "answer_tokens", ["approval_id"])
    op.create_table(
        "pairings",
        _text("channel", is_key=True),
        _text("identity", is_key=True),
        _text("name"),
        _text("scopes"),
        _text("code_hash", is_nullable=True),
        _int("code_expires_at", is_nullable=True),
        _int("paired_at", is_nullable=True),
        _int("created_at"),
    )


def _make_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _SERIAL, primary_key=True),
        _int("xid"),
        _text("task_id", is_nullable=True, refers_to="tasks.id"),
        _int("seq", is_nullable=True),
        _text("type"),
        _text("step_id", is_nullable=True),
        _int("attempt", is_nullable=True),
        _int("at"),
        _text("data", is_nullable=True),
        sqlite_autoincrement=True,
    )
    if op.get_bind().dialect.name == "postgresql":
        _index("events_by_cursor", "events", ["xid", "id"])
    _index(
        "events_by_task", "events", ["task_id", "seq"], is_unique=True, where="task_id IS NOT NULL"
    )


def _make_signals() -> None:
    op.create_table(
        "signals",
        _text("id", is_key=True),
        _text("task_id", refers_to="tasks.id"),
        _text("name"),
        _text("payload", is_nullable=True),
        _int("sent_at"),
        _text("taken_by", is_nullable=True),
    )
    _index("signals_by_task", "signals", ["task_id", "name", "id"])


def _make_step_logs() -> None:
    op.create_table(
        "step_logs",
        sa.Column("id", _SERIAL, primary_key=True),
        _text("task_id", refers_to="tasks.id"),
        _text("step_id"),
        _int("attempt"),
        _int("at"),
        _text("stream"),
        _text("text"),
        sqlite_autoincrement=True,
    )
    _index("step_logs_by_task", "step_logs", ["task_id", "id"])


def _make_steps() -> None:
    op.create_table(
        "steps",
        _text("id", is_key=True),
        _text("task_id", refers_to="tasks.id"),
        _int("index"),
        _int("parallel_index"),
        _text("name"),
        _text("kind"),
        _text("status"),
        _int("attempt"),
        _int("max_attempts"),
        _int("deps_remaining"),
        _int("deps_failed"),
        _int("wake_at", is_nullable=True),
        _int("held"),
        _int("placed"),
        _int("alone"),
        _text("owner", is_nullable=True),
        _int("claim_token"),
        _int("claim_turn", is_nullable=True),
        _int("failures"),
        _text("waiting_on", is_nullable=True),
        _text("checkpoint", is_nullable=True),
        _text("output", is_nullable=True),
        _text("error", is_nullable=True),
        _text("skip_reason", is_nullable=True),
        _text("idempotency_key", is_nullable=True),
        _text("item", is_nullable=True),
        _text("items", is_nullable=True),
        _int("parallel_count", is_nullable=True),
        _int("items_done"),
        _int("items_placed"),
        _int("items_ended"),
        _int("items_failed"),
        _int("process_id", is_nullable=True),
        _text("process_started", is_nullable=True),
        _int("started_at", is_nullable=True),
        _int("ended_at", is_nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (owner IS NOT NULL) AND (owner IS NULL) = (claim_turn IS NULL)",
            name="claim_whole",
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'waiting', 'paused', 'succeeded', 'failed', 'skipped')",
            name="status_known",
        ),
    )
    _index("steps_by_owner", "steps", ["owner"], where="owner IS NOT NULL")
    _index("steps_by_place", "steps", ["task_id", "index", "parallel_index"], is_unique=True)
    _index("steps_due", "steps", ["task_id", "wake_at", "index"], where="wake_at IS NOT NULL")
    _index("steps_held", "steps", ["task_id", "index", "parallel_index"], where="held = 1")


def _make_tool_calls() -> None:
    op.create_table(
        "tool_calls",
        _text("id", is_key=True),
        _text("task_id", refers_to="tasks.id"),
        _text("step_id"),
        _int("number"),
        _int("attempt"),
        _text("action"),
        _text("idempotency_key"),
        _text("remote_key"),
        _text("request_hash"),
        _text("request", is_nullable=True),
        _text("response", is_nullable=True),
        _text("error", is_nullable=True),
        _text("on_unknown"),
        _int("send_by"),
        _int("expires_at"),
        _text("model", is_nullable=True),
        _text("prompt_hash", is_nullable=True),
        _int("tokens_in", is_nullable=True),
        _int("tokens_out", is_nullable=True),
        _int("cost_microusd", is_nullable=True),
        _int("reserved_microusd", is_nullable=True),
        _int("reserved_tokens", is_nullable=True),
        _text("request_id", is_nullable=True),
        _text("stop_reason", is_nullable=True),
        _int("latency_ms", is_nullable=True),
        _int("created_at"),
    )
    _index("tool_calls_by_step", "tool_calls", ["step_id", "number", "attempt"])
    _index("tool_calls_by_task", "tool_calls", ["task_id"])


def _make_idempotency_outcomes() -> None:
    op.create_table(
        "idempotency_outcomes",
        _text("idempotency_key", is_key=True),
        _text("tool_call_id", refers_to="tool_calls.id"),
        _text("status"),
        _text("response_hash", is_nullable=True),
        _int("resolved_at", is_nullable=True),
        sa.CheckConstraint("status IN ('unknown', 'succeeded', 'failed')", name="status_known"),
    )
    _index("outcomes_by_call", "idempotency_outcomes", ["tool_call_id"])


def _text(
    name: str,
    *,
    is_key: bool = False,
    is_nullable: bool = False,
    refers_to: str | None = None,
) -> "sa.Column[str]":
    keys = [sa.ForeignKey(refers_to, ondelete="CASCADE")] if refers_to else []
    return sa.Column(name, sa.Text, *keys, primary_key=is_key, nullable=is_nullable)


def _int(name: str, *, is_key: bool = False, is_nullable: bool = False) -> "sa.Column[int]":
    return sa.Column(
        name, sa.BigInteger, primary_key=is_key, nullable=is_nullable, autoincrement=False
    )


def _index(
    name: str, table: str, columns: list[str], *, is_unique: bool = False, where: str | None = None
) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=is_unique,
        sqlite_where=None if where is None else sa.text(where),
        postgresql_where=None if where is None else sa.text(where),
    )
