"""Models that are declared as pydantic's are, and load pydantic only where a value may be wrong.

Loading pydantic takes longer than to check a dozen workflow files. `BaseModel` has the part of pydantic's that
the models of the workflow language and of the configuration use; `quick_fields` has the rest of a declaration.
From each class, pydantic's own is made when it is first needed (`SomeModel.pydantic`): for the errors of a
value, for JSON Schemas, and for every check in a process that has pydantic loaded anyway, such as the daemon.
Elsewhere `quick_checks` accepts what is plainly right; all else is left to pydantic, which alone decides what
is wrong and how to say it.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, dataclass_transform

from agent.core.quick_classes.quick_fields import (
    Field,
    FieldSpec,
    FieldValidator,
    ModelValidator,
    spec_of,
)

if TYPE_CHECKING:
    import pydantic

_LIBRARY: Final = "pydantic"
_GIVEN: Final = "__given__"
_loaded_for_mistakes = False


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class ModelType(type):
    """The type of quick models."""

    quick_fields: "dict[str, tuple[Any, FieldSpec]]"
    """The type and the declaration of each field, by name."""
    quick_validators: "dict[str, ModelValidator | FieldValidator]"
    """The methods that check a whole model, or some of its fields, by name."""
    quick_config: dict[str, Any]
    quick_checks: dict[str, Callable[[Any], Any]]
    """The checks of fields that were needed so far, by name."""
    _body: dict[str, Any]
    _pydantic: Any

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> "ModelType":
        """Take the fields and the validators out of the body of a class."""
        fields: dict[str, tuple[Any, FieldSpec]] = {}
        validators: dict[str, ModelValidator | FieldValidator] = {}
        config: dict[str, Any] = {}
        for base in reversed(bases):
            if isinstance(base, ModelType):
                fields |= base.quick_fields
                validators |= base.quick_validators
                config |= base.quick_config
        cls = super().__new__(mcs, name, bases, body)
        for field, annotation in annotations_of(cls).items():
            fields[field] = (annotation, spec_of(body, field))
            if field in body:
                delattr(cls, field)
        for member, value in body.items():
            if isinstance(value, ModelValidator | FieldValidator):
                setattr(cls, member, value.function)
                validators[member] = value
        cls.quick_fields, cls.quick_validators = fields, validators
        cls.quick_config = config | body.get("model_config", {})
        cls.quick_checks = {}
        cls._body, cls._pydantic = body, None
        return cls

    @property
    def keys(cls) -> tuple[str, ...]:
        """The keys as a file spells them, in the order of the fields."""
        return tuple(spec.key(name) for name, (_, spec) in cls.quick_fields.items())

    @property
    def is_quick(cls) -> bool:
        """Whether to try without pydantic: it is not loaded, or only for the mistakes of other models."""
        return _LIBRARY not in sys.modules or (_loaded_for_mistakes and cls._pydantic is None)

    @property
    def pydantic(cls) -> "type[pydantic.BaseModel]":
        """Pydantic's own class with the same fields, methods and name."""
        if cls._pydantic is None:
            from agent.core.quick_classes.pydantic_classes import pydantic_class

            cls._pydantic = pydantic_class(cls, cls._body)
        made: type[pydantic.BaseModel] = cls._pydantic
        return made

    if not TYPE_CHECKING:

        def __call__(cls, **values: Any) -> Any:
            """Make a model of values by their keys; they are checked."""
            return cls.model_validate(values)

    def __instancecheck__(cls, value: Any) -> bool:
        # Pydantic's classes derive from each other as these do.
        return super().__instancecheck__(value) or (
            cls._pydantic is not None and isinstance(value, cls._pydantic)
        )

    def __getattr__(cls, name: str) -> Any:
        # The other properties of models: fields, JSON Schemas.
        if name.startswith("model_"):
            return getattr(cls.pydantic, name)
        raise AttributeError(f"{cls.__name__} has no attribute {name!r}")


def annotations_of(cls: type) -> dict[str, Any]:
    """Return the annotations of a class itself; the attribute of one without any would be that of its type."""
    own: dict[str, Any] = vars(type)["__annotations__"].__get__(cls)
    return own


class BaseModel(metaclass=ModelType):
    """The base of models; what a check returns has the fields as attributes."""

    @classmethod
    def model_validate(cls, value: Any, *, context: Any = None) -> Self:
        """Return the model of a value; raise pydantic's `ValidationError`.

        A process that has pydantic loaded gets an instance of its class, with the same fields and methods.
        """
        if context is None and cls.is_quick:
            from agent.core.quick_classes.quick_checks import NotPlainError, accept

            try:
                accepted: Self = accept(cls, value)
                return accepted
            except NotPlainError:
                _note_mistake()
        checked: Any = cls.pydantic.model_validate(value, context=context)
        return checked  # type: ignore[no-any-return]

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """Return a model of values that are known to be right, by the names of its fields."""
        every = {
            name: values[name] if name in values else spec.default()
            for name, (_, spec) in cls.quick_fields.items()
            if name in values or not spec.is_required
        }
        made: Self = cls.__new__(cls)
        _set_fields(made, every, set(values))
        return made

    @property
    def model_fields_set(self) -> set[str]:
        """The names of the fields that were given."""
        given: set[str] = self.__dict__[_GIVEN]
        return given

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """Return the model with other values in some fields, which are not checked."""
        copied: Self = type(self).__new__(type(self))
        _set_fields(copied, fields_of(self) | update, self.model_fields_set | update.keys())
        return copied

    def model_dump(
        self,
        *,
        include: set[str] | None = None,
        exclude: set[str] | None = None,
        by_alias: bool = False,
        exclude_unset: bool = False,
        exclude_none: bool = False,
        exclude_defaults: bool = False,
        mode: str = "python",
    ) -> dict[str, Any]:
        """Return the model as plain values."""
        how = {
            "by_alias": by_alias,
            "exclude_unset": exclude_unset,
            "exclude_none": exclude_none,
            "exclude_defaults": exclude_defaults,
        }
        document = {}
        for name, value in fields_of(self).items():
            spec = type(self).quick_fields[name][1]
            is_left_out = (
                spec.arguments.get("exclude", False)
                or (include is not None and name not in include)
                or (exclude is not None and name in exclude)
                or (exclude_unset and name not in self.model_fields_set)
                or (exclude_none and value is None)
                or (exclude_defaults and not spec.is_required and value == spec.default())
            )
            if not is_left_out:
                document[spec.key(name) if by_alias else name] = _dumped(value, how)
        return document

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and fields_of(self) == fields_of(other)

    def __hash__(self) -> int:
        return hash((type(self), *fields_of(self).values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in fields_of(self).items())
        return f"{type(self).__name__}({values})"


def _note_mistake() -> None:
    global _loaded_for_mistakes  # noqa: PLW0603  (a property of the process, as is what it has loaded)
    _loaded_for_mistakes |= _LIBRARY not in sys.modules


def _set_fields(model: Any, values: dict[str, Any], given: set[str]) -> None:
    model.__dict__.update(values)
    model.__dict__[_GIVEN] = given


def fields_of(model: Any) -> dict[str, Any]:
    """Return the values of a quick model by the names of its fields."""
    return {name: value for name, value in model.__dict__.items() if name != _GIVEN}


def built(cls: Any, values: dict[str, Any], given: set[str]) -> Any:
    """Return a model of checked values."""
    made = cls.__new__(cls)
    _set_fields(made, values, given)
    return made


def _dumped(value: Any, how: dict[str, Any]) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(**how)
    if isinstance(value, list):
        return [_dumped(item, how) for item in value]
    if isinstance(value, dict):
        return {key: _dumped(item, how) for key, item in value.items()}
    return value
