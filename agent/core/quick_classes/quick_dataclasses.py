"""Dataclasses for the modules of commands: the standard module takes long to load, and to make a class.

`dataclass`, `field` and `replace` are the part of the standard ones that these modules use, with the same
meaning, for classes that do not inherit fields. The functions of `dataclasses` work on the classes as well:
the fields are described to that module when it asks for them.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform

_T = TypeVar("_T")
_REQUIRED: Final[Any] = object()
_set: Final = object.__setattr__


class _Field:
    """The properties of a field besides its name and type."""

    def __init__(self, default: Any, make: Any = None, *, compare: bool = True, shows: bool = True):
        self.default = default
        self.make = make
        self.compare = compare
        self.repr = shows

    def value(self) -> Any:
        """Return the default; of a required field, an object that nothing equals."""
        return self.default if self.make is None else self.make()


def field(
    *,
    default: Any = _REQUIRED,
    default_factory: Callable[[], Any] | None = None,
    compare: bool = True,
    repr: bool = True,  # noqa: A002  (the name that dataclasses use)
) -> Any:
    """Declare more of a field than its type and default."""
    return _Field(default, default_factory, compare=compare, shows=repr)


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator that makes a class of fields."""

    def decorate(cls: type[_T]) -> type[_T]:
        fields = {name: _field(cls, name) for name in cls.__annotations__}
        added: dict[str, Any] = {
            "__quick_fields__": fields,
            "__dataclass_fields__": _Description(is_kw_only=kw_only),
            "__match_args__": () if kw_only else tuple(fields),
            "__init__": _Initializer(cls, fields, is_frozen=frozen, is_kw_only=kw_only),
        }
        if "__repr__" not in cls.__dict__:
            added["__repr__"] = _repr(fields)
        if eq:
            added |= _comparison(fields, has_hash=frozen)
        if frozen:
            added |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        if slots:
            added["__slots__"] = tuple(fields)
            # A frozen object cannot be copied or pickled by setting its attributes.
            added |= {"__getstate__": _state, "__setstate__": _set_state} if frozen else {}
            return _again(cls, added, fields)
        for name, value in added.items():
            setattr(cls, name, value)
        for name, field in fields.items():
            if field.default is not _REQUIRED:
                setattr(cls, name, field.default)
            elif name in cls.__dict__:
                delattr(cls, name)
        return cls

    return decorate


def replace(instance: _T, **changes: Any) -> _T:
    """Return a copy of an object with other values of some fields."""
    return type(instance)(**(values_of(instance) | changes))


def values_of(instance: Any) -> dict[str, Any]:
    """Return the values of an object by the names of their fields."""
    return {name: getattr(instance, name) for name in fields_of(type(instance))}


def fields_of(cls: type) -> dict[str, "_Field"]:
    """Return the fields of a class by their names."""
    fields: dict[str, _Field] = cls.__dict__["__quick_fields__"]
    return fields


class _Description:
    """The fields as `dataclasses` describes them, made when they are first asked for."""

    def __init__(self, *, is_kw_only: bool) -> None:
        self._is_kw_only = is_kw_only

    def __get__(self, _: Any, cls: Any) -> Any:
        import dataclasses

        described = []
        for name, field in fields_of(cls).items():
            own: Any = dataclasses.field(compare=field.compare, repr=field.repr)
            if field.default is not _REQUIRED:
                own.default = field.default
            if field.make is not None:
                own.default_factory = field.make
            described.append((name, cls.__annotations__[name], own))
        full_class: Any = dataclasses.make_dataclass(
            cls.__name__, described, kw_only=self._is_kw_only
        )
        # Pydantic reads the class without asking this descriptor.
        cls.__dataclass_fields__ = full_class.__dataclass_fields__
        return full_class.__dataclass_fields__


def _field(cls: type, name: str) -> _Field:
    default = cls.__dict__.get(name, _REQUIRED)
    return default if isinstance(default, _Field) else _Field(default)


def _again(cls: type[_T], added: dict[str, Any], fields: dict[str, _Field]) -> type[_T]:
    """Make a class again: slots have to be known when a class is made."""
    left_out = {"__dict__", "__weakref__", *fields}
    body = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    metaclass: Any = type(cls)
    new_class: type[_T] = metaclass(cls.__name__, cls.__bases__, body | added)
    return new_class


class _Initializer:
    """Makes the `__init__` of a class when it is first needed: a command uses few of the classes it loads."""

    def __init__(
        self, cls: type, fields: dict[str, _Field], *, is_frozen: bool, is_kw_only: bool
    ) -> None:
        self._of = (cls, fields)
        self._is_frozen = is_frozen
        self._is_kw_only = is_kw_only

    def __get__(self, instance: Any, owner: Any) -> Any:
        initializer = _initializer(
            *self._of, is_frozen=self._is_frozen, is_kw_only=self._is_kw_only
        )
        for cls in owner.__mro__:
            if cls.__dict__.get("__init__") is self:
                # In the place of this object: it is not asked a second time.
                cls.__init__ = initializer
        return initializer if instance is None else initializer.__get__(instance, owner)


def _initializer(
    cls: type, fields: dict[str, _Field], *, is_frozen: bool, is_kw_only: bool
) -> Callable[..., None]:
    """Return the `__init__` of a class; only code that names the fields is quick to run."""
    names: dict[str, Any] = {"_set": _set, "_REQUIRED": _REQUIRED}
    parameters, lines = ["self"], []
    if is_kw_only and fields:
        parameters.append("*")
    for name, field in fields.items():
        value = name
        if field.make is not None:
            names[f"_make_{name}"] = field.make
            parameters.append(f"{name}=_REQUIRED")
            value = f"_make_{name}() if {name} is _REQUIRED else {name}"
        elif field.default is not _REQUIRED:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(lines) or "pass"
    exec(f"def __init__({', '.join(parameters)}):\n {body}", names)  # noqa: S102  (of our own names)
    initializer: Callable[..., None] = names["__init__"]
    initializer.__qualname__ = f"{cls.__qualname__}.__init__"
    return initializer


def _repr(fields: dict[str, _Field]) -> Callable[[Any], str]:
    shown = [name for name, field in fields.items() if field.repr]

    def __repr__(self: Any) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _comparison(fields: dict[str, _Field], *, has_hash: bool) -> dict[str, Any]:
    compared = [name for name, field in fields.items() if field.compare]
    # With one name, the getter returns the value itself; with none there is no getter.
    values = attrgetter(*compared) if compared else type

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if has_hash else None}


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__slots__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__slots__, state, strict=True):
        _set(self, name, value)
