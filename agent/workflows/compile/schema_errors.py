"""The validator's errors in words: what is wrong with a value, and what may stand there instead.

The library says of a choice (`anyOf`, `oneOf`) only that no branch fits. Where one branch alone is of the
value's type, such as that beside `null`, the errors of that branch say more.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from agent.workflows.schema_cost import find_target

_MAX_MESSAGE_CHARS: Final = 300
_MOST_OPTIONS: Final = 20
_MAX_DEPTH: Final = 8
"""Of choices inside choices: schemas may lead back to themselves."""


def texts_of(error: Any, schema: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield an error of a schema as `path: reason`; one of a choice may be several."""
    if depth == _MAX_DEPTH or not hasattr(error.kind, "context"):
        yield _located(error, _reason(error))
        return
    fitting: list[Any] = []
    refused: list[Any] = []
    for branch in error.kind.context:
        is_of_type = len(branch) != 1 or not _is_type_of(branch[0], error)
        (fitting if is_of_type else refused).append(branch)
    if len(fitting) == 1:
        for inner in fitting[0]:
            yield from texts_of(inner, schema, depth + 1)
    elif not fitting and refused:
        yield _located(error, _type_reason([branch[0] for branch in refused], schema))
    else:
        yield _located(error, error.message)


def cut(message: str) -> str:
    """Return a message of bounded length."""
    short = len(message) <= _MAX_MESSAGE_CHARS
    return message if short else message[: _MAX_MESSAGE_CHARS - 3] + "..."


def _is_type_of(inner: Any, error: Any) -> bool:
    """Whether a branch refuses the type of the value itself."""
    return inner.kind.name == "type" and len(inner.instance_path) == len(error.instance_path)


def _located(error: Any, reason: str) -> str:
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
    return f"output{path}: {cut(reason)}"


def _reason(error: Any) -> str:
    if error.kind.name != "enum" or len(error.kind.options) > _MOST_OPTIONS:
        return str(error.message)
    return f"{_shown(error.instance)} is not one of {_listed(error.kind.options)}"


def _type_reason(errors: list[Any], schema: dict[str, Any]) -> str:
    """Return the types that branches ask for, with the choices of a list."""
    types = dict.fromkeys(name for error in errors for name in error.kind.types)
    text = f"{_shown(errors[0].instance)} is not of type {_listed(list(types))}"
    for error in errors:
        options = _options_of_items(error, schema)
        if options:
            text += f"; the members of the array are {_listed(options)}"
    return text


def _options_of_items(error: Any, schema: dict[str, Any]) -> list[Any]:
    """Return what the members of an array may be, where a branch asks for an array of choices."""
    branch: Any = schema
    for part in error.schema_path[:-1]:
        try:
            branch = branch[part]
        except (LookupError, TypeError):
            # Behind a reference the path may be relative.
            return []
    items = branch.get("items") if isinstance(branch, dict) else None
    if isinstance(items, dict) and isinstance(items.get("$ref"), str):
        items = find_target(items["$ref"], schema)
    options = items.get("enum") if isinstance(items, dict) else None
    return options if isinstance(options, list) and len(options) <= _MOST_OPTIONS else []


def _listed(options: list[Any]) -> str:
    if not options:
        return "nothing"
    *first, last = map(_shown, options)
    return f"{', '.join(first)} or {last}" if first else last


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."
