"""The filters of templates: harmless ones of Jinja, metered, and bounded replacements."""

import functools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from jinja2 import Environment, Undefined, pass_context
from jinja2.filters import FILTERS
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.tests import TESTS

from agent.workflows.templates.limits import (
    MAX_INTEGER_BITS,
    MAX_RANGE,
    Meter,
    TemplateError,
    weight,
)
from agent.workflows.templates.to_json import plain, refuse

_local = threading.local()

_HARMLESS: Final = [
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "filesizeformat",
    "first",
    "items",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "string",
    "title",
    "trim",
    "truncate",
    "upper",
    "urlencode",
    "wordcount",
]


_COMPARES: Final = ["dictsort", "groupby", "max", "min", "sort", "unique"]


def meter() -> Meter:
    """Return the meter of the rendering that runs in this thread."""
    current: Meter = _local.meter
    return current


class metered:  # noqa: N801  a context manager, read as a verb
    """Charge everything that templates do in this block to one meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._outer = getattr(_local, "meter", None)
        _local.meter = self._meter

    def __exit__(self, *_: object) -> None:
        _local.meter = self._outer


def _comparing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a filter or a test for the comparisons that it may make."""

    @functools.wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_listed, args))
        sizes = [len(a) for a in args if isinstance(a, list)]
        meter().charge(1 + sum(map(weight, args)) * max(sizes, default=1).bit_length())
        return function(*args, **kwargs)

    return charged


def _listed(value: Any) -> Any:
    """Turn an iterator into a list, whose weight is known."""
    return list(_counted(None, value)) if isinstance(value, Iterator) else value


def _metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a filter for its input and for the text that it makes."""

    @functools.wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_data, args))
        kwargs = {name: _data(value) for name, value in kwargs.items()}
        size = max((len(a) for a in args if isinstance(a, str | list | dict)), default=0)
        meter().charge(1 + size // 16)
        result = function(*args, **kwargs)
        if isinstance(result, str):
            meter().charge_text(len(result))
        return result

    return charged


def _data(value: Any) -> Any:
    """Give filters data alone: the text of anything else would contain its memory address."""
    if isinstance(value, _DATA):
        return value
    # Mappings of the scope are lazy; a filter gets them whole.
    return plain(value, meter())


_DATA: Final = (
    *(str, int, float, type(None), list, tuple, dict),
    # Arguments that Jinja passes to filters that need them, and the value of a missing name.
    *(Undefined, Context, Environment, EvalContext),
)


@pass_context
def _counted(_: Context | None, values: Any) -> Iterator[Any]:
    """Charge each turn of a loop; the compiler puts this around everything looped over."""
    for value in values:
        meter().charge()
        yield value


@pass_context
def _sized(_: Context, value: Any) -> Any:
    """Charge a list or mapping in a template for all its members, repeated ones included.

    The compiler puts this around each: forty levels that each contain the next one twice take no
    memory, and a walk over them would never end.
    """
    return plain(value, meter())


@pass_context
def _weighed(_: Context, value: Any) -> Any:
    """Charge the values of a comparison; the compiler puts this around both sides."""
    value = _listed(value)
    meter().charge(1 + weight(value))
    return value


@pass_context
def _concat(_: Context, values: list[Any]) -> str:
    """Join the parts of `a ~ b`; the compiler puts this in the operator's place."""
    return _joined([_text(value) for value in values], "")


@pass_context
def _join(context: Context, values: Any, d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        values = context.environment.filters["map"](context, values, attribute=attribute)
    return _joined([_text(value) for value in _counted(context, values)], _text(d))


def _joined(parts: list[str], separator: str) -> str:
    meter().charge_text(sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))
    return separator.join(parts)


def _replace(text: Any, old: Any, new: Any, count: int = -1) -> str:
    text, old, new = _text(text), _text(old), _text(new)
    occurrences = text.count(old)
    meter().charge_text(len(text) + occurrences * len(new))
    return str(text.replace(old, new, count))


def _int(value: Any, default: Any = ..., base: int = 10) -> Any:
    if isinstance(value, str) and len(value) > MAX_INTEGER_BITS:
        raise TemplateError("int was given a text that is too long for a number")
    return _number(FILTERS["int"](value, default, base), value, 0)


def _float(value: Any, default: Any = ...) -> Any:
    return _number(FILTERS["float"](value, default), value, 0.0)


def _number(number: Any, value: Any, otherwise: float) -> Any:
    if meter().is_strict and (number is ... or number != number):
        raise TemplateError(f"{_shown(value)} is not a number")
    return otherwise if number is ... else number


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if not -20 <= precision <= 20:
        raise TemplateError("round takes a precision from -20 to 20")
    return FILTERS["round"](value, precision, method)


@pass_context
def _sum(context: Context, values: Any, attribute: str | None = None, start: float = 0) -> Any:
    if attribute is not None:
        values = context.environment.filters["map"](context, values, attribute=attribute)
    total = start
    for value in _counted(context, values):
        if isinstance(value, Undefined) or not isinstance(value, int | float):
            raise TemplateError(f"sum adds numbers, and {_shown(value)} is none")
        total += value
    return total


def _to_json(value: Any, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= 8:
        raise TemplateError("tojson takes an indent from 0 to 8")
    text = json.dumps(plain(value, meter()), ensure_ascii=False, indent=indent)
    meter().charge_text(len(text))
    return text


def _from_json(text: Any) -> Any:
    if not isinstance(text, str):
        raise TemplateError(f"fromjson reads text, and {_shown(text)} is none")
    meter().charge_text(len(text))
    try:
        return plain(json.loads(text), meter())
    except (ValueError, RecursionError) as error:
        if isinstance(error, TemplateError):
            raise
        raise TemplateError(f"fromjson was given text that is not JSON: {error}") from None


def bounded_range(*arguments: int) -> Iterable[int]:
    """Return Python's range, with a bound."""
    numbers = range(*arguments)
    if len(numbers) > MAX_RANGE:
        raise TemplateError(f"range is limited to {MAX_RANGE:,} numbers")
    return numbers


@pass_context
def as_text(_: Context, value: Any) -> str:
    """Write a value within text: as JSON if it is not text, so that true is not True."""
    text = _text(value)
    meter().charge_text(len(text))
    return text


def _text(value: Any) -> str:
    if isinstance(value, Undefined):
        return refuse(value)
    if isinstance(value, str):
        return str(value)
    return json.dumps(plain(value, meter()), ensure_ascii=False)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    names = {dict: "a mapping", list: "a list", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "what it was given")


def allowed_filters() -> dict[str, Callable[..., Any]]:
    """Return all filters by name, those that only the compiler uses included."""
    return {
        **{name: _metered(FILTERS[name]) for name in _HARMLESS},
        **{name: _comparing(FILTERS[name]) for name in _COMPARES},
        "counted": _counted,
        "concat": _concat,
        "float": _metered(_float),
        "fromjson": _from_json,
        "int": _int,
        "join": _join,
        "replace": _replace,
        "round": _round,
        "sized": _sized,
        "sum": _sum,
        "tojson": _to_json,
        "weighed": _weighed,
    }


def metered_tests() -> dict[str, Any]:
    """Return Jinja's tests by name, charged for the values they compare."""
    tests: dict[str, Any] = dict(TESTS)
    return {name: _comparing(test) for name, test in tests.items()}


COMPILERS_OWN: Final = frozenset({"counted", "concat", "sized", "weighed"})
"""Filters that the compiler puts in, and that no template may name."""
