"""The output of a model's answer: its text or JSON, checked against the schema. Pure functions."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from agent.steps.spec.output_checks import find_problem
from agent.steps.types.outcome import Json, StepError
from agent.store.db.json_values import NotPlainJsonError, encode

_FENCED: Final = re.compile(r"```[\w+-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ValidOutput:
    """An answer that is valid, as a value."""

    value: Json


@dataclass(frozen=True, slots=True)
class InvalidOutput:
    """An answer that is not valid."""

    error: StepError


def wants_json(is_json: bool, schema: dict[str, Any] | None) -> bool:
    """Whether an answer is read as JSON; a schema of type string applies to the text itself."""
    return is_json or (schema is not None and schema.get("type") != "string")


def read_answer(
    text: str, *, is_json: bool, schema: dict[str, Any] | None, limit_bytes: int
) -> ValidOutput | InvalidOutput:
    """Read a model's answer as text or as JSON, and check it."""
    if not text.strip():
        return _invalid("empty_answer", "the model's answer is empty")
    if len(text) * 4 > limit_bytes and len(text.encode("utf-8", "replace")) > limit_bytes:
        return too_long(len(text.encode("utf-8", "replace")), limit_bytes)
    value: Json = text
    if is_json:
        try:
            value = _parse(text)
        except (ValueError, RecursionError) as exception:
            reason = (
                "it is nested too deeply" if isinstance(exception, RecursionError) else exception
            )
            return _invalid("invalid_json", f"the model's answer is not JSON: {reason}")
    error = find_problem(value, schema, limit_bytes)
    if error is None:
        return ValidOutput(value)
    code = "invalid_json" if error.code == "bad_output" else error.code
    return _invalid(code, error.message)


def too_long(size: int, limit_bytes: int) -> InvalidOutput:
    """Return the error of an answer that is longer than a step's output may be."""
    text = f"the model's answer is {size} bytes, and {limit_bytes} are allowed"
    return _invalid("answer_too_long", text)


def _parse(text: str) -> Json:
    """Parse JSON that is the whole answer, or in the only code fence of it."""
    stripped = text.strip().removeprefix("\ufeff")
    try:
        return _parse_strictly(stripped)
    except (ValueError, RecursionError) as error:
        fenced = _FENCED.findall(stripped)
        if len(fenced) != 1:
            raise
        first: Exception = error
    try:
        return _parse_strictly(fenced[0].strip())
    except (ValueError, RecursionError) as error:
        raise error from first


def _parse_strictly(text: str) -> Json:
    value = json.loads(text, parse_constant=_refuse)
    try:
        encode(value, "answer")
    except NotPlainJsonError as error:
        raise ValueError(str(error)) from None
    return value


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON value")


def _invalid(code: str, message: str) -> InvalidOutput:
    return InvalidOutput(StepError(code, "remote", message))
