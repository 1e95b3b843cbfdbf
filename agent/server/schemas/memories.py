"""What the memory routes take and return."""

from pydantic import Field

from agent.server.examples import values as value_examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example
from agent.tool_services.memories import MAX_SCOPE_CHARS, MAX_TEXT_CHARS


class NewMemory(RequestDocument):
    """A text to remember."""

    scope: str = Field(
        min_length=1,
        max_length=MAX_SCOPE_CHARS,
        description="`workflow:NAME`, or a shared scope that tools name.",
        examples=["personal"],
    )
    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARS, examples=["Anna likes green tea"])


class MemoryDocument(ResponseDocument):
    """A memory."""

    model_config = with_example(value_examples.MEMORY)

    id: int
    scope: str = Field(description="`workflow:NAME`, or a shared scope")
    text: str
    written_by: str = Field(description="`agent`, or who added it")
    task: str | None = Field(description="the task whose agent wrote it")
    step: str | None
    created_at: Instant
    forgotten_at: Instant | None = Field(description="deleted by the next prune after the task")


class MemoryPage(ResponseDocument):
    """A page of memories, or the results of a search, the best first."""

    model_config = with_example(value_examples.MEMORIES)

    memories: list[MemoryDocument]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")
