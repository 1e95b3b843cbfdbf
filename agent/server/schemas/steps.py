"""What the step routes take and return."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from agent.server import examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example


class Resolution(RequestDocument):
    """The verdict on an effect whose result is unknown."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"verdict": "done", "output": {"id": 7}}]}
    )

    verdict: Literal["done", "retry", "fail"]
    output: Any = Field(default=None, description="with `done`: the step's output")


class StepDocument(ResponseDocument):
    """One step of a task."""

    model_config = with_example(examples.STEP)

    name: str = Field(examples=["lines[3]"])
    index: int
    parallel_index: int | None
    parallel_count: int | None
    kind: str = Field(examples=["http"])
    status: str = Field(examples=["succeeded"])
    attempt: int
    max_attempts: int
    waiting_on: Any
    delay: Any = Field(
        description="why a running step is delayed: the `store` of large values that does not"
        " respond, and its `error`"
    )
    wake_at: Instant | None
    output: Any
    error: Any
    skip_reason: str | None
    depends_on: list[str]
    item: Any
    usage: Any = Field(description="what it has used of models; null for kinds that call none")
    state: Any = Field(
        description="what it has `read` of state, as recorded at its first claim, and `written`;"
        " null: nothing"
    )
    started_at: Instant | None
    ended_at: Instant | None


class StepList(ResponseDocument):
    """The steps of a task, in order."""

    model_config = with_example(examples.STEPS)

    steps: list[StepDocument]


class LogPiece(ResponseDocument):
    """A piece of a step's log."""

    id: int
    step: str
    attempt: int
    at: Instant
    stream: str = Field(examples=["stdout"])
    text: str


class LogPage(ResponseDocument):
    """Log lines, the oldest first."""

    model_config = with_example(examples.LOGS)

    logs: list[LogPiece]
    next: int = Field(description="`after` of the next page")
