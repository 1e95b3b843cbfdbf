"""The tables of channels: cursors, shown messages, tokens of answers, and pairings.

A part of the schema that `tables` declares.
"""

from typing import ClassVar

from sqlalchemy import BigInteger, Index, Text
from sqlmodel import Field, SQLModel


class ChannelCursor(SQLModel, table=True):
    """How far a channel has read the event log, and its failures."""

    __tablename__: ClassVar[str] = "channel_cursors"

    channel: str = Field(sa_type=Text, primary_key=True)
    xid: int = Field(sa_type=BigInteger)
    event_id: int = Field(sa_type=BigInteger)
    # The process that delivers, of several on one PostgreSQL, and until when.
    owner: str | None = Field(default=None, sa_type=Text)
    owned_until: int = Field(default=0, sa_type=BigInteger)
    # Failures in a row of the next delivery, the last error, and when it is retried.
    failures: int = Field(default=0, sa_type=BigInteger)
    error: str | None = Field(default=None, sa_type=Text)
    retry_at: int | None = Field(default=None, sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)
    # Why it cannot be opened or receive.
    trouble: str | None = Field(default=None, sa_type=Text)


class ChannelMessage(SQLModel, table=True):
    """A question as a message shows it, so that the message can be updated."""

    __tablename__: ClassVar[str] = "channel_messages"
    __table_args__ = (Index("channel_messages_by_approval", "approval_id"),)

    channel: str = Field(sa_type=Text, primary_key=True)
    # The id of the chat.
    place: str = Field(sa_type=Text, primary_key=True)
    approval_id: str = Field(
        sa_type=Text, primary_key=True, foreign_key="approvals.id", ondelete="CASCADE"
    )
    # The message's id there, and the status that it shows.
    reference: str = Field(sa_type=Text)
    shown: str = Field(sa_type=Text)
    delivered_at: int = Field(sa_type=BigInteger)


class AnswerToken(SQLModel, table=True):
    """The token of a button or a link, by its hash; it gives one answer."""

    __tablename__: ClassVar[str] = "answer_tokens"
    __table_args__ = (Index("answer_tokens_by_approval", "approval_id"),)

    hash: str = Field(sa_type=Text, primary_key=True)
    channel: str = Field(sa_type=Text)
    # The person who may use it; empty: anyone who has it.
    identity: str = Field(sa_type=Text)
    approval_id: str = Field(sa_type=Text, foreign_key="approvals.id", ondelete="CASCADE")
    # The answer that it gives, as JSON; null: the person chooses.
    said: str | None = Field(default=None, sa_type=Text)
    expires_at: int = Field(sa_type=BigInteger)
    used_at: int | None = Field(default=None, sa_type=BigInteger)


class Pairing(SQLModel, table=True):
    """A person in a chat, by the chat's own id: paired, or waiting for a code to be confirmed."""

    __tablename__: ClassVar[str] = "pairings"

    channel: str = Field(sa_type=Text, primary_key=True)
    identity: str = Field(sa_type=Text, primary_key=True)
    name: str = Field(sa_type=Text)
    scopes: str = Field(sa_type=Text)
    code_hash: str | None = Field(default=None, sa_type=Text)
    code_expires_at: int | None = Field(default=None, sa_type=BigInteger)
    paired_at: int | None = Field(default=None, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
