"""What the routes for conversations return."""

from pydantic import Field

from agent.server.examples import people as people_examples
from agent.server.schemas.base import Instant, ResponseDocument, with_example


class ConversationSummary(ResponseDocument):
    """A conversation in a list."""

    id: str = Field(examples=["telegram:123"])
    entries: int
    tokens: int = Field(description="an estimate, of all entries")
    summaries: int
    first_at: Instant
    last_at: Instant


class ConversationList(ResponseDocument):
    """Conversations, the one with the newest entry first."""

    model_config = with_example(people_examples.CONVERSATIONS)

    conversations: list[ConversationSummary]


class EntryDocument(ResponseDocument):
    """One entry; entries are never changed."""

    number: int
    role: str = Field(description="user, assistant or summary")
    text: str
    task: str | None = Field(description="the task that appended it")
    tokens: int
    covers_until: int | None = Field(
        description="of a summary: the last entry that it stands for; that one stays too"
    )
    at: Instant


class ConversationDocument(ResponseDocument):
    """Entries of a conversation, the oldest first."""

    model_config = with_example(people_examples.CONVERSATION)

    id: str
    entries: list[EntryDocument]
    next: int | None = Field(description="`after` of the next page; null on the last page")


class ForgottenConversation(ResponseDocument):
    """A conversation whose entries were deleted."""

    model_config = with_example({"id": "telegram:123", "deleted": 12})

    id: str
    deleted: int
