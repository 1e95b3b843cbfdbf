"""What a webhook's sender gets."""

from pydantic import Field

from agent.server import examples
from agent.server.schemas.base import ResponseDocument, with_example


class HookAnswer(ResponseDocument):
    """The task of a webhook's delivery; the same for every redelivery."""

    model_config = with_example(examples.HOOK)

    task: str | None = Field(examples=[examples.TASK_ID])
