"""What the routes for calls of models and tools return."""

from typing import Any

from pydantic import Field

from agent.server.examples import steps as step_examples
from agent.server.schemas.base import Instant, ResponseDocument, with_example


class CallDocument(ResponseDocument):
    """One call of a step: of a model, a tool, or another external system."""

    id: str
    step: str
    number: int = Field(description="its position among the step's calls; later attempts repeat it")
    attempt: int
    action: str = Field(examples=["model"])
    status: str = Field(examples=["succeeded"])
    at: Instant
    request: Any
    response: Any
    error: Any
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    latency_ms: int | None
    stop_reason: str | None
    request_id: str | None
    idempotency_key: str = Field(
        description="names the call to the remote: the header `Idempotency-Key`, or `ctx.idempotency_key`"
    )


class CallList(ResponseDocument):
    """Calls of models and their tools, in order."""

    model_config = with_example(step_examples.CALLS)

    calls: list[CallDocument]


class Transcript(ResponseDocument):
    """All calls of a step in order: for an agent, its whole conversation."""

    model_config = with_example(step_examples.TRANSCRIPT)

    task: str
    step: str
    kind: str
    status: str
    attempt: int
    calls: list[CallDocument]
    usage: Any
