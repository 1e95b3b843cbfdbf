"""A form's fields for a value that a JSON Schema describes, so that nobody types JSON on a phone.

Only flat objects get them: what is not plain is written as JSON. Whether the value fits is not decided
here; an answer is held against its schema like every other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.core.escape import harmless, harmless_json
from agent.steps.types.outcome import Json

_MOST: Final = 20
_KEYBOARDS: Final = {"string": "text", "integer": "numeric", "number": "decimal"}
_YES_NO: Final = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object, as a field."""

    name: str
    label: str
    hint: str
    is_needed: bool
    keyboard: str
    """What a phone should offer to type with."""
    options: Mapping[str, Json]
    """What can be chosen, by what is shown; nothing: it is typed."""
    default: str

    @property
    def field(self) -> str:
        """Its name in the form."""
        return f"value:{self.name}"


def members_of(schema: Json) -> list[Member]:
    """Return the members of a flat object; none where its value is better written as JSON."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return []
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not set(required) <= properties.keys():
        return []
    # What is needed comes first, as it is listed; the rest is in no order of anybody's.
    names = [*required, *(name for name in properties if name not in required)]
    found = [_member(name, properties[name], name in required) for name in names]
    plain = [member for member in found if member is not None]
    return plain if len(plain) == len(found) <= _MOST else []


def read(members: list[Member], form: Mapping[str, str]) -> dict[str, Json]:
    """Return the object that a filled-in form is; what was left empty is left out."""
    value: dict[str, Json] = {}
    for member in members:
        text = form.get(member.field, "")
        if text or (member.is_needed and member.keyboard == "text" and not member.options):
            value[member.name] = _read(member, text)
    return value


def _member(name: str, schema: Any, is_needed: bool) -> Member | None:
    if not isinstance(schema, dict):
        return None
    kind, choices = schema.get("type"), schema.get("enum")
    options: Mapping[str, Json] = {}
    if isinstance(choices, list):
        options = {_shown(each): each for each in choices}
        if "" in options or len(options) < len(choices):
            # Nobody could tell which one is meant.
            return None
    elif kind == "boolean":
        options = _YES_NO
    elif not isinstance(kind, str) or kind not in _KEYBOARDS:
        return None
    default = schema.get("default")
    if isinstance(default, str) and (harmless(default) != default or "\n" in default):
        # A field of one line could not show it, or would change it.
        return None
    chosen = [text for text, each in options.items() if _shown(each) == _shown(default)]
    return Member(
        name=name,
        label=str(schema.get("title") or name),
        hint=str(schema.get("description") or ""),
        is_needed=is_needed,
        keyboard=_KEYBOARDS.get(str(kind), "text"),
        options=options,
        default=(chosen or [""])[0] if options else _shown(default),
    )


def _read(member: Member, text: str) -> Json:
    if member.options:
        # What is none of them does not fit, and is told so.
        return member.options.get(text, text)
    if member.keyboard == "text":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else harmless_json(value)
