"""Copies the result of a template into plain JSON values."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from jinja2 import Undefined
from jinja2.runtime import LoopContext

from agent.workflows.templates.limits import MAX_DEPTH, MAX_INTEGER_BITS, Meter, TemplateError


def plain(value: Any, meter: Meter, depth: int = 0) -> Any:
    """Copy a value into plain JSON, so that a later change of the copy leaves the original alone.

    The walk is metered: a list that contains itself is small in memory and endless as JSON.
    """
    if value is None or isinstance(value, bool | str | int | float):
        return _plain_scalar(value)
    if depth >= MAX_DEPTH:
        raise TemplateError(f"the template yields a value nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        meter.charge(1 + len(value))
        return {_key(key): plain(member, meter, depth + 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        meter.charge(1 + len(value))
        return [plain(member, meter, depth + 1) for member in value]
    is_listed = isinstance(value, range | Iterator) or type(value).__name__ in _VIEWS
    if is_listed and not isinstance(value, LoopContext):
        return [plain(member, meter, depth + 1) for member in _charged(value, meter)]
    if isinstance(value, Undefined):
        return refuse(value)
    raise TemplateError("the template yields something that is not a plain value")


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > MAX_INTEGER_BITS:
            raise TemplateError("the template yields too large a number")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TemplateError(f"the template yields {value}, which is no JSON number")
        return float(value)
    return value


_VIEWS = frozenset({"dict_keys", "dict_values", "dict_items"})


def _charged(values: Any, meter: Meter) -> Iterator[Any]:
    for value in values:
        meter.charge()
        yield value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TemplateError(
            f"the template yields a mapping with the key {key!r}, which is not a text"
        )
    return key


def refuse(value: Undefined) -> NoReturn:
    """Raise the error of an undefined value; not every operation on it does."""
    value._fail_with_undefined_error()
