"""The document of a problem."""

from typing import Any

from pydantic import Field

from agent.server.examples import operation as operation_examples
from agent.server.schemas.base import ResponseDocument, with_example


class ProblemDocument(ResponseDocument):
    """What is wrong with a request (RFC 9457)."""

    model_config = with_example(operation_examples.PROBLEM)

    type: str = Field(examples=["urn:agent:problem:refused"])
    title: str = Field(examples=["Not allowed in this state"])
    status: int = Field(examples=[409])
    detail: str = Field(examples=["nothing to pause: the task succeeded"])
    errors: list[Any] | None = Field(
        default=None, description="every problem, where there can be several"
    )
