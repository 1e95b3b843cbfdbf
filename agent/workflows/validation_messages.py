"""Turns pydantic's errors into messages for authors of workflow files."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agent.core import secret_reference
from agent.core.quick_classes.quick_models import ModelType
from agent.workflows.diagnostics import Problem, did_you_mean
from agent.workflows.durations import format_duration
from agent.workflows.templates.templates import has_templates
from agent.workflows.yaml.source import Path, Source

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from agent.workflows.kind_registry import AnyModel

_M = TypeVar("_M", bound="AnyModel")

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "empty",
}

_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}

_ABOUT_KEYS = ("missing", "extra_forbidden")
"""Errors about a key, whatever its value will be. In a union they are not certain: another branch may fit."""

_MOST_SUGGESTIONS = 100
"""Suggestions in one check: finding similar words takes time, and people read the first few."""


def find_problems(
    model: "type[_M]",
    value: Any,
    source: Source,
    path: Path,
    *,
    may_have_templates: bool = False,
) -> "tuple[_M | None, list[Problem]]":
    """Check a value against a model: the model's instance, or every problem with its path.

    With `may_have_templates` values that are only known once rendered are not checked.
    """
    checked_by: Any = model
    try:
        return checked_by.model_validate(value), []
    except ValueError as error:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            raise
        return None, [
            source.problem(path + fault.path, fault.message, fault.hint, at_value=fault.is_of_value)
            for fault in faults(checked_by, value, error, may_have_templates=may_have_templates)
        ]


class ModelFault(NamedTuple):
    """The problem of a value, with its path."""

    path: Path
    message: str
    hint: str | None
    is_of_value: bool
    """Whether the value at that path is wrong, and not its key."""


def faults(
    model: "type[AnyModel]",
    value: Any,
    error: "ValidationError",
    *,
    may_have_templates: bool = False,
) -> Iterator[ModelFault]:
    """Yield the faults of a model, one per path."""
    seen: set[Path] = set()
    for detail in error.errors(include_url=False):
        is_key = detail["loc"][-1:] == ("[key]",)
        location = detail["loc"][:-1] if is_key else detail["loc"]
        path, reached = _located(value, location, is_missing=detail["type"] == "missing")
        is_certain = detail["type"] in _ABOUT_KEYS and len(path) == len(location)
        if may_have_templates and path and has_templates(reached) and not is_certain:
            continue
        # A union reports once per branch: the first is enough for one path.
        if path in seen and detail["type"] not in _ABOUT_KEYS:
            continue
        seen.add(path)
        message, hint = _message(detail, model, reached, may_suggest=len(seen) <= _MOST_SUGGESTIONS)
        is_of_value = not is_key and detail["type"] not in _ABOUT_KEYS
        yield ModelFault(path, message, hint, is_of_value)


def _located(value: Any, location: tuple[int | str, ...], *, is_missing: bool) -> tuple[Path, Any]:
    """Follow an error's location as far as it is one in the value: unions add names to it."""
    path: Path = ()
    for number, part in enumerate(location):
        if isinstance(value, Mapping):
            if part in value:
                value = value[part]
            elif is_missing and number == len(location) - 1 and isinstance(part, str):
                return (*path, part), value
            else:
                continue
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path = (*path, part)
    return path, value


def _message(
    detail: "ErrorDetails", model: "type[AnyModel]", written: Any, *, may_suggest: bool
) -> tuple[str, str | None]:
    kind, value = detail["type"], detail["input"]
    limits = detail.get("ctx", {})
    if kind == "extra_forbidden":
        if not may_suggest:
            return f"there is no key {detail['loc'][-1]!r} here", None
        return _unknown_key(detail["loc"], model)
    if kind == "missing":
        return f"{detail['loc'][-1]!r} is missing", None
    if kind == "value_error":
        return str(limits["error"]), None
    if kind == "literal_error":
        return _literal_message(value, limits["expected"])
    if kind in _TYPES:
        path = next((part for part in reversed(detail["loc"]) if isinstance(part, str)), "")
        hint = _as_in(path, value) or _quoted(kind, value)
        return f"must be {_TYPES[kind]}, and is {shown(value)}", hint
    if kind == "string_pattern_mismatch":
        return _pattern_message(value, limits["pattern"], _field_at(model, detail["loc"]))
    if kind in _BOUNDS:
        return _bound_message(*_BOUNDS[kind], limits, written, value), None
    if kind in ("too_short", "string_too_short", "too_long", "string_too_long"):
        return _length_message(kind, limits), None
    return detail["msg"][:1].lower() + detail["msg"][1:], None


def _length_message(kind: str, limits: Mapping[str, Any]) -> str:
    if kind.endswith("too_short"):
        return "must not be empty"
    parts = " characters" if kind == "string_too_long" else ""
    return f"is too long: {_count(limits['max_length'])}{parts} are allowed"


def _literal_message(value: Any, expected: str) -> tuple[str, str | None]:
    words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    message = f"{shown(value)} is not one of {', '.join(words)}"
    if len(words) == 1:
        message = f"must be {words[0]}, and is {shown(value)}"
    return message, did_you_mean(value, words) if isinstance(value, str) else None


def _bound_message(
    bound: str, key: str, limits: Mapping[str, Any], written: Any, value: Any
) -> str:
    if isinstance(written, str) and not isinstance(value, str):
        # A value written as text that has bounds is a duration.
        return f"must be {bound} {format_duration(limits[key])}, and is {written}"
    return f"must be {bound} {_count(limits[key])}, and is {shown(value)}"


def _count(limit: float) -> str:
    return f"{limit:,.0f}" if limit == int(limit) else f"{limit:g}"


def _quoted(kind: str, value: Any) -> str | None:
    is_bare = value is not None and not isinstance(value, str | list | dict)
    return "put it in quotes" if kind == "string_type" and is_bare else None


def _as_in(key: str, value: Any) -> str | None:
    """Show how a key is written that was given something simpler than it takes."""
    if key == "retry" and isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return f"as in retry: {{max_attempts: {value}}}"
    if key == "argv" and isinstance(value, str):
        return f"as in argv: [{', '.join(_words(value))}], or script: for the shell's own words"
    if isinstance(value, list):
        return {
            "steps": "write each step under its name, as in steps: {fetch: {wait: 5s}}",
            "inputs": "write each input under its name, as in inputs: {city: string}",
        }.get(key)
    return None


def _words(command: str) -> list[str]:
    """Split a command as its words would stand in a list."""
    return [word if word.isalnum() else json.dumps(word) for word in command.split()[:8]]


def _pattern_message(value: str, pattern: str, field: "FieldInfo | None") -> tuple[str, str | None]:
    if pattern.startswith("^[a-z_]["):
        joint = "-" if "-]" in pattern else "_"
        message = f"use a-z, 0-9, _{' or -' if joint == '-' else ''}, and no digit in front"
        near = re.sub(r"[^a-z0-9_]+", joint, value.lower()).strip(joint)
        hint = f"did you mean {near!r}?" if re.fullmatch(pattern, near) else None
        return f"{shown(value)} is not a name: {message}", hint
    if pattern == secret_reference.PATTERN:
        # The value may be the secret itself: the message does not repeat it.
        return f"a secret is given by reference: {secret_reference.FORMS}", None
    if field is not None and field.examples:
        return f"{shown(value)} is not of the right form", f"write it like {field.examples[0]!r}"
    return f"{shown(value)} does not have the form {pattern}", None


def _unknown_key(
    location: tuple[int | str, ...], model: "type[AnyModel]"
) -> tuple[str, str | None]:
    known = known_keys(model, location[:-1])
    hint = did_you_mean(location[-1], known)
    if hint is None and known:
        hint = f"there are {', '.join(known)}"
    return f"there is no key {location[-1]!r} here", hint


def known_keys(model: "type[AnyModel]", location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that a model has at a place inside it."""
    if isinstance(model, ModelType) and not location:
        return list(model.keys)
    current, _ = _followed(model, location)
    return [] if current is None else [f.alias or n for n, f in current.model_fields.items()]


def _field_at(model: "type[AnyModel]", location: tuple[int | str, ...]) -> "FieldInfo | None":
    return _followed(model, location)[1]


def _followed(
    model: "type[AnyModel]", location: tuple[int | str, ...]
) -> "tuple[type[BaseModel] | None, FieldInfo | None]":
    """Return the model at a place inside another, and the last field on the way there."""
    current: type[BaseModel] | None = _of_pydantic(model)
    last: FieldInfo | None = None
    is_name = False
    for part in location:
        if current is None:
            break
        if is_name:
            # A key of a mapping, such as the name of a tool, may be spelled like a field of its model.
            is_name = False
            continue
        field = next(
            (f for name, f in current.model_fields.items() if part in (f.alias, name)), None
        )
        if field is not None:
            current, last = _model_in(field.annotation), field
            is_name = current is not None and _maps_names(field.annotation, current)
        # Otherwise a place in a list or a union's tag: the same model goes on.
    return current, last


def _of_pydantic(model: "type[AnyModel]") -> "type[BaseModel]":
    return model.pydantic if isinstance(model, ModelType) else model


def _maps_names(annotation: Any, model: "type[BaseModel]") -> bool:
    """Whether a model stands in an annotation as the value of a mapping, as in `dict[str, Model]`."""
    arguments: tuple[Any, ...] = getattr(annotation, "__args__", ())
    if getattr(annotation, "__origin__", None) in (dict, Mapping):
        return _model_in(arguments[1]) is model
    return any(_maps_names(each, model) for each in arguments)


def _model_in(annotation: Any) -> "type[BaseModel] | None":
    """Find the model in an annotation such as `list[Model] | None`."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        model = _model_in(argument)
        if model is not None:
            return model
    return None


def shown(value: Any) -> str:
    """Write a value for a message, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
