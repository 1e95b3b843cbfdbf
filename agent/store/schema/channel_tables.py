"""The tables of channels: how far each has come, what it has shown, and who may use it.

A part of the schema that `tables` declares.
"""

from typing import ClassVar

from sqlalchemy import BigInteger, Index, Text
from sqlmodel import Field, SQLModel


class ChannelCursor(SQLModel, table=True):
    """How far a channel has come in the event log, and how it fares."""

    __tablename__: ClassVar[str] = "channel_cursors"

    channel: str = Field(sa_type=Text, primary_key=True)
    xid: int = Field(sa_type=BigInteger)
    event_id: int = Field(sa_type=BigInteger)
    # Who delivers, of several processes on one PostgreSQL, and until when that holds.
    owner: str | None = Field(default=None, sa_type=Text)
    owned_until: int = Field(default=0, sa_type=BigInteger)
    # How often the next delivery has failed in a row, why, and when it is tried again.
    failures: int = Field(default=0, sa_type=BigInteger)
    error: str | None = Field(default=None, sa_type=Text)
    retry_at: int | None = Field(default=None, sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)
    # What keeps it from being opened, or from hearing anybody.
    trouble: str | None = Field(default=None, sa_type=Text)


class ChannelMessage(SQLModel, table=True):
    """A question as it was shown somewhere, so that it can be brought up to date there."""

    __tablename__: ClassVar[str] = "channel_messages"
    __table_args__ = (Index("channel_messages_by_approval", "approval_id"),)

    channel: str = Field(sa_type=Text, primary_key=True)
    # Where: a chat's id.
    place: str = Field(sa_type=Text, primary_key=True)
    approval_id: str = Field(
        sa_type=Text, primary_key=True, foreign_key="approvals.id", ondelete="CASCADE"
    )
    # The message's name there, and what it shows: a status of approvals.
    reference: str = Field(sa_type=Text)
    shown: str = Field(sa_type=Text)
    delivered_at: int = Field(sa_type=BigInteger)


class AnswerToken(SQLModel, table=True):
    """What a button or a link stands for; only its hash is kept, and it is good for one answer."""

    __tablename__: ClassVar[str] = "answer_tokens"
    __table_args__ = (Index("answer_tokens_by_approval", "approval_id"),)

    hash: str = Field(sa_type=Text, primary_key=True)
    channel: str = Field(sa_type=Text)
    # Who may use it; empty: whoever has it.
    identity: str = Field(sa_type=Text)
    approval_id: str = Field(sa_type=Text, foreign_key="approvals.id", ondelete="CASCADE")
    # The answer that it gives, as JSON; null: the holder chooses.
    said: str | None = Field(default=None, sa_type=Text)
    expires_at: int = Field(sa_type=BigInteger)
    used_at: int | None = Field(default=None, sa_type=BigInteger)


class Pairing(SQLModel, table=True):
    """Somebody in a chat, by the chat's own id: paired, or waiting with a code to be confirmed."""

    __tablename__: ClassVar[str] = "pairings"

    channel: str = Field(sa_type=Text, primary_key=True)
    identity: str = Field(sa_type=Text, primary_key=True)
    name: str = Field(sa_type=Text)
    scopes: str = Field(sa_type=Text)
    code_hash: str | None = Field(default=None, sa_type=Text)
    code_expires_at: int | None = Field(default=None, sa_type=BigInteger)
    paired_at: int | None = Field(default=None, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
