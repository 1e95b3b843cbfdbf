"""Makes pydantic's class of a quick model: the same fields, methods and name."""

from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union

import pydantic

from agent.core.quick_classes.quick_fields import (
    FieldSpec,
    FieldValidator,
    FunctionSpec,
    ModelValidator,
    WithJsonSchema,
)
from agent.core.quick_classes.quick_models import BaseModel, ModelType, annotations_of

_OF_THE_CLASS: Final = ("__classcell__", "__annotate__", "__annotate_func__")
"""Names that Python puts into the body of each class."""


def pydantic_class(cls: ModelType, body: dict[str, Any]) -> Any:
    """Return pydantic's class of a model, made from the body of its class statement."""
    if cls is BaseModel:
        return pydantic.BaseModel
    own = {name: _member(value) for name, value in body.items() if name not in _OF_THE_CLASS}
    own["__annotations__"] = {name: _type(each) for name, each in annotations_of(cls).items()}
    # Validators are built when they are needed: a file uses few of the models.
    own["model_config"] = body.get("model_config", {}) | {"defer_build": True}
    bases = tuple(base.pydantic if isinstance(base, ModelType) else base for base in cls.__bases__)
    return type(bases[0])(cls.__name__, bases, own)


def _member(value: Any) -> Any:
    match value:
        case FieldSpec():
            return pydantic.Field(**value.arguments)
        case ModelValidator():
            return pydantic.model_validator(mode=value.mode)(value.function)
        case FieldValidator():
            return pydantic.field_validator(*value.fields)(value.function)
        case _:
            return value


def _type(annotation: Any) -> Any:
    """Return a type with pydantic's own classes and declarations in it."""
    if isinstance(annotation, ModelType):
        return annotation.pydantic
    arguments = getattr(annotation, "__args__", ())
    origin: Any = getattr(annotation, "__origin__", None)
    if origin is Literal or not arguments:
        return annotation
    if hasattr(annotation, "__metadata__"):
        return Annotated[(_type(origin), *map(_declaration, annotation.__metadata__))]
    inner = tuple(map(_type, arguments))
    if isinstance(annotation, UnionType) or origin is Union:
        return reduce(or_, inner)
    return origin[inner]


def _declaration(declared: Any) -> Any:
    match declared:
        case FunctionSpec():
            arguments = {name: _type(value) for name, value in declared.arguments.items()}
            return getattr(pydantic, type(declared).__name__)(declared.function, **arguments)
        case WithJsonSchema():
            return pydantic.WithJsonSchema(declared.schema)
        case _:
            return _member(declared)
