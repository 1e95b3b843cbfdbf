"""How models declare their fields: pydantic's names and meaning, without loading it.

`quick_models` has the models, `quick_checks` reads these declarations to check a value, and `pydantic_classes`
makes pydantic's own from them.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeVar

_T = TypeVar("_T")
_REQUIRED: Final[Any] = object()


class ValidationInfo(Protocol):
    """The second argument of a validator that takes one."""

    @property
    def context(self) -> Any:
        """The context that the caller of the check has passed; None at the check of a file."""


class FieldSpec:
    """The declaration of a field besides its type, also in `Annotated`."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return "default" not in self.arguments and "default_factory" not in self.arguments

    def default(self) -> Any:
        """Return the default, of a mutable one a copy."""
        if "default_factory" in self.arguments:
            return self.arguments["default_factory"]()
        default = self.arguments["default"]
        return default.copy() if isinstance(default, list | dict) else default

    def key(self, name: str) -> str:
        """Return the key of a field as a file spells it."""
        key: str = self.arguments.get("alias", name)
        return key


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


def spec_of(body: dict[str, Any], name: str) -> FieldSpec:
    """Return the declaration of a field in the body of its class."""
    declared = body.get(name, _REQUIRED)
    if isinstance(declared, FieldSpec):
        return declared
    return FieldSpec({} if declared is _REQUIRED else {"default": declared})


class FunctionSpec:
    """A function in `Annotated` that sees a value before its check, or after it."""

    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        self.function = function
        self.arguments = arguments


class BeforeValidator(FunctionSpec):
    """Converts a value before its type is checked."""


class AfterValidator(FunctionSpec):
    """Checks or converts a value of the right type."""


class WithJsonSchema:
    """The type's part of JSON Schemas; checks ignore it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema


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


class FieldValidator:
    """A class method that checks or converts the checked values of some fields."""

    def __init__(self, fields: tuple[str, ...], function: Any) -> None:
        self.fields = fields
        self.function = function


def field_validator(*fields: str) -> Callable[[_T], _T]:
    """Return a decorator of a class method that checks the values of fields."""

    def decorate(function: _T) -> _T:
        marked: Any = FieldValidator(fields, function)
        return marked  # type: ignore[no-any-return]

    return decorate


def ConfigDict(**settings: Any) -> dict[str, Any]:  # noqa: N802  (pydantic's name)
    """Return how a model is checked."""
    return settings
