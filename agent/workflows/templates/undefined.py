"""Looks names up in a scope, and explains a missing one by the data that exists."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.workflows.templates.limits import TemplateError

if TYPE_CHECKING:
    from jinja2.exceptions import UndefinedError

Path = tuple[str | int, ...]

_SHOWN = 12


def look_up(path: Path, scope: Mapping[str, Any]) -> Any:
    """Follow a chain of names; raise `TemplateError` that says where it ends."""
    value: Any = scope
    for place, part in enumerate(path):
        child = _child(value, part)
        if child is _ABSENT:
            raise TemplateError(_explain(path, place, value, scope))
        value = child
    return value


def explain_missing(
    error: "UndefinedError", lookups: tuple[Path, ...], scope: Mapping[str, Any]
) -> str:
    """Return which lookup of a template failed, in place of Jinja's message."""
    reasons = []
    for path in lookups:
        try:
            look_up(path, scope)
        except TemplateError as exception:
            reasons.append((path, str(exception)))
    for path, reason in reasons:
        if any(f"{part!r}" in str(error) for part in path):
            return reason
    return str(error)


_ABSENT = object()


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part, _ABSENT)
    if isinstance(value, list | tuple | str) and isinstance(part, int):
        return value[part] if -len(value) <= part < len(value) else _ABSENT
    return _ABSENT


def _explain(path: Path, place: int, value: Any, scope: Mapping[str, Any]) -> str:
    wanted = path[place]
    if place == 0:
        return f"there is no {wanted!r} here; there are {_listed(scope)}"
    parent = written(path[:place])
    if path[0] == "steps" and place == 1:
        return f"there is no output of a step {wanted!r} here{_meant(wanted, value)}"
    if path[0] == "state" and place == 1:
        return (
            f"{written(path)} has no value yet: write state.{wanted} | default(...) to allow that"
        )
    if value is None:
        return f"{written(path)} is missing: {parent} is null{_status(path, scope)}"
    if isinstance(value, Mapping):
        return f"{written(path)} is missing: {parent} has no {wanted!r}{_has(wanted, value)}"
    if isinstance(value, list) and isinstance(wanted, int):
        return f"{written(path)} is missing: {parent} has {len(value)} items"
    return f"{written(path)} is missing: {parent} is {_kind(value)}, which has no {wanted!r}"


def _status(path: Path, scope: Mapping[str, Any]) -> str:
    """Return why a step's output is null, if its status explains it."""
    if len(path) < 3 or path[0] != "steps" or path[2] != "output":
        return ""
    step = scope.get("steps", {}).get(path[1])
    status = step.get("status") if isinstance(step, Mapping) else None
    return f" (the step {path[1]!r} was {status})" if status in ("skipped", "failed") else ""


def _meant(wanted: str | int, value: Any) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(wanted), [str(key) for key in value], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _has(wanted: str | int, value: Mapping[str, Any]) -> str:
    meant = _meant(wanted, value)
    if meant:
        return meant
    return f"; it has {_listed(value)}" if value else "; it is empty"


def _listed(value: Mapping[str, Any]) -> str:
    names = [str(key) for key in value]
    more = ", …" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "a single value"


def written(path: Path) -> str:
    """Write a chain of names as in a template."""
    text = str(path[0])
    for part in path[1:]:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text
