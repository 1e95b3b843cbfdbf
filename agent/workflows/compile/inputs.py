"""The inputs of a workflow: typed, with defaults, checked before a task starts."""

import json
import math
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from agent.workflows.diagnostics import did_you_mean

if TYPE_CHECKING:
    from agent.workflows.compile.input_keys import InputKeys
    from agent.workflows.graph import Graph

Json = Any
InputType = Literal["string", "number", "integer", "boolean", "list", "object"]

_WORDS: Final = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
    "object": "a mapping",
}


_KEYS: Final = frozenset({"type", "description", "default", "required", "choices"})
_MOST_SHOWN: Final = 20
"""Unknown names and choices in one message: finding similar names takes time."""


class DeclaredInput:
    """One input of a compiled graph."""

    __slots__ = ("choices", "default", "description", "has_default", "required", "type")

    def __init__(self, document: Mapping[str, Json]) -> None:
        self.type: InputType | None = document.get("type")
        self.description: str | None = document.get("description")
        self.default: Json = document.get("default")
        self.has_default = "default" in document
        self.required: bool | None = document.get("required")
        self.choices: list[Json] | None = document.get("choices")

    @property
    def is_required(self) -> bool:
        """Whether a task cannot start without it."""
        return not self.has_default if self.required is None else self.required


def declared_input(document: Json) -> "DeclaredInput | InputKeys":
    """Return an input as a graph declares it.

    The compiler writes it in one way. A graph that was written by hand may have it in any other.
    """
    if (
        isinstance(document, dict)
        and document.keys() <= _KEYS
        and (document.get("type") is None or document["type"] in _WORDS)
    ):
        return DeclaredInput(document)
    from agent.workflows.compile.input_keys import InputKeys

    return InputKeys.model_validate(document)


class InputError(ValueError):
    """Inputs are wrong or missing; `problems` has one sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def check_inputs(
    graph: "Graph", given: Mapping[str, Json], open_names: Collection[str] = ()
) -> dict[str, Json]:
    """Return the task's inputs with defaults filled in; raise `InputError` with every problem.

    The values of `open_names` are not known yet and not checked.
    """
    declared = {name: declared_input(keys) for name, keys in graph.inputs.items()}
    unknown = [name for name in given if name not in declared]
    problems = [_unknown(name, declared) for name in unknown[:_MOST_SHOWN]]
    if len(unknown) > _MOST_SHOWN:
        problems.append(
            f"there are {len(unknown) - _MOST_SHOWN:,} more inputs that it does not take"
        )
    values: dict[str, Json] = {}
    for name, keys in declared.items():
        if name in given:
            value = given[name]
            may_be_null = not keys.is_required and keys.default is None
            is_fine = name in open_names or (value is None and may_be_null)
            problem = None if is_fine else find_problem(value, keys)
            if problem is not None:
                problems.append(f"input {name!r} {problem}")
            values[name] = value
        elif keys.is_required:
            problems.append(f"input {name!r} is missing{_wanted(keys)}")
        else:
            values[name] = keys.default
    if problems:
        raise InputError(problems)
    return values


def inputs_schema(graph: "Graph") -> dict[str, Json]:
    """Return a JSON Schema of a workflow's inputs."""
    properties: dict[str, Json] = {}
    required: list[str] = []
    for name, document in graph.inputs.items():
        keys = declared_input(document)
        # JSON Schema calls a list an array; null is an optional input without a value.
        kind: Json = {"list": "array"}.get(keys.type or "", keys.type)
        if kind is not None and not keys.is_required and keys.default is None:
            kind = [kind, "null"]
        described = {
            "type": kind,
            "description": keys.description,
            "enum": keys.choices,
            "default": keys.default,
        }
        properties[name] = {key: value for key, value in described.items() if value is not None}
        if keys.is_required:
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def read_inputs(graph: "Graph", texts: Mapping[str, str]) -> dict[str, Json]:
    """Turn typed `key=value` texts into values of the declared types.

    Unreadable values stay text; `check_inputs` refuses them with everything else.
    """
    return {
        name: _read(text, declared_input(graph.inputs.get(name, {})).type)
        for name, text in texts.items()
    }


def find_problem(value: Json, keys: "DeclaredInput | InputKeys") -> str | None:
    """Return the problem of a value, to follow its name; None if it is valid."""
    problem = type_problem(value, keys.type)
    if problem is None and keys.choices is not None and not _is_among(value, keys.choices):
        allowed = ", ".join(shown(choice) for choice in keys.choices[:_MOST_SHOWN])
        if len(keys.choices) > _MOST_SHOWN:
            allowed += f" and {len(keys.choices) - _MOST_SHOWN:,} more"
        return f"must be one of {allowed}, and is {shown(value)}"
    return problem


def type_problem(value: Json, kind: str | None) -> str | None:
    """Return why a value is not of a type, to follow its name; None if it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        None: True,
        "string": isinstance(value, str),
        "number": is_number,
        "integer": is_number and value == int(value),
        "boolean": isinstance(value, bool),
        "list": isinstance(value, list),
        "object": isinstance(value, dict),
    }[kind]
    if not fits and kind in ("number", "integer") and _has_too_many_digits(value):
        return f"must be shorter: a number of {len(str(value))} digits is too long"
    return None if fits else f"must be {_WORDS[str(kind)]}, and is {shown(value)}"


def _has_too_many_digits(value: Json) -> bool:
    """Whether a text is a number with more digits than Python reads."""
    return isinstance(value, str) and value.isdigit() and len(value) > sys.get_int_max_str_digits()


def _is_among(value: Json, choices: list[Json]) -> bool:
    # True equals 1 in Python, and is another value in JSON.
    return any(
        value == choice and isinstance(value, bool) == isinstance(choice, bool)
        for choice in choices
    )


def _read(text: str, kind: str | None) -> Json:
    if kind == "string":
        return text
    if kind == "boolean":
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return words.get(text.strip().lower(), text)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(word: str) -> Json:
    raise ValueError(word)


def _unknown(name: str, declared: Mapping[str, object]) -> str:
    hint = did_you_mean(name, declared)
    if hint is None and declared:
        hint = f"there are {', '.join(declared)}"
    return f"there is no input {name!r}; {hint or 'the workflow takes none'}"


def _wanted(keys: "DeclaredInput | InputKeys") -> str:
    words = f"; it is {_WORDS[keys.type]}" if keys.type is not None else ""
    return f"{words}: {keys.description}" if keys.description else words


def shown(value: Json) -> str:
    """Return a value as a message shows it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "no JSON value"
    return text if len(text) <= 60 else text[:57] + "..."
