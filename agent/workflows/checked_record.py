"""Frozen records that pydantic checks, and that can be read again without loading it.

Loading pydantic takes longer than all else that most commands do. What was checked before it was
stored need not be checked again: `trusted` builds a record from it. The methods that check have the
names of pydantic's own.
"""

import json
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from agent.core.quick_classes.quick_dataclasses import fields_of, replace

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_CONFIG: dict[str, Any] = {"strict": True, "extra": "forbid"}


class Within:
    """Bounds of a field, by the names that pydantic has for them: `ge`, `max_length`, `pattern`."""

    def __init__(self, **bounds: Any) -> None:
        self._bounds = bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Add the bounds to the schema of the field's type."""
        schema = handler(source)
        schema.update(self._bounds)
        return schema


class CheckedRecord:
    """The base of frozen dataclasses; calling the class itself checks only what `__post_init__` does."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Return the record of plain values; raise pydantic's `ValidationError`."""
        return cls.model_validate_json(json.dumps(value, default=_plain))

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Return the record of a JSON text; raise pydantic's `ValidationError`."""
        record: Any = cls
        checked: Self = _adapter(record).validate_json(text)
        return checked

    @classmethod
    def trusted(cls, document: dict[str, Any]) -> Self:
        """Return the record of values that were checked before they were stored."""
        return cls(**document)

    def checked(self) -> Self:
        """Return the record with every field checked; raise pydantic's `ValidationError`."""
        return self.model_validate(self.model_dump(exclude_defaults=True))

    def model_dump(
        self, *, exclude_defaults: bool = False, exclude_none: bool = False
    ) -> dict[str, Any]:
        """Return the record as plain values."""
        document: dict[str, Any] = {}
        record: Any = type(self)
        for name, default in _defaults(record):
            value = getattr(self, name)
            if (exclude_defaults and value == default) or (exclude_none and value is None):
                continue
            if isinstance(value, CheckedRecord):
                value = value.model_dump(exclude_defaults=exclude_defaults)
            elif value.__class__ is list:
                value = [
                    item.model_dump(exclude_defaults=exclude_defaults)
                    if isinstance(item, CheckedRecord)
                    else item
                    for item in value
                ]
            document[name] = value
        return document

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """Return the record with other values in some fields."""
        return replace(self, **update)


@cache
def _adapter(record: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(record)


@cache
def _defaults(record: Any) -> tuple[tuple[str, Any], ...]:
    """Return each field with its default; a required one has a default that nothing equals."""
    return tuple((name, field.value()) for name, field in fields_of(record).items())


def _plain(value: Any) -> Any:
    if isinstance(value, CheckedRecord):
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is not a JSON value")
