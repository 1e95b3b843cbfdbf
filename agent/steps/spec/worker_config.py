"""The keys of the `worker` kind."""

from typing import Any, Literal

from agent.core.quick_classes.quick_fields import ConfigDict, Field, model_validator
from agent.core.quick_classes.quick_models import BaseModel
from agent.core.scopes import QUEUE_PATTERN
from agent.steps.spec.configs import Seconds


class WorkerConfig(BaseModel):
    """`worker`: work that a program outside claims, does and reports."""

    model_config = ConfigDict(extra="forbid", strict=True)

    queue: str = Field(
        pattern=QUEUE_PATTERN,
        description="the queue that workers claim it from",
        examples=["review"],
    )
    with_: dict[str, Any] = Field(
        default_factory=dict, alias="with", description="what the worker gets"
    )
    lease: Seconds = Field(
        default=60.0,
        description="how long a worker that has it may be silent before its lease ends",
    )
    start_within: Seconds = Field(
        default=300.0, description="how long a worker that has claimed it may take to begin"
    )
    effect: Literal["none", "once"] | None = Field(
        default=None,
        description="once: the work is an effect, and is repeated only after a person was asked;"
        " none (the default): it may be repeated",
    )

    @model_validator(mode="after")
    def _within_bounds(self) -> "WorkerConfig":
        if not 1 <= self.lease <= 86_400:
            raise ValueError("lease must be between 1s and 24h")
        if not 1 <= self.start_within <= 86_400:
            raise ValueError("start_within must be between 1s and 24h")
        return self
