"""Form fields for a value that a JSON Schema describes, instead of JSON typed on a phone.

Flat objects get fields; other values are typed as JSON. Where `with_json` is set, so do lists and objects
inside of one: each is typed as JSON by itself. This module does not validate: every
answer is checked against its schema later.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.core.escape import harmless, harmless_json
from agent.steps.types.outcome import Json

_MAX_MEMBERS: Final = 20
_KEYBOARDS: Final = {"string": "text", "integer": "numeric", "number": "decimal"}
_NESTED: Final = ("array", "object")
_JSON: Final = "json"
_YES_NO: Final = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object, as a form field."""

    name: str
    label: str
    hint: str
    is_required: bool
    keyboard: str
    """The keyboard that a phone should show (`inputmode`); `json` for a value that is typed as JSON."""
    options: Mapping[str, Json]
    """The values to choose from, by their labels; empty if the value is typed."""
    default: str

    @property
    def field(self) -> str:
        """The field's name in the form."""
        return f"value:{self.name}"

    def text_of(self, value: Json) -> str:
        """Write a value as the text of this field."""
        if self.options:
            same = [label for label, each in self.options.items() if _is_same(each, value)]
            return (same or [""])[0]
        if self.keyboard == _JSON and value is not None:
            return harmless_json(value, indent=2)
        return label_of(value)


def members_of(schema: Json, *, with_json: bool = False) -> list[Member]:
    """Return the members of an object; none if the value must be typed as JSON."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return []
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not set(required) <= properties.keys():
        return []
    # Required members first, in their listed order; the order of the rest has no meaning.
    names = [*required, *(name for name in properties if name not in required)]
    members = [_member(name, properties[name], name in required, with_json) for name in names]
    plain = [member for member in members if member is not None]
    return plain if len(plain) == len(members) <= _MAX_MEMBERS else []


def read(members: list[Member], form: Mapping[str, str]) -> dict[str, Json]:
    """Return the object in a form, without the members that were left empty."""
    value: dict[str, Json] = {}
    for member in members:
        text = form.get(member.field, "")
        if text or (member.is_required and member.keyboard == "text" and not member.options):
            value[member.name] = _read(member, text)
    return value


def _member(name: str, schema: Any, is_required: bool, with_json: bool) -> Member | None:
    if not isinstance(schema, dict):
        return None
    kind, choices = schema.get("type"), schema.get("enum")
    options: Mapping[str, Json] = {}
    if isinstance(choices, list):
        options = {label_of(choice): choice for choice in choices}
        if "" in options or len(options) < len(choices):
            # A person cannot distinguish two choices with the same label.
            return None
    elif kind == "boolean":
        options = _YES_NO
    elif kind not in (*_KEYBOARDS, *(_NESTED if with_json else ())):
        return None
    default = schema.get("default")
    if isinstance(default, str) and (
        harmless(default) != default or ("\n" in default and not with_json)
    ):
        # A field of one line cannot show this default unchanged.
        return None
    member = Member(
        name=name,
        label=str(schema.get("title") or name),
        hint=str(schema.get("description") or ""),
        is_required=is_required,
        keyboard="text" if options else _KEYBOARDS.get(str(kind), _JSON),
        options=options,
        default="",
    )
    return replace(member, default=member.text_of(default))


def _is_same(one: Json, other: Json) -> bool:
    return label_of(one) == label_of(other)


def _read(member: Member, text: str) -> Json:
    if member.options:
        # An unknown label stays text, which the schema then refuses.
        return member.options.get(text, text)
    if member.keyboard == "text":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def label_of(value: Json) -> str:
    """Write a value as the text of a field."""
    if value is None:
        return ""
    return value if isinstance(value, str) else harmless_json(value)
