"""Form fields for values: which schemas get them, and how a form is read."""

from typing import Any

import pytest

from agent.server.pages.forms.schema_form import members_of, read


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "integer"},
        {"type": "object"},
        _object(),
        _object(a={"type": "array"}),
        _object(a={"type": "string"}, b={"type": "object"}),
        _object(a={"type": ["string", "null"]}),
        _object(a={"$ref": "#/$defs/a"}),
        _object(a=True),
        _object(a={"enum": ["x", None]}),
        _object(a={"enum": ["1", 1]}),
        _object(a={"type": "string"}) | {"required": ["b"]},
        _object(**{f"m{number}": {"type": "string"} for number in range(21)}),
    ],
)
def test_nested_schemas_get_no_fields(schema: Any) -> None:
    """A schema that fields cannot represent gets none."""
    assert members_of(schema) == []


def test_every_flat_member_is_read_by_its_type() -> None:
    """Text, numbers and choices are read by their types; empty members are left out."""
    schema = _object(
        text={"type": "string"},
        count={"type": "integer"},
        price={"type": "number"},
        sure={"type": "boolean"},
        size={"enum": ["small", 2]},
    )
    members = members_of(schema)
    typed = {"text": "12", "count": "12", "price": "1.5", "sure": "yes", "size": "2"}
    form = {f"value:{name}": text for name, text in typed.items()}
    assert read(members, form) == {
        "text": "12", "count": 12, "price": 1.5, "sure": True, "size": 2
    }  # fmt: skip
    assert read(members, {}) == {}
    assert read(members, dict.fromkeys(form, "")) == {}


def test_values_are_shown_as_their_fields_write_them() -> None:
    """A form that is filled with the values of a task and sent unchanged changes nothing."""
    schema = _object(
        sure={"type": "boolean"},
        size={"enum": ["small", 2]},
        rows={"type": "array"},
        text={"type": "string", "default": "two\nlines"},
    )
    members = members_of(schema, with_json=True)
    values = {"sure": False, "size": 2, "rows": [{"a": None}], "text": "one\ntwo"}
    shown = {member.field: member.text_of(values[member.name]) for member in members}
    assert shown["value:sure"] == "no"
    assert read(members, shown) == values
    assert members_of(schema) == [], "fields of one line cannot show them"


def test_invalid_values_are_left_to_the_schema() -> None:
    """Nothing is guessed: `1,000` stays text."""
    members = members_of(_object(price={"type": "number"}, sure={"type": "boolean"}))
    form = {"value:price": "1,000", "value:sure": "perhaps"}
    assert read(members, form) == {"price": "1,000", "sure": "perhaps"}


def test_required_text_may_be_empty() -> None:
    """Other required members that are left empty fail the schema."""
    needed = _object(name={"type": "string"}, count={"type": "integer"}, size={"enum": ["s"]})
    members = members_of(needed | {"required": ["name", "count", "size"]})
    assert read(members, {}) == {"name": ""}


def test_required_members_come_first() -> None:
    """In the schema's order of `required`."""
    schema = _object(**{name: {"type": "string"} for name in "abcd"}) | {"required": ["d", "b"]}
    assert "".join(member.name for member in members_of(schema)) == "dbac"


def test_defaults_are_filled_in() -> None:
    """A form with defaults can be sent unchanged."""
    schema = _object(
        count={"type": "integer", "default": 0},
        sure={"type": "boolean", "default": False},
        size={"enum": ["small", 2], "default": 2},
        text={"type": "string"},
    )
    members = members_of(schema)
    assert [member.default for member in members] == ["0", "no", "2", ""]
    filled = {member.field: member.default for member in members}
    assert read(members, filled) == {"count": 0, "sure": False, "size": 2}
