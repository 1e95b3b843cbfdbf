"""Kinds of steps for the language's own tests, so that they do not depend on the real ones."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agent.workflows.kind_registry import KindSpec


class DoConfig(BaseModel):
    """A kind with a required key, a number and anything else under `with`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    what: str = Field(min_length=1)
    count: int = Field(default=1, ge=1)
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    raw: str | None = None
    many: list[str] | str = ""
    test: str | None = None


class NapConfig(BaseModel):
    """A kind without keys."""

    model_config = ConfigDict(extra="forbid")


KINDS = {
    "do": KindSpec(
        "do",
        lambda: DoConfig,
        short_key="what",
        verbatim=frozenset({("raw",), ("test",)}),
        expressions={("test",): ("reply",)},
    ),
    "nap": KindSpec("nap", lambda: NapConfig),
}
