"""What the event routes return."""

from typing import Any

from pydantic import Field

from agent.server.examples import steps as step_examples
from agent.server.examples.identities import TASK_ID
from agent.server.schemas.base import Instant, ResponseDocument, with_example


class EventDocument(ResponseDocument):
    """One row of the append-only event log."""

    model_config = with_example(step_examples.EVENT)

    cursor: str = Field(examples=["0-1204"])
    task: str | None = Field(examples=[TASK_ID])
    seq: int | None
    type: str = Field(examples=["step.succeeded"])
    step: str | None = Field(examples=["fetch"])
    attempt: int | None
    at: Instant
    data: Any


class EventPage(ResponseDocument):
    """Events in commit order."""

    model_config = with_example(step_examples.EVENTS)

    events: list[EventDocument]
    cursor: str | None = Field(description="`after` of the next page")
