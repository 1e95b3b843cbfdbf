"""JSON Schemas that steps' outputs must meet: checked when a workflow is read, applied by the runner.

Nothing is ever fetched: a `$ref` points into the schema itself.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from agent.keys import canonical_json
from agent.workflows.problems import did_you_mean

MAX_PROBLEMS = 20
_MAX_MESSAGE_CHARS = 300
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def find_schema_problem(schema: dict[str, Any]) -> tuple[tuple[str | int, ...], str] | None:
    """Say where and why this is not a JSON Schema, or None."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator

    for path, reference in _references(schema, ()):
        if not isinstance(reference, str) or not reference.startswith("#"):
            return path, "a $ref must point into this schema, as in '#/$defs/line'"
        if not _leads_somewhere(reference, schema):
            return path, f"there is no {reference!r} in this schema"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = tuple(error.absolute_path)
        return place, f"not a JSON Schema: {_reason(error.message, place, error.instance)}"
    except Exception as error:
        return (), f"not a JSON Schema: {_cut(str(error))}"
    return None


def _reason(message: str, place: tuple[str | int, ...], value: Any) -> str:
    """Say what is wrong with a schema; the library says little of the commonest mistake."""
    if place[-1:] != ("type",) or not isinstance(value, str):
        return _cut(message)
    known = f"{value!r} is not one of {', '.join(_TYPES)}"
    hint = did_you_mean(value, _TYPES)
    return f"{known}; {hint}" if hint else known


class UnusableSchemaError(ValueError):
    """A schema passed its check and still cannot be applied."""


def find_output_problems(output: Any, schema: dict[str, Any]) -> list[str]:
    """Say in what an output does not meet its schema, each as `path: reason`; at most twenty."""
    problems: list[str] = []
    try:
        for problem in _validator(canonical_json(schema)).iter_errors(output):
            if len(problems) == MAX_PROBLEMS:
                problems.append("and more")
                break
            path = "".join(
                f"[{part}]" if isinstance(part, int) else f".{part}"
                for part in problem.absolute_path
            )
            problems.append(f"output{path}: {_cut(problem.message)}")
    # A schema can be valid and still lead nowhere, or in a circle.
    except Exception as error:
        raise UnusableSchemaError(f"{type(error).__name__}: {_cut(str(error))}") from error
    return problems


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    from jsonschema.validators import Draft202012Validator
    from referencing import Registry

    # An empty registry: without one the library would fetch what a $ref names.
    registry: Registry[Any] = Registry()
    return Draft202012Validator(json.loads(schema_text), registry=registry)


def _references(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("$ref", "$dynamicRef"):
                yield (*path, key), each
            yield from _references(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _references(each, (*path, number))


def _leads_somewhere(reference: str, schema: Any) -> bool:
    """Whether a pointer such as `#/$defs/line` finds something; names of anchors are taken as given."""
    if not reference.startswith("#/"):
        return True
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and key in schema:
            schema = schema[key]
        elif (
            isinstance(schema, list) and key.isascii() and key.isdigit() and int(key) < len(schema)
        ):
            schema = schema[int(key)]
        else:
            return False
    return True


def _cut(message: str) -> str:
    short = len(message) <= _MAX_MESSAGE_CHARS
    return message if short else message[: _MAX_MESSAGE_CHARS - 3] + "..."
