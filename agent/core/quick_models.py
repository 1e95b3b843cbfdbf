"""Models that are declared as pydantic's are, and load pydantic only where a value may be wrong.

Loading pydantic takes longer than to check a dozen workflow files. `BaseModel`, `Field` and the
validators here have the names and the meaning of pydantic's, for the part of it that the models of the
workflow language use. From each class, pydantic's own class is made when it is first needed
(`SomeModel.pydantic`): for the errors of a value, for JSON Schemas, and for every check in a process that
has pydantic loaded anyway, such as the daemon. Without it, `quick_checks` accepts what is plainly right;
all else is left to pydantic, which alone decides what is wrong and how to say it.
"""

import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
)

if TYPE_CHECKING:
    import pydantic

_T = TypeVar("_T")
_REQUIRED: Final[Any] = object()
_LIBRARY: Final = "pydantic"


class ValidationInfo(Protocol):
    """What a validator that has a second parameter is told."""

    @property
    def context(self) -> Any:
        """What the caller of the check has passed; None at the check of a file."""


class FieldSpec:
    """What is declared of a field besides its type, and in `Annotated` of a type."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return not self.arguments.keys() & {"default", "default_factory"}

    def default(self) -> Any:
        """Return the default, of a mutable one a copy."""
        if "default_factory" in self.arguments:
            return self.arguments["default_factory"]()
        default = self.arguments["default"]
        return default.copy() if isinstance(default, list | dict) else default

    def for_pydantic(self) -> Any:
        """Return pydantic's declaration of the same."""
        from pydantic import Field as PydanticField

        return PydanticField(**self.arguments)


def Field(  # noqa: N802  (pydantic's name)
    *,
    default: Any = _REQUIRED,
    default_factory: Callable[[], Any] | None = None,
    alias: str | None = None,
    **arguments: Any,
) -> Any:
    """Declare more of a field than its type: a default, an alias, bounds, a description."""
    if default is not _REQUIRED:
        arguments["default"] = default
    if default_factory is not None:
        arguments["default_factory"] = default_factory
    if alias is not None:
        arguments["alias"] = alias
    return FieldSpec(arguments)


class FunctionSpec:
    """A function in `Annotated` that sees a value before its check, or after it."""

    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        self.function = function
        self._arguments = arguments

    def for_pydantic(self) -> Any:
        """Return pydantic's declaration of the same."""
        import pydantic

        arguments = {name: for_pydantic(value) for name, value in self._arguments.items()}
        return getattr(pydantic, type(self).__name__)(self.function, **arguments)


class BeforeValidator(FunctionSpec):
    """Converts a value before its type is checked."""


class AfterValidator(FunctionSpec):
    """Checks or converts a value of the right type."""


class WithJsonSchema:
    """What JSON Schemas say of a type; checks ignore it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def for_pydantic(self) -> Any:
        """Return pydantic's declaration of the same."""
        from pydantic import WithJsonSchema as PydanticSchema

        return PydanticSchema(self._schema)


class ModelValidator:
    """A method that checks a whole model, or converts its value before."""

    def __init__(self, mode: Literal["before", "after"], function: Any) -> None:
        self.mode = mode
        self.function = function


def model_validator(*, mode: Literal["before", "after"]) -> Callable[[_T], _T]:
    """Return a decorator of a method that checks a whole model, or converts its value before."""

    def decorate(function: _T) -> _T:
        marked: Any = ModelValidator(mode, function)
        return marked  # type: ignore[no-any-return]

    return decorate


def ConfigDict(**settings: Any) -> dict[str, Any]:  # noqa: N802  (pydantic's name)
    """Return how a model is checked."""
    return settings


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class ModelType(type):
    """The type of quick models."""

    quick_fields: "dict[str, tuple[Any, FieldSpec]]"
    """The type and the declaration of each field, by name."""
    quick_validators: "dict[str, ModelValidator]"
    """The methods that check a whole model, by name."""
    quick_config: dict[str, Any]
    quick_checks: dict[str, Callable[[Any], Any]]
    """The checks of fields that were needed so far, by name."""
    _body: dict[str, Any]
    _pydantic: Any

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> "ModelType":
        """Take the fields and the validators out of the body of a class."""
        fields: dict[str, tuple[Any, FieldSpec]] = {}
        validators: dict[str, ModelValidator] = {}
        config: dict[str, Any] = {}
        for base in reversed(bases):
            if isinstance(base, ModelType):
                fields |= base.quick_fields
                validators |= base.quick_validators
                config |= base.quick_config
        own = dict(body)
        for field, annotation in body.get("__annotations__", {}).items():
            fields[field] = (annotation, _spec(own.pop(field, _REQUIRED)))
        for member, value in body.items():
            if isinstance(value, ModelValidator):
                own[member] = value.function
                validators[member] = value
        cls = super().__new__(mcs, name, bases, own)
        cls.quick_fields, cls.quick_validators = fields, validators
        cls.quick_config = config | body.get("model_config", {})
        cls.quick_checks = {}
        cls._body, cls._pydantic = body, None
        return cls

    @property
    def keys(cls) -> tuple[str, ...]:
        """The keys as a file spells them, in the order of the fields."""
        return tuple(key_of(name, spec) for name, (_, spec) in cls.quick_fields.items())

    @property
    def pydantic(cls) -> "type[pydantic.BaseModel]":
        """Pydantic's own class with the same fields, methods and name."""
        if cls._pydantic is None:
            cls._pydantic = _pydantic_class(cls, cls._body)
        made: type[pydantic.BaseModel] = cls._pydantic
        return made

    def __instancecheck__(cls, value: Any) -> bool:
        # Pydantic's classes derive from each other as these do.
        return super().__instancecheck__(value) or (
            cls._pydantic is not None and isinstance(value, cls._pydantic)
        )

    def __getattr__(cls, name: str) -> Any:
        # What is known of models besides their checks: fields, JSON Schemas.
        if name.startswith("model_"):
            return getattr(cls.pydantic, name)
        raise AttributeError(f"{cls.__name__} has no attribute {name!r}")


class BaseModel(metaclass=ModelType):
    """The base of models; what a check returns has the fields as attributes."""

    def __init__(self, **values: Any) -> None:
        checked = type(self).model_validate(values)
        _set_fields(self, dict(checked.__dict__), set(checked.model_fields_set))

    @classmethod
    def model_validate(cls, value: Any, *, context: Any = None) -> Self:
        """Return the model of a value; raise pydantic's `ValidationError`.

        A process that has pydantic loaded gets an instance of its class, with the same fields and methods.
        """
        if context is None and _LIBRARY not in sys.modules:
            from agent.core.quick_checks import NotPlainError, accept

            try:
                accepted: Self = accept(cls, value)
                return accepted
            except NotPlainError:
                pass
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
                (include is not None and name not in include)
                or (exclude is not None and name in exclude)
                or (exclude_unset and name not in self.model_fields_set)
                or (exclude_none and value is None)
                or (exclude_defaults and not spec.is_required and value == spec.default())
            )
            if not is_left_out:
                document[key_of(name, spec) if by_alias else name] = _dumped(value, how)
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


_GIVEN: Final = "__given__"


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


def key_of(name: str, spec: FieldSpec) -> str:
    """Return the key of a field as a file spells it."""
    key: str = spec.arguments.get("alias", name)
    return key


def _dumped(value: Any, how: dict[str, Any]) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(**how)
    if isinstance(value, list):
        return [_dumped(item, how) for item in value]
    if isinstance(value, dict):
        return {key: _dumped(item, how) for key, item in value.items()}
    return value


def _spec(declared: Any) -> FieldSpec:
    if isinstance(declared, FieldSpec):
        return declared
    return FieldSpec({} if declared is _REQUIRED else {"default": declared})


def _pydantic_class(cls: ModelType, body: dict[str, Any]) -> Any:
    import pydantic

    if body.get("__qualname__") == "BaseModel":
        return pydantic.BaseModel
    own = {name: value for name, value in body.items() if name != "__classcell__"}
    own["__annotations__"] = {
        name: for_pydantic(annotation)
        for name, annotation in body.get("__annotations__", {}).items()
    }
    for name, value in body.items():
        if isinstance(value, FieldSpec):
            own[name] = value.for_pydantic()
        elif isinstance(value, ModelValidator):
            own[name] = pydantic.model_validator(mode=value.mode)(value.function)
    # Validators are built when they are needed: a file uses few of the models.
    own["model_config"] = body.get("model_config", {}) | {"defer_build": True}
    bases = tuple(base.pydantic if isinstance(base, ModelType) else base for base in cls.__bases__)
    return type(bases[0])(cls.__name__, bases, own)


def for_pydantic(annotation: Any) -> Any:
    """Return a type with pydantic's own declarations in it."""
    if isinstance(annotation, ModelType):
        return annotation.pydantic
    if hasattr(annotation, "for_pydantic"):
        return annotation.for_pydantic()
    arguments = getattr(annotation, "__args__", ())
    origin = getattr(annotation, "__origin__", None)
    if origin is Literal or not arguments:
        return annotation
    if hasattr(annotation, "__metadata__"):
        return Annotated[tuple(map(for_pydantic, (origin, *annotation.__metadata__)))]  # type: ignore[return-value]
    inner = tuple(map(for_pydantic, arguments))
    if isinstance(annotation, UnionType) or origin is Union:
        return reduce(or_, inner)
    return origin[inner]  # type: ignore[index]
