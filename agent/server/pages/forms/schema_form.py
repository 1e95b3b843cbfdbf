"""Form fields for a value that a JSON Schema describes, instead of JSON typed on a phone.

Flat objects get fields; other values are typed as JSON. For inputs of a workflow (`is_input`), so do lists and
objects inside of one: each is typed as JSON by itself. This module does not validate: every
answer is checked against its schema later.

An empty text is a text. What leaves a member out is a choice of its own beside the field, or the empty option.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.approvals.answering import InvalidAnswerError
from agent.core.escape import harmless, harmless_json
from agent.steps.types.outcome import Json

_MAX_MEMBERS: Final = 20
_KEYBOARDS: Final = {"string": "text", "integer": "numeric", "number": "decimal"}
_NESTED: Final = ("array", "object")
_JSON: Final = "json"
_YES_NO: Final = {"yes": True, "no": False}
USE_DEFAULT: Final = "Use the default"
LEAVE_OUT: Final = "Leave it out if empty"
_DIGITS: Final = re.compile(r"[-+]?[0-9]{1,400}")
_PLAIN: Final = re.compile(r"[-+]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_GROUPED: Final = re.compile(
    r"[-+]?[1-9][0-9]{0,2}(?P<mark>[.,])[0-9]{3}(?:(?P=mark)[0-9]{3})*(?:(?!(?P=mark))[.,][0-9]*)?"
)
_SPACE: Final = re.compile(r"(?<=[0-9])[\s'’](?=[0-9]{3}(?![0-9]))")


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
    without: str
    """The choice that leaves the member out; empty if it must be given, or if an empty field says the same."""

    @property
    def choice(self) -> str:
        """The name in the form of the choice that leaves it out."""
        return f"without:{self.name}"

    @property
    def is_out_at_first(self) -> bool:
        """Whether it is left out until a person decides."""
        return self.without == LEAVE_OUT and not self.default

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
        text = label_of(value)
        # 1.125 may be two numbers, 1.1250 is one.
        return f"{text}0" if self.keyboard == "decimal" and _GROUPED.fullmatch(text) else text


def members_of(schema: Json, *, is_input: bool = False) -> list[Member]:
    """Return the members of an object; none if the value must be typed as JSON."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return []
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not set(required) <= properties.keys():
        return []
    # Required members first, in their listed order; the order of the rest has no meaning.
    names = [*required, *(name for name in properties if name not in required)]
    members = [_member(name, properties[name], name in required, is_input) for name in names]
    plain = [member for member in members if member is not None]
    return plain if len(plain) == len(members) <= _MAX_MEMBERS else []


def answer_members(schema: Json) -> list[Member]:
    """Return the fields of an answer: of an object's members, or one without a name for a number or a choice."""
    if members := members_of(schema):
        return members
    is_one = isinstance(schema, dict) and (
        "enum" in schema or schema.get("type") in ("integer", "number", "boolean")
    )
    member = _member("", schema, is_required=True, is_input=False) if is_one else None
    return [] if member is None else [replace(member, label=member.label or "Your answer")]


def read_answer_members(schema: Json, form: Mapping[str, str]) -> Json:
    """Return the answer in the fields of `answer_members`; an empty text if there is none."""
    value = read(answer_members(schema), form)
    return value if schema.get("type") == "object" else value.get("", "")


def read(members: list[Member], form: Mapping[str, str]) -> dict[str, Json]:
    """Return the object in a form, without the members that are left out."""
    value: dict[str, Json] = {}
    for member in members:
        text = form.get(member.field)
        if not _is_left_out(member, text, member.choice in form):
            value[member.name] = _read(member, text or "")
    return value


def _is_left_out(member: Member, text: str | None, is_chosen: bool) -> bool:
    is_text = member.keyboard == "text" and not member.options
    if text is None:
        return not (is_text and member.is_required)
    if member.options:
        return not text
    if member.without == USE_DEFAULT:
        if is_chosen and text not in ("", member.default):
            raise InvalidAnswerError(
                f"for {member.label} give a value or use the default, not both"
            )
        if not (is_chosen or text or is_text):
            raise InvalidAnswerError(f"{member.label!r} is empty: give a value, or use the default")
        return is_chosen
    # What is typed counts: the other choice is made beforehand.
    return not text and (is_chosen or not is_text)


def read_number(text: str, *, is_whole: bool = False) -> int | float:
    """Return a number as the keyboards of all countries offer it; raise `ValueError` if it is none, or may be two.

    6,50 is 6.5, and 1.000,50 is 1000.5. But 1.000 is a thousand in some countries and one in others: it is clear only
    where a whole number is wanted.
    """
    bare = _SPACE.sub("", text.strip())
    plain, grouped = _PLAIN.fullmatch(bare), _GROUPED.fullmatch(bare)
    if grouped is None and plain is None:
        raise ValueError(f"{text!r} is not a number")
    if grouped is not None:
        thousands = bare.replace(grouped["mark"], "")
        if plain is not None and not is_whole:
            raise ValueError(
                f"{text!r} may be two numbers: write {thousands} or {bare.replace(',', '.')}0"
            )
        bare = thousands
    value = float(bare.replace(",", "."))
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is too large")
    if is_whole and not value.is_integer():
        raise ValueError(f"{text!r} is not a whole number")
    return int(bare) if _DIGITS.fullmatch(bare) else int(value) if is_whole else value


def _member(name: str, schema: Any, is_required: bool, is_input: bool) -> Member | None:
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
    elif kind not in (*_KEYBOARDS, *(_NESTED if is_input else ())):
        return None
    default = schema.get("default")
    if isinstance(default, str) and (
        harmless(default) != default or ("\n" in default and not is_input)
    ):
        # A field of one line cannot show this default unchanged.
        return None
    is_text = kind == "string" and not options
    without = ""
    if is_input and default is not None and not is_required:
        without = USE_DEFAULT
    elif not is_required and (is_text or options):
        without = "Leave it out" if options else LEAVE_OUT
    member = Member(
        name=name,
        label=str(schema.get("title") or name),
        hint=str(schema.get("description") or ""),
        is_required=is_required,
        keyboard="text" if options else _KEYBOARDS.get(str(kind), _JSON),
        options=options,
        default="",
        without=without,
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
    if member.keyboard == _JSON:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    is_whole = member.keyboard == "numeric"
    try:
        return read_number(text, is_whole=is_whole)
    except ValueError as error:
        wanted = "a whole number" if is_whole else "a number"
        raise InvalidAnswerError(f"{member.label!r} must be {wanted}: {error}") from None


def label_of(value: Json) -> str:
    """Write a value as the text of a field."""
    if value is None:
        return ""
    return value if isinstance(value, str) else harmless_json(value)
