"""Fields for values: what gets them, what is written as JSON, and what was meant by a form."""

from typing import Any

import pytest

from agent.server.pages.schema_form import members_of, read


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
def test_what_is_not_plain_is_written_as_json(schema: Any) -> None:
    """Where a field could not say what is meant there is none."""
    assert members_of(schema) == []


def test_every_plain_member_is_read_as_it_is_meant() -> None:
    """Text stays text, numbers are numbers, choices are what they stand for; nothing is left out."""
    schema = _object(
        text={"type": "string"},
        count={"type": "integer"},
        price={"type": "number"},
        sure={"type": "boolean"},
        size={"enum": ["small", 2]},
    )
    members = members_of(schema)
    typed = {"text": "12", "count": "12", "price": "1.5", "sure": "yes", "size": "2"}
    given = {f"value:{name}": text for name, text in typed.items()}
    assert read(members, given) == {
        "text": "12", "count": 12, "price": 1.5, "sure": True, "size": 2
    }  # fmt: skip
    assert read(members, {}) == {}
    assert read(members, dict.fromkeys(given, "")) == {}


def test_what_does_not_fit_is_kept_for_the_schema_to_refuse() -> None:
    """Nothing is guessed: 1,000 is neither one nor a thousand."""
    members = members_of(_object(price={"type": "number"}, sure={"type": "boolean"}))
    given = {"value:price": "1,000", "value:sure": "perhaps"}
    assert read(members, given) == {"price": "1,000", "sure": "perhaps"}


def test_a_text_that_is_needed_may_be_empty() -> None:
    """Other members that are needed and left empty are missed by the schema."""
    needed = _object(name={"type": "string"}, count={"type": "integer"}, size={"enum": ["s"]})
    members = members_of(needed | {"required": ["name", "count", "size"]})
    assert read(members, {}) == {"name": ""}


def test_what_is_needed_comes_first() -> None:
    """In the order in which the schema lists it."""
    schema = _object(**{name: {"type": "string"} for name in "abcd"}) | {"required": ["d", "b"]}
    assert "".join(member.name for member in members_of(schema)) == "dbac"


def test_defaults_are_filled_in() -> None:
    """Whoever agrees with them only presses the button."""
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
