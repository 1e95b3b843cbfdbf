"""Accepts values that a model plainly allows, without pydantic.

It accepts less than pydantic does, and what it accepts pydantic accepts with the same result: exact types, no
conversions beyond a whole number for a float, one fitting member of a union, patterns on printable ASCII. All else
is `NotPlainError`, and pydantic decides. A test compares the two.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union

from agent.core.quick_classes.quick_fields import (
    AfterValidator,
    BeforeValidator,
    FieldSpec,
    FieldValidator,
    ModelValidator,
)
from agent.core.quick_classes.quick_models import ModelType, built

Check = Callable[[Any], Any]

_WITHOUT_EFFECT: Final = frozenset(
    {
        "default",
        "default_factory",
        "alias",
        "description",
        "examples",
        "exclude",
        "validate_default",
    }
)
"""Declarations that say nothing about which values are right."""
_EXACT_INTEGERS: Final = 2**53
"""Whole numbers below it are the same as floats."""


class NotPlainError(Exception):
    """The value may be wrong, or right in a way that only pydantic knows."""


class _NoContext:
    context: Final = None


def accept(cls: ModelType, value: Any) -> Any:
    """Return the model of a value; raise `NotPlainError` for all but plain ones."""
    try:
        return _accept(cls, value)
    except NotPlainError:
        raise
    except Exception as error:
        # A validator's `ValueError`, mostly: pydantic calls it again and reports it.
        raise NotPlainError from error


def _accept(cls: ModelType, value: Any) -> Any:
    model_class: Any = cls
    if type(value) is model_class:
        return value
    validators = [
        each for each in cls.quick_validators.values() if isinstance(each, ModelValidator)
    ]
    for validator in validators:
        if validator.mode == "before":
            value = validator.function.__func__(cls, value)
    if type(value) is not dict:
        raise NotPlainError
    values: dict[str, Any] = {}
    given: set[str] = set()
    for name, (_, spec) in cls.quick_fields.items():
        key = spec.key(name)
        if key in value:
            values[name] = _field_check(cls, name)(value[key])
            given.add(name)
        else:
            values[name] = _default(cls, name, spec)
    if len(given) < len(value) and cls.quick_config.get("extra") != "ignore":
        raise NotPlainError
    model = built(cls, values, given)
    for validator in validators:
        if validator.mode == "after" and _called(validator.function, model) is not model:
            raise NotPlainError
    return model


def _default(cls: ModelType, name: str, spec: FieldSpec) -> Any:
    if spec.is_required:
        raise NotPlainError
    default = spec.default()
    return _field_check(cls, name)(default) if spec.arguments.get("validate_default") else default


def _field_check(cls: ModelType, name: str) -> Check:
    """Return the check of a field; it is made when the first value has that field."""
    check = cls.quick_checks.get(name)
    if check is None:
        annotation, spec = cls.quick_fields[name]
        check = _with_bounds(check_of(annotation), spec)
        for validator in cls.quick_validators.values():
            if isinstance(validator, FieldValidator) and name in validator.fields:
                check = _then(check, partial(validator.function.__func__, cls))
        cls.quick_checks[name] = check
    return check


def _then(check: Check, following: Check) -> Check:
    return lambda value: following(check(value))


def check_of(annotation: Any) -> Check:
    """Return the check of a type."""
    if annotation is Any:
        return _anything
    if isinstance(annotation, ModelType):
        return lambda value: _accept(annotation, value)
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin = getattr(annotation, "__origin__", None)
    if hasattr(annotation, "__metadata__"):
        check = check_of(origin)
        for declared in annotation.__metadata__:
            check = _with(check, declared)
        return check
    if isinstance(annotation, UnionType) or origin is Union:
        return _union(annotation.__args__)
    if origin is Literal:
        return _literal(annotation.__args__)
    if origin is list:
        return _list(check_of(annotation.__args__[0]))
    if origin is dict:
        return _dict(*map(check_of, annotation.__args__))
    return _nothing


def _with(check: Check, declared: Any) -> Check:
    """Return a check with one more declaration of `Annotated`, which is applied to all before it."""
    if isinstance(declared, BeforeValidator):
        return lambda value: check(_called(declared.function, value))
    if isinstance(declared, AfterValidator):
        return lambda value: _called(declared.function, check(value))
    if isinstance(declared, FieldSpec):
        return _with_bounds(check, declared)
    return check


def _called(function: Callable[..., Any], value: Any) -> Any:
    """Call a validator, with the context of the check if it has a parameter for it."""
    code: Any = getattr(function, "__code__", None)
    if code is not None and code.co_argcount > 1:
        return function(value, _NoContext)
    return function(value)


def _anything(value: Any) -> Any:
    return value


def _nothing(value: Any) -> Any:
    raise NotPlainError


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise NotPlainError
    if not value.isascii():
        # Half a surrogate pair is no text: this raises an error.
        value.encode()
    return value


def _number(value: Any) -> Any:
    if type(value) is int and abs(value) < _EXACT_INTEGERS:
        return float(value)
    return _exactly(float, value)


def _exactly(wanted: type, value: Any) -> Any:
    if type(value) is not wanted:
        raise NotPlainError
    return value


_SIMPLE: Final[dict[Any, Check]] = {
    str: _text,
    int: lambda value: _exactly(int, value),
    float: _number,
    bool: lambda value: _exactly(bool, value),
    None: lambda value: _exactly(NoneType, value),
    NoneType: lambda value: _exactly(NoneType, value),
}


def _literal(allowed: tuple[Any, ...]) -> Check:
    def check(value: Any) -> Any:
        for each in allowed:
            if type(value) is type(each) and value == each:
                return each
        raise NotPlainError

    return check


def _list(check: Check) -> Check:
    def check_items(value: Any) -> Any:
        return [check(item) for item in _exactly(list, value)]

    return check_items


def _dict(check_key: Check, check: Check) -> Check:
    def check_items(value: Any) -> Any:
        return {check_key(key): check(item) for key, item in _exactly(dict, value).items()}

    return check_items


def _union(members: tuple[Any, ...]) -> Check:
    checks = [check_of(member) for member in members if member is not NoneType]
    may_be_none = NoneType in members

    def check(value: Any) -> Any:
        if value is None and may_be_none:
            return None
        fitting = []
        for each in checks:
            try:
                fitting.append(each(value))
            except Exception:  # noqa: S112  (pydantic decides where no member fits)
                continue
        if len(fitting) != 1:
            # Of several fitting members pydantic knows the best.
            raise NotPlainError
        return fitting[0]

    return check


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _with_bounds(check: Check, spec: FieldSpec) -> Check:
    bounds = [
        (_BOUNDS.get(name, _unknown), limit)
        for name, limit in spec.arguments.items()
        if name not in _WITHOUT_EFFECT
    ]
    if not bounds:
        return check

    def bounded(value: Any) -> Any:
        result = check(value)
        if result is None:
            return result
        # Of text that a validator changes, pydantic may check either: both must be right.
        for each in (result, value) if type(value) is type(result) else (result,):
            for is_within, limit in bounds:
                if not is_within(each, limit):
                    raise NotPlainError
        return result

    return bounded


def _unknown(value: Any, limit: Any) -> bool:
    return False


def _matches(value: str, pattern: str) -> bool:
    # The two libraries agree on the meaning of patterns for these characters.
    return value.isascii() and value.isprintable() and bool(_pattern(pattern).search(value))


_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda value, limit: value >= limit,
    "gt": lambda value, limit: value > limit,
    "le": lambda value, limit: value <= limit,
    "lt": lambda value, limit: value < limit,
    "min_length": lambda value, limit: len(value) >= limit,
    "max_length": lambda value, limit: len(value) <= limit,
    "pattern": _matches,
}
