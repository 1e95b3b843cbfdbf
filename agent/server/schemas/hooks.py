"""What a webhook's sender gets."""

from pydantic import Field

from agent.server.examples import tasks as task_examples
from agent.server.examples.identities import TASK_ID
from agent.server.schemas.base import ResponseDocument, with_example


class HookAnswer(ResponseDocument):
    """The task of a webhook's delivery; the same for every redelivery."""

    model_config = with_example(task_examples.HOOK)

    task: str | None = Field(examples=[TASK_ID])
