"""The types that keys of the language share."""

import math
from typing import Annotated, Any

from agent.core.quick_classes.quick_fields import BeforeValidator, WithJsonSchema
from agent.workflows.durations import PATTERN, parse_duration


def _positive(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("the duration must be longer than zero")
    return seconds


def _timeout(value: Any) -> float:
    return math.inf if value == "none" else _positive(value)


_for_editors = WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["30s", "1h30m"]})

Duration = Annotated[float, BeforeValidator(parse_duration), _for_editors]
PositiveDuration = Annotated[float, BeforeValidator(_positive), _for_editors]

AttemptTimeout = Annotated[
    float,
    BeforeValidator(_timeout),
    WithJsonSchema({"type": "string", "pattern": f"^none$|{PATTERN}", "examples": ["30s", "none"]}),
]
"""A duration; `none`, which is infinite here, for an attempt that may take any time."""

one_or_more = BeforeValidator(
    lambda value: value if isinstance(value, list) else [value], json_schema_input_type=Any
)
"""Lets one thing stand where a list of them may."""
