"""The words for the errors of a JSON Schema."""

from typing import Any

import pytest

from agent.workflows.compile.output_schema import find_output_problems

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
