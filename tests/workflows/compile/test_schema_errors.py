"""The words for the errors of a JSON Schema."""

from typing import Any

import pytest

from agent.workflows.compile.output_schema import find_output_problems, find_schema_problem

COLOURS = ["red", "green", "blue"]
LISTED = '"red", "green" or "blue"'


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"enum": COLOURS}, "x", f'output: "x" is not one of {LISTED}'),
        (
            {"anyOf": [{"enum": COLOURS}, {"type": "null"}]},
            "x",
            f'output: "x" is not one of {LISTED}',
        ),
        (
            {"oneOf": [{"enum": COLOURS}, {"type": "null"}]},
            "x",
            f'output: "x" is not one of {LISTED}',
        ),
        (
            {"anyOf": [{"items": {"$ref": "#/$defs/c"}, "type": "array"}, {"type": "null"}]},
            ["red", "x"],
            f'output[1]: "x" is not one of {LISTED}',
        ),
        (
            {"anyOf": [{"items": {"$ref": "#/$defs/c"}, "type": "array"}, {"type": "null"}]},
            "red",
            f'output: "red" is not of type "array" or "null"; the members of the array are {LISTED}',
        ),
        (
            {"anyOf": [{"type": "number", "minimum": 1}, {"type": "null"}]},
            0.5,
            "output: 0.5 is less than the minimum of 1",
        ),
        (
            {"anyOf": [{"minimum": 1}, {"multipleOf": 2}]},
            -1,
            "output: -1 is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
    ],
)
def test_an_error_names_the_choices(schema: dict[str, Any], value: Any, expected: str) -> None:
    """Of a choice with one branch of the value's type, the error is that of the branch."""
    assert find_output_problems(value, {**schema, "$defs": {"c": {"enum": COLOURS}}}) == [expected]


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({"enum": []}, ("enum",), "no value is one of none"),
        ({"properties": {"a": {"enum": []}}}, ("properties", "a", "enum"), "one of none"),
        ({"type": "string", "enum": [1, 2]}, ("enum",), "no value of enum is of type string"),
        ({"type": ["null", "array"], "const": "x"}, ("const",), "is of type null or array"),
        ({"minimum": 2, "maximum": 1}, ("maximum",), "maximum is less than minimum"),
        (
            {"items": {"minLength": 2, "maxLength": 1}},
            ("items", "maxLength"),
            "is less than minLength",
        ),
        (
            {
                "type": "object",
                "required": ["b"],
                "properties": {"a": {}},
                "additionalProperties": False,
            },
            ("required",),
            "'b' is required",
        ),
    ],
)
def test_what_no_value_can_meet_is_refused(
    schema: dict[str, Any], path: tuple[str, ...], message: str
) -> None:
    """A step would fail after it has run; a schema of another program may have such parts."""
    found = find_schema_problem(schema)
    assert found is not None
    assert found[0] == path
    assert message in found[1]
    assert find_schema_problem(schema, is_foreign=True) is None


def test_a_value_that_no_list_allows_is_no_failure_of_the_check() -> None:
    """Where another program's list is empty, the error says so."""
    assert find_output_problems({"a": 1}, {"properties": {"a": {"enum": []}}}) == [
        "output.a: 1 is not one of nothing"
    ]


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": 1}, 1),
        ({"properties": {"enum": {"type": "array"}, "minimum": {"type": "null"}}}, {"enum": []}, 0),
        ({"const": {"$ref": "http://x/y", "enum": []}}, {"$ref": "http://x/y", "enum": []}, 0),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "string"}}}, 1, 1),
        ({"$ref": "#/$defs/%C3%A4~1~0", "$defs": {"ä/~": {"type": "string"}}}, "x", 0),
        ({"$ref": "#/$defs/a%2525", "$defs": {"a%25": {"type": "string"}}}, 1, 1),
        ({"enum": [1.0], "type": "integer"}, 1, 0),
        ({"enum": [True, None], "type": ["boolean", "null"]}, None, 0),
        ({"x-note": {"enum": [], "required": 5, "$ref": "http://x"}}, 1, 0),
    ],
)
def test_names_constants_and_encoded_pointers_are_what_they_are(
    schema: dict[str, Any], value: Any, problems: int
) -> None:
    """A property may be called like a keyword, a constant may look like a schema; pointers are decoded."""
    assert find_schema_problem(schema) is None
    assert len(find_output_problems(value, schema)) == problems


def test_a_property_called_type_is_not_taken_for_the_keyword() -> None:
    """The message says that a schema is missing, and not that `string` is no type."""
    found = find_schema_problem({"properties": {"type": "string"}})
    assert found is not None
    assert "is not one of" not in found[1]


def test_choices_inside_choices_end() -> None:
    """A schema that leads back to itself is worded as deep as people read, and no deeper."""
    node = {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "integer"}]}
    value: Any = "x"
    for _ in range(60):
        value = [value]
    (problem,) = find_output_problems(value, node)
    assert "is not valid under any" in problem
    (problem,) = find_output_problems([["x"]], node)
    assert problem == 'output[0][0]: "x" is not of type "array" or "integer"'
