"""The tables of what outlives a task: state, memories, conversations, messages to the terminal.

A part of the schema that `tables` declares.
"""

from typing import ClassVar

from sqlalchemy import BigInteger, Index, Text, text
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
    """Something that an agent remembered."""

    __tablename__: ClassVar[str] = "memories"

    id: str = Field(sa_type=Text, primary_key=True)
    scope: str = Field(sa_type=Text)
    text: str = Field(sa_type=Text)
    task_id: str | None = Field(default=None, sa_type=Text)
    call_key: str | None = Field(default=None, sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    forgotten_at: int | None = Field(default=None, sa_type=BigInteger)


class ConversationTurn(SQLModel, table=True):
    """One entry of a conversation: appended, never rewritten."""

    __tablename__: ClassVar[str] = "conversation_turns"

    conversation: str = Field(sa_type=Text, primary_key=True)
    number: int = Field(sa_type=BigInteger, primary_key=True)
    # user, assistant or summary.
    role: str = Field(sa_type=Text)
    content: str = Field(sa_type=Text)
    task_id: str | None = Field(default=None, sa_type=Text)
    tokens: int = Field(sa_type=BigInteger)
    # Of a summary: the number of the last entry that it stands for.
    covers_until: int | None = Field(default=None, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
