"""The tables of values that outlive a task: state, memories, conversations, messages to the terminal.

A part of the schema that `tables` declares.
"""

from typing import ClassVar

from sqlalchemy import DDL, BigInteger, CheckConstraint, Column, Index, Integer, Text, event, text
from sqlmodel import Field, SQLModel


class TerminalMessage(SQLModel, table=True):
    """A message to a person at `agent chat`, kept until that person has seen it."""

    __tablename__: ClassVar[str] = "terminal_messages"
    __table_args__ = (
        Index(
            "terminal_messages_unread",
            "recipient",
            "id",
            sqlite_where=text("shown_at IS NULL"),
            postgresql_where=text("shown_at IS NULL"),
        ),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    recipient: str = Field(sa_type=Text)
    text: str = Field(sa_type=Text)
    attachments: str | None = Field(default=None, sa_type=Text)
    task_id: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    shown_at: int | None = Field(default=None, sa_type=BigInteger)


class StateValue(SQLModel, table=True):
    """The current value of a name in `state`."""

    __tablename__: ClassVar[str] = "state_values"

    # `workflow:NAME`, or `shared`.
    scope: str = Field(sa_type=Text, primary_key=True)
    name: str = Field(sa_type=Text, primary_key=True)
    # Null after a deletion; the version counts on.
    value: str | None = Field(default=None, sa_type=Text)
    version: int = Field(sa_type=BigInteger)
    # Null where a person wrote it; so is the step.
    task_id: str | None = Field(default=None, sa_type=Text)
    step_id: str | None = Field(default=None, sa_type=Text)
    # Null where `set_state` of the step wrote it, else the call of its code.
    call_id: str | None = Field(default=None, sa_type=Text)
    # The step's name, or the person.
    written_by: str = Field(sa_type=Text)
    written_at: int = Field(sa_type=BigInteger)


class StateHistory(SQLModel, table=True):
    """One version of a value of `state`."""

    __tablename__: ClassVar[str] = "state_history"

    scope: str = Field(sa_type=Text, primary_key=True)
    name: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(sa_type=BigInteger, primary_key=True)
    value: str | None = Field(default=None, sa_type=Text)
    task_id: str | None = Field(default=None, sa_type=Text)
    step_id: str | None = Field(default=None, sa_type=Text)
    call_id: str | None = Field(default=None, sa_type=Text)
    written_by: str = Field(sa_type=Text)
    written_at: int = Field(sa_type=BigInteger)


class Memory(SQLModel, table=True):
    """Something that an agent or a person remembered in a scope."""

    __tablename__: ClassVar[str] = "memories"
    __table_args__ = (
        Index(
            "memories_by_scope",
            "scope",
            "id",
            sqlite_where=text("forgotten_at IS NULL"),
            postgresql_where=text("forgotten_at IS NULL"),
        ),
        Index(
            "memories_by_call",
            "call_key",
            unique=True,
            sqlite_where=text("call_key IS NOT NULL"),
            postgresql_where=text("call_key IS NOT NULL"),
        ),
        Index(
            "memories_by_term",
            text("to_tsvector('simple', terms)"),
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        ).ddl_if(dialect="postgresql"),
        # An id is never used again: a model may still know it.
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(
        default=None,
        sa_column=Column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    )
    # `workflow:NAME`, or the name of a shared scope.
    scope: str = Field(sa_type=Text)
    text: str = Field(sa_type=Text)
    # The search terms of the text: see `agent.core.search_terms`.
    terms: str = Field(sa_type=Text)
    task_id: str | None = Field(default=None, sa_type=Text)
    step: str | None = Field(default=None, sa_type=Text)
    # The key of the call that wrote it: a repeated call finds its row.
    call_key: str | None = Field(default=None, sa_type=Text)
    written_by: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    forgotten_at: int | None = Field(default=None, sa_type=BigInteger)
    # The key of the call that had it forgotten.
    forget_key: str | None = Field(default=None, sa_type=Text)


# SQLite's full-text index of `memories.terms`; triggers keep the two equal, whichever statement writes.
# Rows that are forgotten stay in it until they are deleted.
for _statement in (
    "CREATE VIRTUAL TABLE memories_index USING fts5("
    "terms, content='memories', content_rowid='id', tokenize='ascii', detail='none')",
    "CREATE TRIGGER memories_indexed AFTER INSERT ON memories BEGIN"
    " INSERT INTO memories_index (rowid, terms) VALUES (new.id, new.terms); END",
    "CREATE TRIGGER memories_unindexed AFTER DELETE ON memories BEGIN"
    " INSERT INTO memories_index (memories_index, rowid, terms)"
    " VALUES ('delete', old.id, old.terms); END",
):
    event.listen(
        SQLModel.metadata.tables["memories"],
        "after_create",
        DDL(_statement).execute_if(dialect="sqlite"),  # type: ignore[no-untyped-call]
    )


class Conversation(SQLModel, table=True):
    """A conversation; its row is the lock under which entries get their numbers."""

    __tablename__: ClassVar[str] = "conversations"

    id: str = Field(sa_type=Text, primary_key=True)
    last_number: int = Field(sa_type=BigInteger)
    # Entries up to this number were deleted by a person. Numbers are never used again.
    forgotten_until: int = Field(default=0, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class ConversationTurn(SQLModel, table=True):
    """One entry of a conversation: appended, never rewritten."""

    __tablename__: ClassVar[str] = "conversation_turns"
    __table_args__ = (
        CheckConstraint("role IN ('user', 'assistant', 'summary')", name="role_known"),
        CheckConstraint("(role = 'summary') = (covers_until IS NOT NULL)", name="summary_covers"),
        Index(
            "conversation_summaries",
            "conversation",
            "number",
            sqlite_where=text("role = 'summary'"),
            postgresql_where=text("role = 'summary'"),
        ),
    )

    conversation: str = Field(sa_type=Text, primary_key=True)
    number: int = Field(sa_type=BigInteger, primary_key=True)
    role: str = Field(sa_type=Text)
    content: str = Field(sa_type=Text)
    # The task and the step that appended it; no foreign keys, since tasks are pruned first.
    task_id: str | None = Field(default=None, sa_type=Text)
    step_id: str | None = Field(default=None, sa_type=Text)
    tokens: int = Field(sa_type=BigInteger)
    # Of a summary: the number of the last entry that it stands for.
    covers_until: int | None = Field(default=None, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
