"""Form fields for values: which schemas get them, and how a form is read."""

from typing import Any

import pytest

from agent.approvals.answering import InvalidAnswerError
from agent.server.pages.forms.schema_form import (
    answer_members,
    members_of,
    read,
    read_answer_members,
    read_number,
)


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
    assert read(members, dict.fromkeys(form, "")) == {"text": ""}
    assert read(members, {"value:text": "", "without:text": "1"}) == {}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "6,5", 6.5),
        ({"type": "boolean"}, "no", False),
        ({"enum": ["small", 2]}, "2", 2),
        (_object(count={"type": "integer"}), None, {}),
    ],
)
def test_answers_that_are_one_value(schema: Any, text: str | None, value: Any) -> None:
    """They get one field; a text and a list are typed at length."""
    form = {} if text is None else {"value:": text}
    assert read_answer_members(schema, form) == value
    assert [answer_members(each) for each in ({"type": "string"}, {"type": "array"}, None)] == [
        [],
        [],
        [],
    ]


def test_values_are_shown_as_their_fields_write_them() -> None:
    """A form that is filled with the values of a task and sent unchanged changes nothing."""
    schema = _object(
        sure={"type": "boolean"},
        size={"enum": ["small", 2]},
        rows={"type": "array"},
        text={"type": "string", "default": "two\nlines"},
    )
    members = members_of(schema, is_input=True)
    values = {"sure": False, "size": 2, "rows": [{"a": None}], "text": "one\ntwo"}
    shown = {member.field: member.text_of(values[member.name]) for member in members}
    assert shown["value:sure"] == "no"
    assert read(members, shown) == values
    assert members_of(schema) == [], "fields of one line cannot show them"


def test_invalid_values_are_left_to_the_schema() -> None:
    """An unknown choice stays text, which the schema refuses."""
    members = members_of(_object(sure={"type": "boolean"}))
    assert read(members, {"value:sure": "perhaps"}) == {"sure": "perhaps"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("6,50", 6.5),
        ("6.5", 6.5),
        (" -3 ", -3),
        ("1.000,50", 1000.5),
        ("1,000.50", 1000.5),
        ("1 000,50", 1000.5),
        ("1’000.5", 1000.5),
        ("1,000,000", 1_000_000),
        ("0,125", 0.125),
        ("1234.567", 1234.567),
        ("2e3", 2000),
        (",5", 0.5),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_numbers_of_all_keyboards(text: str, number: float) -> None:
    """The comma of a decimal keyboard is a decimal point; groups of thousands are read."""
    assert read_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "1,000",
        "1.000",
        "12.345",
        "1,00,000",
        "1.5.2",
        "1,000,50",
        "6,50 $",
        "1e999",
        "nan",
        "٣",
        "",
        ",",
        "0x1",
        "1_000",
    ],
)
def test_what_may_be_two_numbers_is_refused(text: str) -> None:
    """So is what is none; a field refuses it by its name."""
    with pytest.raises(ValueError, match=r"may be two|not a number|too large"):
        read_number(text)
    if text:
        with pytest.raises(InvalidAnswerError, match="'price' must be a number"):
            read(members_of(_object(price={"type": "number"})), {"value:price": text})


@pytest.mark.parametrize(("text", "number"), [("1.000", 1000), ("100,000", 100_000), ("4.0", 4)])
def test_a_whole_number_has_groups(text: str, number: int) -> None:
    """A separator before three digits is clear where there are no decimals."""
    value = read_number(text, is_whole=True)
    assert (value, type(value)) == (number, int)
    with pytest.raises(ValueError, match="not a whole number"):
        read_number("1.000,50", is_whole=True)


def test_an_empty_text_is_not_the_default() -> None:
    """What is cleared is empty, or refused; only the choice beside the field gives the default."""
    schema = _object(
        supplier={"type": "string", "default": "Müller"},
        amount={"type": "number", "default": 249.125},
    )
    members = members_of(schema, is_input=True)
    shown = {member.field: member.default for member in members}
    assert read(members, shown) == {"supplier": "Müller", "amount": 249.125}
    assert read(members, shown | {"value:supplier": ""})["supplier"] == ""
    with pytest.raises(InvalidAnswerError, match="'amount' is empty"):
        read(members, shown | {"value:amount": ""})
    chosen = {"without:amount": "1", "without:supplier": "1"}
    assert read(members, shown | {"value:amount": ""} | chosen) == {}
    with pytest.raises(InvalidAnswerError, match="not both"):
        read(members, shown | {"value:amount": "5"} | chosen)


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
    filled |= {member.choice: "1" for member in members if member.is_out_at_first}
    assert read(members, filled) == {"count": 0, "sure": False, "size": 2}
