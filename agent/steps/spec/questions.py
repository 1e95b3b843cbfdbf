"""The keys of questions to people, the channels of their answers, and the checks of answers."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from agent.core.escape import harmless
from agent.core.ids import canonical_json
from agent.core.key_values import parse_value
from agent.core.plain_json import Json
from agent.core.quick_classes.quick_fields import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.steps.spec.configs import JsonSchema, Seconds, Text

CHANNELS: Final = ("terminal", "api", "page", "mcp", "webhook", "telegram", "slack")
"""Where answers come from. The terminal needs no check: its user can write the database as well."""

CHATS: Final = frozenset({"telegram", "slack"})
"""Channels in which a person must be paired before answering."""

VERDICTS: Final = ("done", "retry", "fail")
"""The answers to the question about an unknown effect."""

MAX_MESSAGE: Final = 10_000
MAX_ANSWER_BYTES: Final = 1_048_576


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_who(who: str) -> str:
    channel, separator, identity = who.partition(":")
    if channel not in CHANNELS or (separator and not identity):
        raise ValueError(
            f"{who!r} is not valid: write a channel ({', '.join(CHANNELS)}),"
            " or a channel and an identity in it, as in telegram:12345"
        )
    return who


def _check_positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be greater than zero")
    return value


Who = Annotated[str, AfterValidator(_check_who)]
PositiveSeconds = Annotated[Seconds, AfterValidator(_check_positive)]
KeyPath = Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]*(\.[\w-]+)*$", max_length=200)]


class _Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    message: Text = Field(min_length=1, max_length=MAX_MESSAGE, description="the question")
    expires: PositiveSeconds | None = Field(
        default=None, description="how long the question stays open"
    )
    on_expiry: Literal["fail", "renew"] = Field(
        default="fail", description="renew: ask again after `expires`"
    )
    remind: PositiveSeconds | None = Field(default=None, description="the time between reminders")
    who: Annotated[list[Who], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="who may answer; default: everyone who can"
    )

    @model_validator(mode="after")
    def _can_renew(self) -> "_Question":
        if self.on_expiry == "renew" and self.expires is None:
            raise ValueError("on_expiry: renew needs expires")
        return self


class ApprovalConfig(_Question):
    """`approval`: a person says yes or no, before a step acts or as a step of its own."""

    editable: Annotated[list[KeyPath], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="keys of the gated kind that the answer may change"
    )
    when: Text | None = Field(
        default=None,
        min_length=1,
        description="an expression; where it is false, the step acts without asking. `request` is what would be done",
    )


class InputConfig(_Question):
    """`input`: a person gives a text, one of some choices, or a value that a JSON Schema allows."""

    choices: list[Any] | None = Field(default=None, min_length=1)
    schema_: JsonSchema | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _one_way(self) -> "InputConfig":
        if self.choices is not None and self.schema_ is not None:
            raise ValueError("give choices or schema, not both")
        return self


def answer_problem(
    value: Json, choices: list[Json] | None, schema: dict[str, Json] | None
) -> str | None:
    """Return why a value is not a valid answer to a question, or None."""
    if choices is not None:
        # As JSON: to Python true is 1.
        if canonical_json(value) in {canonical_json(choice) for choice in choices}:
            return None
        return "give one of " + ", ".join(_label(choice) for choice in choices)
    from agent.steps.spec.output_checks import find_problem

    problem = find_problem(value, schema, MAX_ANSWER_BYTES)
    if problem is not None:
        return problem.message.replace("the output", "the answer").replace("output", "value")
    if schema is None and (not isinstance(value, str) or not value):
        return "give a text"
    return None


def read_answer(text: str, choices: list[Json] | None, schema: dict[str, Json] | None) -> Json:
    """Parse a typed answer; `answer_problem` checks it."""
    if choices is not None:
        exact = [choice for choice in choices if _label(choice) == text]
        escaped = [choice for choice in choices if _is_escaped(choice, text)]
        return (exact or escaped)[0] if exact or len(escaped) == 1 else text
    if schema is None:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # For a schema of type string, 42 is a text.
    is_text = (
        answer_problem(value, None, schema) is not None
        and answer_problem(text, None, schema) is None
    )
    return text if is_text else value


def read_edits(config: Json, texts: Mapping[str, str]) -> dict[str, Json]:
    """Parse typed changes by the types of the shown values; raise `ValueError` that names a wrong one.

    A text stays a text. Anything else must be JSON of the type that the key has; what was null may
    become anything.
    """
    edits: dict[str, Json] = {}
    for path, text in texts.items():
        before, new = value_at(config, path), parse_value(text)
        if isinstance(before, str):
            new = text
        elif before is not None and _json_type(before) != _json_type(new):
            shown = json.dumps(before, ensure_ascii=False)
            wanted = _json_type(before)
            raise ValueError(f"{path}: give {wanted}, as what is shown ({shown}), and not {text!r}")
        edits[path] = new
    return edits


def value_at(config: Json, path: str) -> Json:
    """Return the value at a path such as `a.b`; None if there is none."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _json_type(value: Json) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
        case None:
            return "null"
        case _:
            return "a text"


def _label(choice: Json) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False)


def _is_escaped(choice: Json, text: str) -> bool:
    """Whether a text is a choice as a terminal shows it, or as a JSON string.

    Both escape invisible characters, which cannot be typed.
    """
    if harmless(_label(choice)) == text:
        return True
    try:
        return isinstance(choice, str) and json.loads(text) == choice
    except (ValueError, RecursionError):
        return False
