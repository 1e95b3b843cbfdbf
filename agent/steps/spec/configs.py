"""The keys of each kind of step, checked in the file and again after rendering."""

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from agent.core.clock import SECOND
from agent.core.quick_classes.quick_fields import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.workflows.durations import MAX_SECONDS, parse_duration
from agent.workflows.templates.templates import has_templates

RENDERED: Final = {"is_rendered": True}
"""The context of a check at run time, when templates have become values of any type."""


def parse_seconds(value: object, info: ValidationInfo) -> float:
    """Parse a duration such as `1h30m`, or a number of seconds that a template returned."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and info.context is RENDERED:
        assert isinstance(value, int | float)
        if not 0 <= value <= MAX_SECONDS:
            raise ValueError("must be between 0 and a year")
        return float(value)
    return parse_duration(value)


def parse_instant(value: object) -> int:
    """Parse an ISO 8601 instant with its offset; return microseconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError("must be an instant such as 2030-01-31T08:00:00+01:00")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an instant such as 2030-01-31T08:00:00+01:00") from None
    if moment.tzinfo is None:
        raise ValueError(f"{value!r} has no offset: write Z for UTC, or +01:00")
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * SECOND)


def _as_text(value: object, info: ValidationInfo) -> object:
    """Convert a value to text as a program or a header expects it.

    A list or a mapping in a file is a mistake; one from a template becomes JSON.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | dict) and info.context is RENDERED:
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def _no_boolean(value: object) -> object:
    """Refuse booleans, which Python accepts as 0 and 1."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, and is {'true' if value else 'false'}")
    return value


def _plain_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL character")
    return value


def _check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse an unusable JSON Schema when the file is read."""
    # Imported here: few steps have a schema, and the library behind it is slow to import.
    from agent.workflows.compile.output_schema import refuse_unusable

    if not has_templates(schema):
        refuse_unusable(schema)
    return schema


Seconds = Annotated[float, BeforeValidator(parse_seconds, json_schema_input_type=str)]
Instant = Annotated[int, BeforeValidator(parse_instant, json_schema_input_type=str)]
Text = Annotated[
    str,
    BeforeValidator(_as_text, json_schema_input_type=str | float | bool | None),
]
Count = Annotated[int, BeforeValidator(_no_boolean, json_schema_input_type=int)]
ExitCode = Annotated[Count, Field(ge=1, le=255)]
Number = Annotated[float, BeforeValidator(_no_boolean, json_schema_input_type=float)]
Names = list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]]
"""Names of environment variables."""
JsonSchema = Annotated[dict[str, Any], AfterValidator(_check_schema)]
Url = Annotated[str, Field(min_length=1, max_length=8192)]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class PythonConfig(_Config):
    """`python`: a function of a module beside the workflow file, or of an installed one."""

    call: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$",
        description="module:function",
        examples=["my_steps:check"],
    )
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    code: list[str] = Field(
        default_factory=list,
        description="further files that its code is in: a change of one makes a new version of the workflow",
        examples=[["helpers.py"]],
    )
    effect: Literal["none", "once"] | None = Field(
        default=None,
        description="once: the function is an effect, and is repeated only after a person was asked;"
        " none (the default): it may be repeated",
    )


class ShellConfig(_Config):
    """`shell`: a program with its arguments, or a script that gets values by its environment."""

    argv: list[Text] | None = Field(default=None, min_length=1)
    script: str | None = Field(default=None, min_length=1)
    env: dict[str, Text] = Field(default_factory=dict)
    inherit: Names = Field(
        default_factory=list,
        description="variables of the agent's own environment that the command inherits",
    )
    cwd: str | None = None
    stdin: Text | None = None
    code: list[str] = Field(
        default_factory=list,
        description="further files that its code is in: a change of one makes a new version of the workflow",
        examples=[["helpers.py"]],
    )
    effect: Literal["none", "once"] | None = Field(
        default=None,
        description="none: the command only reads, and may be repeated; once (the default): it is an"
        " effect",
    )
    retry_exit_codes: list[ExitCode] = Field(
        default_factory=list,
        description="exit codes that mean that nothing was done, so that the command may be retried",
        examples=[[75]],
    )

    @model_validator(mode="after")
    def _one_way(self) -> "ShellConfig":
        if (self.argv is None) == (self.script is None):
            raise ValueError("give exactly one of argv and script")
        if self.retry_exit_codes and self.effect == "none":
            raise ValueError(
                "retry_exit_codes is for commands with an effect: with effect: none every exit"
                " code but 0 is retried"
            )
        for text in [*(self.argv or []), self.script or "", *self.env, *self.env.values()]:
            _plain_text(text)
        if self.argv is not None and not self.argv[0]:
            raise ValueError("argv: the program's name is empty")
        if any(not name or "=" in name for name in self.env):
            raise ValueError("env: a variable's name must not be empty nor contain '='")
        return self


class Reconciliation(_Config):
    """How to find out whether an effect happened: a request, and what its response means."""

    get: Url
    headers: dict[str, Text] = Field(default_factory=dict)
    applied: str = Field(min_length=1, description="an expression over response.status and .body")


def status_ranges(expect: int | str | list[int | str] | None) -> list[tuple[int, int]]:
    """Parse `expect`: 204, "2xx", "200-299" or a list of these; the default is 2xx."""
    if expect is None:
        return [(200, 299)]
    ranges = []
    for part in expect if isinstance(expect, list) else [expect]:
        text = str(part).strip().lower()
        match = re.fullmatch(r"([1-5]\d\d)(?:\s*-\s*([1-5]\d\d))?", text)
        if re.fullmatch(r"[1-5]xx", text):
            ranges.append((int(text[0]) * 100, int(text[0]) * 100 + 99))
        elif match is not None:
            ranges.append((int(match[1]), int(match[2] or match[1])))
        else:
            raise ValueError(f"{part!r} is not a status such as 204, 2xx or 200-299")
    return ranges


def _checked_statuses(
    expect: int | str | list[int | str] | None,
) -> int | str | list[int | str] | None:
    status_ranges(expect)
    return expect


class HttpConfig(_Config):
    """`http`: one request."""

    get: Url | None = None
    head: Url | None = None
    post: Url | None = None
    put: Url | None = None
    patch: Url | None = None
    delete: Url | None = None
    headers: dict[str, Text] = Field(default_factory=dict)
    params: dict[str, list[Text] | Text] = Field(default_factory=dict)
    json_: Any = Field(default=None, alias="json")
    data: dict[str, Text] | str | None = None
    expect: Annotated[int | str | list[int | str] | None, AfterValidator(_checked_statuses)] = None
    idempotent: bool = False
    reconcile: Reconciliation | None = None

    @property
    def method(self) -> str:
        """The method, in lower case."""
        return next(name for name in METHODS if getattr(self, name) is not None)

    @property
    def url(self) -> str:
        """Where the request goes."""
        return str(getattr(self, self.method))

    @model_validator(mode="after")
    def _one_request(self) -> "HttpConfig":
        if sum(getattr(self, name) is not None for name in METHODS) != 1:
            raise ValueError("give exactly one of " + ", ".join(METHODS))
        if self.json_ is not None and self.data is not None:
            raise ValueError("give json or data, not both")
        if self.method in ("get", "head") and (self.json_ is not None or self.data is not None):
            raise ValueError(f"{self.method} takes no body: put values into params")
        return self


METHODS: Final = ("get", "head", "post", "put", "patch", "delete")


class LlmConfig(_Config):
    """`llm`: one question to a model."""

    prompt: Annotated[Text, Field(min_length=1)]
    system: Text | None = None
    model: str | None = Field(default=None, description="a name of [models] in the configuration")
    max_tokens: Count | None = Field(default=None, ge=1, le=10_000_000)
    effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    temperature: Number | None = Field(default=None, ge=0, le=2)
    stop: list[str] = Field(default_factory=list, max_length=16)
    json_: bool = Field(default=False, alias="json", description="the answer must be JSON")
    on_invalid: Literal["retry", "repair", "fail"] = Field(
        default="retry", description="what to do when the answer is not valid"
    )
    max_repairs: Count = Field(default=2, ge=1, le=10)


class WaitConfig(_Config):
    """`wait`: for some time, until an instant, or for a signal."""

    duration: Seconds | None = None
    until: Instant | None = None
    signal: str | None = Field(
        default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=100, examples=["approved"]
    )

    @model_validator(mode="after")
    def _one_way(self) -> "WaitConfig":
        if sum(way is not None for way in (self.duration, self.until, self.signal)) != 1:
            raise ValueError("give exactly one of duration, until and signal")
        return self


class WorkflowConfig(_Config):
    """`workflow`: another workflow, run as a child task."""

    name: str = Field(pattern=r"^[a-z_][a-z0-9_-]*$", max_length=100)
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
