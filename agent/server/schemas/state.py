"""What the state routes take and return."""

from typing import Any

from pydantic import ConfigDict, Field

from agent.server.examples import values as value_examples
from agent.server.examples.identities import TASK_ID
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example


class NewValue(RequestDocument):
    """A value to set."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"value": 199.5}]})

    value: Any = Field(description="any JSON value, at most 64 KB")
    if_version: int | None = Field(
        default=None,
        ge=0,
        lt=2**53,
        description="only if it still has this version; 0: only if it was never written",
    )


class DeleteValueRequest(RequestDocument):
    """Under which condition a value is deleted."""

    if_version: int | None = Field(default=None, ge=1, lt=2**53)


class StateVersion(ResponseDocument):
    """One version of a value, and what wrote it."""

    version: int
    value: Any
    deleted: bool
    written_by: str = Field(description="the step, or the person")
    task: str | None = Field(examples=[TASK_ID])
    written_at: Instant


class StateDocument(StateVersion):
    """A current value."""

    model_config = with_example(value_examples.STATE_VALUE)

    id: str = Field(examples=["workflow:price-watch/last_price"])
    scope: str = Field(examples=["workflow:price-watch"])
    workflow: str | None = Field(description="null: all workflows share it")
    name: str


class StateHistory(StateDocument):
    """A value with its versions, the newest first."""

    model_config = with_example(value_examples.STATE_HISTORY)

    history: list[StateVersion]


class StateList(ResponseDocument):
    """A page of values."""

    model_config = with_example(value_examples.STATE)

    state: list[StateDocument]
    next: str | None


class StateAnswer(ResponseDocument):
    """What a command on a value did."""

    model_config = with_example(value_examples.STATE_ANSWER)

    changed: bool
    message: str
    version: int
