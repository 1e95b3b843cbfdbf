"""Checks of a step's output: plain JSON, within its size limit, and as the step's schema says."""

from typing import Any, Final

from agent.steps.types.outcome import Json, StepError
from agent.steps.types.value_sizes import size_up_to
from agent.store.artifacts.artifact_rows import looks_like_reference
from agent.store.db.json_values import NotPlainJsonError, encode

_MAX_KEYS: Final = 100


def find_problem(output: Json, schema: dict[str, Any] | None, limit_bytes: int) -> StepError | None:
    """Return the error of an output that is not valid, or None."""
    return check_output(output, schema, limit_bytes)[0]


def check_output(
    output: Json, schema: dict[str, Any] | None, limit_bytes: int
) -> tuple[StepError | None, str]:
    """Return the error of an output that is not valid, or None; and its JSON text."""
    text = "null"
    if output is not None:
        try:
            text = encode(output, "output")
        except NotPlainJsonError as error:
            return StepError("bad_output", "code", str(error)), ""
        if len(text) * 4 > limit_bytes and len(text.encode()) > limit_bytes:
            return _too_large(output, len(text.encode()), limit_bytes), ""
    if schema is not None:
        return _schema_error(output, schema, len(text)), text
    return None, text


def large_text(text: str, inline_bytes: int) -> str | None:
    """Return a text that is stored apart from its row because of its size; None for all others."""
    if looks_like_reference(text):
        return text
    return text if len(text) * 4 > inline_bytes and len(text.encode()) > inline_bytes else None


def _too_large(output: Json, size: int, limit_bytes: int) -> StepError:
    where = "the output"
    if isinstance(output, dict) and output:
        largest = max(output, key=lambda key: len(encode(output[key], "output")))
        where = f"the output, most of it under output.{largest},"
    return StepError(
        "output_too_large", "limit", f"{where} is {size} bytes, and {limit_bytes} are allowed"
    )


def oversize_error(output: Json, limit_bytes: int) -> StepError:
    """Return the error of an output that is over its limit by its size alone, without its text."""
    where = "the output"
    if type(output) is dict and output:
        candidates = list(output)[:_MAX_KEYS]
        largest = max(candidates, key=lambda key: size_up_to(output[key], limit_bytes))
        where = f"the output, most of it under output.{largest},"
    text = f"{where} is more than {limit_bytes} bytes, and {limit_bytes} are allowed"
    return StepError("output_too_large", "limit", text)


def _schema_error(output: Json, schema: dict[str, Any], characters: int) -> StepError | None:
    # Loaded here: most steps have no schema, and the library behind it is slow to import.
    from agent.workflows.compile.output_schema import UnusableSchemaError, find_output_problems

    try:
        problems = find_output_problems(output, schema, characters)
    except UnusableSchemaError as error:
        return StepError("bad_schema", "input", f"the step's schema cannot be used: {error}")
    if not problems:
        return None
    text = "the output is not what the step's schema asks for: " + "; ".join(problems)
    return StepError("output_schema", "code", text)
