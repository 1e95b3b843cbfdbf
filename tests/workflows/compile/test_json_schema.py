"""The JSON Schema for editors, and the schemas of outputs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, meta

from agent.workflows.compile.json_schema import workflow_schema
from agent.workflows.compile.output_schema import (
    UnusableSchemaError,
    find_output_problems,
    find_schema_problem,
)
from agent.workflows.yaml.source import read_source
from tests.support.documented import ROOT, documented_workflows
from tests.support.sample_kinds import KINDS


def test_the_schema_is_one() -> None:
    """With the real kinds, with others, and with none."""
    for schema in (workflow_schema(), workflow_schema(KINDS), workflow_schema({})):
        meta.validate(schema)


WORDS = {
    *("$schema", "$defs", "$ref", "title", "description", "default", "examples", "type", "enum"),
    *("const", "anyOf", "oneOf", "allOf", "not", "properties", "patternProperties", "required"),
    *("additionalProperties", "propertyNames", "minProperties", "maxProperties", "items"),
    *("minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def words_of(schema: Any) -> Iterator[str]:
    """Yield the words of a schema and of all in it; not the names of properties."""
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        yield word
        if word in ("properties", "patternProperties", "$defs"):
            inner = list(value.values())
        elif word in ("anyOf", "oneOf", "allOf"):
            inner = value
        elif word in ("items", "additionalProperties", "propertyNames", "not"):
            inner = [value]
        else:
            inner = []
        for each in inner:
            yield from words_of(each)


def test_the_schema_has_only_words_that_editors_know() -> None:
    """A word that JSON Schema does not have bounds nothing."""
    schema = workflow_schema()
    assert set(words_of(schema)) <= WORDS
    limit = schema["$defs"]["Step"]["properties"]["llm"]["anyOf"][0]["properties"]["max_tokens"]
    assert '"minimum": 1' in json.dumps(limit)


@pytest.mark.parametrize(
    "text",
    [
        "name: x\nsteps: {a: {llm: {prompt: x, max_tokens: 0}}}",
        "name: x\nsteps: {a: {llm: {prompt: x, temperature: 3}}}",
        "name: x\nsteps: {a: {agent: {goal: x, tools: {t: {shell: {allow: [[ls]]}, max_calls: 0}}}}}",
    ],
)
def test_an_editor_underlines_numbers_out_of_bounds(text: str) -> None:
    """The bounds of the kinds' own keys are in the schema."""
    value = read_source("f", text).value
    assert list(Draft202012Validator(workflow_schema()).iter_errors(value))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_meets_the_schema(path: Path) -> None:
    """What the agent accepts an editor must not underline."""
    value = read_source(str(path), path.read_bytes()).value
    assert list(Draft202012Validator(workflow_schema()).iter_errors(value)) == []


def test_everything_documented_meets_the_schema() -> None:
    """The reference shows every key and shorthand."""
    validator = Draft202012Validator(workflow_schema())
    for documented in documented_workflows():
        value = read_source(f"line {documented.line}", documented.text).value
        assert list(validator.iter_errors(value)) == [], documented.line


@pytest.mark.parametrize(
    "text",
    ["name: x", "name: x\nsteps: {}", "name: x\nsteps: {a: {}}", "name: x\nsteps: {a: {nap: {}, do: x}}",
     "name: x\nstep: {}\nsteps: {a: {nap: {}}}", "name: x\nsteps: {A: {nap: {}}}",
     "name: x\nsteps: {a: {nap: {}, timeout: 5}}", "name: x\nsteps: {a: {do: {what: x, count: zz}}}"],
)  # fmt: skip
def test_an_editor_underlines_mistakes(text: str) -> None:
    """The commonest mistakes do not meet the schema either."""
    value = read_source("f", text).value
    assert list(Draft202012Validator(workflow_schema(KINDS)).iter_errors(value))


def test_outputs_are_checked_against_their_schema() -> None:
    """Each problem with its path; a recursive schema ends; the list of problems is bounded."""
    schema = {"type": "object", "required": ["a"], "properties": {"b": {"type": "array", "items": {"type": "integer"}}}}  # fmt: skip
    assert find_output_problems({"a": 1, "b": [1]}, schema) == []
    assert sorted(find_output_problems({"b": ["x"]}, schema)) == [
        'output.b[0]: "x" is not of type "integer"',
        'output: "a" is a required property',
    ]
    assert len(find_output_problems({"a": 1, "b": ["x"] * 100}, schema)) == 21
    with pytest.raises(UnusableSchemaError):
        find_output_problems(1, {"$ref": "#"})


def test_a_schema_never_reaches_outside() -> None:
    """References point into the schema, and nothing is fetched."""
    assert find_schema_problem({"$ref": "https://example.com/x"}) is not None
    assert find_schema_problem({"properties": {"a": {"$ref": "file:///etc/passwd"}}}) == (
        ("properties", "a", "$ref"),
        "a $ref must point into this schema, as in '#/$defs/line'",
    )
    assert find_schema_problem({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}) is None
    assert find_schema_problem({"$ref": "#/$defs/none"}) is not None
    with pytest.raises(UnusableSchemaError, match="none"):
        find_output_problems(1, {"$ref": "#/$defs/none"})
