"""Where a task was started in a chat; state, memories, conversations, messages of the terminal."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str, *, is_null: bool = True) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=is_null)


def _number(name: str, *, is_null: bool = True) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=is_null)


def upgrade() -> None:
    """Add the tables and columns."""
    op.add_column("tasks", sa.Column("chat_origin", sa.Text, nullable=True))
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
        sa.Column("id", _SERIAL, primary_key=True),
        _text("scope", is_null=False),
        _text("text", is_null=False),
        _text("terms", is_null=False),
        _text("task_id"),
        _text("step"),
        _text("call_key"),
        _text("written_by", is_null=False),
        _number("created_at", is_null=False),
        _number("forgotten_at"),
        _text("forget_key"),
        sqlite_autoincrement=True,
    )
    where = sa.text("forgotten_at IS NULL")
    op.create_index(
        "memories_by_scope",
        "memories",
        ["scope", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )
    has_key = sa.text("call_key IS NOT NULL")
    op.create_index(
        "memories_by_call",
        "memories",
        ["call_key"],
        unique=True,
        sqlite_where=has_key,
        postgresql_where=has_key,
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(
            "memories_by_term",
            "memories",
            [sa.text("to_tsvector('simple', terms)")],
            postgresql_using="gin",
            # A pending list would be read by every search.
            postgresql_with={"fastupdate": "off"},
        )
        return
    op.execute(
        "CREATE VIRTUAL TABLE memories_index USING fts5("
        "terms, content='memories', content_rowid='id', tokenize='ascii', detail='none')"
    )
    op.execute(
        "CREATE TRIGGER memories_indexed AFTER INSERT ON memories BEGIN"
        " INSERT INTO memories_index (rowid, terms) VALUES (new.id, new.terms); END"
    )
    op.execute(
        "CREATE TRIGGER memories_unindexed AFTER DELETE ON memories BEGIN"
        " INSERT INTO memories_index (memories_index, rowid, terms)"
        " VALUES ('delete', old.id, old.terms); END"
    )


def _create_conversations() -> None:
    op.add_column("tasks", sa.Column("conversation", sa.Text, nullable=True))
    is_open = sa.text("conversation IS NOT NULL AND status IN ('pending', 'running', 'paused')")
    op.create_index(
        "tasks_open_by_conversation",
        "tasks",
        ["conversation", "id"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, primary_key=True),
        _number("last_number", is_null=False),
        _number("forgotten_until", is_null=False),
        _number("created_at", is_null=False),
        _number("updated_at", is_null=False),
    )
    op.create_table(
        "conversation_turns",
        sa.Column("conversation", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        _text("role", is_null=False),
        _text("content", is_null=False),
        _text("task_id"),
        _text("step_id"),
        _number("tokens", is_null=False),
        _number("covers_until"),
        _number("created_at", is_null=False),
        sa.CheckConstraint("role IN ('user', 'assistant', 'summary')", name="role_known"),
        sa.CheckConstraint(
            "(role = 'summary') = (covers_until IS NOT NULL)", name="summary_covers"
        ),
    )
    is_summary = sa.text("role = 'summary'")
    op.create_index(
        "conversation_summaries",
        "conversation_turns",
        ["conversation", "number"],
        sqlite_where=is_summary,
        postgresql_where=is_summary,
    )
