"""Where a task was started in a chat; state, memories, conversations, messages of the terminal."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def _text(name: str, *, is_null: bool = True) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=is_null)


def _number(name: str, *, is_null: bool = True) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=is_null)


def upgrade() -> None:
    """Add the tables and columns."""
    op.add_column("tasks", sa.Column("chat_origin", sa.Text, nullable=True))
    op.add_column("triggers", sa.Column("not_listening", sa.Text, nullable=True))
    _create_terminal_messages()
    _create_state()
    _create_memories()
    _create_conversations()


def _create_terminal_messages() -> None:
    op.create_table(
        "terminal_messages",
        sa.Column("id", sa.Text, primary_key=True),
        _text("recipient", is_null=False),
        _text("text", is_null=False),
        _text("attachments"),
        _text("task_id"),
        _number("created_at", is_null=False),
        _number("shown_at"),
    )
    where = sa.text("shown_at IS NULL")
    op.create_index(
        "terminal_messages_unread",
        "terminal_messages",
        ["recipient", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )


def _create_state() -> None:
    op.add_column("steps", sa.Column("state_read", sa.Text, nullable=True))
    op.create_table(
        "state_values",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        _text("value"),
        _number("version", is_null=False),
        _text("task_id"),
        _text("step"),
        _text("written_by", is_null=False),
        _number("written_at", is_null=False),
    )
    op.create_table(
        "state_history",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        _text("value"),
        _text("task_id"),
        _text("step"),
        _text("written_by", is_null=False),
        _number("written_at", is_null=False),
    )


def _create_memories() -> None:
    op.create_table(
        "memories",
        sa.Column("id", sa.Text, primary_key=True),
        _text("scope", is_null=False),
        _text("text", is_null=False),
        _text("task_id"),
        _text("call_key"),
        _number("created_at", is_null=False),
        _number("forgotten_at"),
    )


def _create_conversations() -> None:
    op.create_table(
        "conversation_turns",
        sa.Column("conversation", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        _text("role", is_null=False),
        _text("content", is_null=False),
        _text("task_id"),
        _number("tokens", is_null=False),
        _number("covers_until"),
        _number("created_at", is_null=False),
    )
