"""Conversations as steps see them: the earlier entries, and the exchange that a success adds."""

from typing import Literal, Protocol

from agent.core.quick_classes.quick_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a conversation; entries are never rewritten."""

    number: int
    role: Literal["user", "assistant", "summary"]
    text: str
    tokens: int
    """An estimate."""
    covers_until: int | None = None
    """Of a summary: the number of the last entry that it stands for."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of the entries up to a number."""

    text: str
    tokens: int
    covers_until: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange that a step appends to a conversation, in the transaction that records its success."""

    conversation: str
    message: str
    message_tokens: int
    answer: str
    answer_tokens: int
    summary: Summary | None = None


class Conversations(Protocol):
    """The recorded conversations; steps only read them."""

    async def task_before(self, conversation: str, task_id: str) -> str | None:
        """Return an earlier task that has still to answer in a conversation; None: it is this one's turn.

        A task that waits for a person does not count.
        """

    async def last_number(self, conversation: str) -> int:
        """Return the number of the newest entry, 0 for none."""

    async def entries(self, conversation: str, until: int) -> list[Entry]:
        """Return the newest summary up to a number, if any, then the entries after what it covers."""
