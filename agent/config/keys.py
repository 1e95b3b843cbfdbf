"""Dotted keys of the configuration (`engine.slots`, `models.claude.key`), and how texts become values."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent.config.mail import ImapSettings, MailSettings
from agent.config.models import McpSettings, ModelSettings
from agent.config.settings import Settings, sections

NAMED: Final[dict[str, type[BaseModel]]] = {
    "models": ModelSettings.pydantic,
    "mcp": McpSettings.pydantic,
    "mail": MailSettings.pydantic,
}
"""Sections with one subsection for each name that the file gives."""

Document = dict[str, Any]


def section_at(path: list[str]) -> type[BaseModel] | None:
    """Return the model of a section, also of one whose name the file gives."""
    if path[:1] == ["mail"] and path[2:] == ["imap"]:
        return ImapSettings.pydantic
    return NAMED.get(path[0]) or sections().get(".".join(path))


def section_names() -> list[str]:
    """Return the names of all sections."""
    return [*sections(), *NAMED]


def keys_of(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section, as the file spells them."""
    return [field.alias or name for name, field in section.model_fields.items()]


def fields_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by their keys."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def field_at(path: list[str]) -> FieldInfo | None:
    """Return the field of a key; None where there is no such key."""
    if len(path) < 2 or (path[0] in NAMED and len(path) < 3):
        return None
    section = section_at(path[:-1])
    return None if section is None else fields_of(section).get(path[-1])


def leaves(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield every key with its value, in the order of the file; named sections come last."""
    document = settings.model_dump(mode="json", by_alias=True)
    for name, section in sections().items():
        values = value_at(document, name.split("."))
        for key in keys_of(section):
            yield f"{name}.{key}", values[key]
    for kind in NAMED:
        for name, values in document[kind].items():
            yield from _named_leaves(f"{kind}.{name}", values)


def _named_leaves(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if key == "imap":
            yield from _named_leaves(f"{prefix}.imap", value or {})
        else:
            yield f"{prefix}.{key}", value


def value_at(document: Mapping[str, Any], path: list[str]) -> Any:
    """Return the value of a document at a path; None if there is none."""
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def put(document: Document, path: list[str], value: Any) -> Document:
    """Set a value at a path; return the document. A value in the place of a section is left for the check."""
    inner: Any = document
    for name in path[:-1]:
        if not isinstance(inner, dict):
            return document
        inner = inner.setdefault(name, {})
    if isinstance(inner, dict):
        inner[path[-1]] = value
    return document


def from_text(text: str, annotation: Any) -> Any:
    """Read a text as a field's type; a text that does not fit stays text, and the check refuses it."""
    if get_origin(annotation) in (list, dict):
        if text.lstrip().startswith(("[", "{")) or get_origin(annotation) is dict:
            return _from_json(text)
        return [part.strip() for part in text.split(",") if part.strip()]
    if annotation is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    numbers = [kind for kind in (int, float) if annotation in (kind, kind | None)]
    if numbers:
        try:
            return numbers[0](text)
        except ValueError:
            return text
    return text


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
