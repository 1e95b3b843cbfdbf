"""No schema and no value hold up the process: what would take long is refused beforehand."""

import json
import random
import time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from agent.workflows.compile.output_schema import (
    UnusableSchemaError,
    find_output_problems,
    find_schema_problem,
    without_costly_patterns,
)
from agent.workflows.patterns import pattern_weight
from agent.workflows.schema_cost import SchemaCost, TooCostlyError, size_of

LONG_SECONDS: Final = 2.0
"""Of the processor's time, on a busy machine; without the bounds each case takes minutes."""


def doubling(levels: int) -> dict[str, Any]:
    """Return a schema in which each definition names the next one twice."""
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]}
        for n in range(levels)
    }
    return {"$defs": {**definitions, f"a{levels}": {"type": "string"}}, "$ref": "#/$defs/a0"}


def nested(levels: int) -> Any:
    """Return mappings in each other."""
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


BRANCHING: Final[dict[str, Any]] = {
    "$defs": {
        "n": {
            "anyOf": [{"required": ["a"], "properties": {"a": {"$ref": "#/$defs/n"}}}] * 2,
        }
    },
    "$ref": "#/$defs/n",
}
TEXT: Final = f"{random.Random(1).getrandbits(1_000_000):01000000b}".translate({48: "a", 49: "b"})
SLOW: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "a pattern that backtracks": ({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
    "a pattern with many states": ({"pattern": "[ab]*a[ab]{1000}c"}, TEXT),
    "a pattern for keys": ({"patternProperties": {"[ab]*a[ab]{1000}c": {}}}, {TEXT: 1}),
    "many unique objects": (
        {"uniqueItems": True},
        [{"a": n, "b": [n]} for n in range(20_000)],
    ),
    "definitions that double": (doubling(30), "text"),
    "definitions that double, and a wrong value": (doubling(14), 1),
    "a recursive choice": (BRANCHING, nested(100)),
    "a recursive choice, a little": (BRANCHING, nested(12)),
    "a great many errors": ({"items": {"type": "string"}}, [1] * 200_000),
    "a choice of many errors": (
        {"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]},
        [1] * 200_000,
    ),
    "large values in messages": (
        {"allOf": [{"type": "string"}] * 500},
        ["abcdefgh"] * 30_000,
    ),
    "many schemas and many values": (
        {"allOf": [{"items": {"minimum": 0}}] * 2_000},
        list(range(100_000)),
    ),
    "a long enumeration": ({"items": {"enum": [{"n": n} for n in range(10_000)]}}, [{}] * 10_000),
    "nested unevaluated": (
        {
            "$defs": {
                f"u{n}": {"allOf": [{"$ref": f"#/$defs/u{n + 1}"}], "unevaluatedProperties": False}
                for n in range(25)
            }
            | {"u25": {"properties": {"a": True}}},
            "$ref": "#/$defs/u0",
        },
        {"b": 1},
    ),
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.timeout(120)
def test_nothing_takes_long(name: str) -> None:
    """A value is checked, or it is refused because checking it would take too long."""
    schema, value = SLOW[name]
    began = time.thread_time()
    try:
        problems = find_output_problems(value, schema)
    except UnusableSchemaError as error:
        assert "too long" in str(error) or "stand for more than" in str(error)
    else:
        assert all(len(problem) < 500 for problem in problems)
        assert len(problems) <= 21
    assert time.thread_time() - began < LONG_SECONDS


def test_ordinary_schemas_are_below_the_limits() -> None:
    """Large outputs and recursive schemas of the ordinary kind are still validated."""
    line = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "t": {"type": "string", "pattern": "^[a-z ]+$"}},
        "required": ["n", "t"],
    }
    lines: list[dict[str, Any]] = [{"n": n, "t": "some words " * 5} for n in range(20_000)]
    assert find_output_problems(lines, {"items": line}) == []
    lines[7]["n"] = "seven"
    first, more = find_output_problems(lines, {"items": line})
    assert first == 'output[7].n: "seven" is not of type "integer"'
    assert more.startswith("and perhaps more")
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"children": {"items": {"$ref": "#/$defs/node"}}},
                "required": ["children"],
            }
        },
    }
    value: Any = {"children": []}
    for _ in range(150):
        value = {"children": [value, {"children": []}]}
    assert find_output_problems(value, tree) == []
    assert find_output_problems({"children": [{}]}, tree) == [
        'output.children[0]: "children" is a required property'
    ]


@pytest.mark.parametrize(
    ("schema", "place", "words"),
    [
        ({"pattern": "(?=a)b"}, ("pattern",), "uses lookaround or a backreference"),
        ({"items": {"pattern": r"(a)\1"}}, ("items", "pattern"), "uses lookaround"),
        (
            {"patternProperties": {"(?!x)": {}}},
            ("patternProperties", "(?!x)"),
            "uses lookaround",
        ),
        ({"pattern": "("}, ("pattern",), "is not a regular expression"),
        ({"pattern": "((a{99}){99}){99}"}, ("pattern",), "is too large"),
        ({"$ref": "#"}, (), "leads back to itself"),
        ({"allOf": [{"$ref": "#"}]}, (), "leads back to itself"),
        ({"$anchor": "a", "not": {"$ref": "#a"}}, (), "leads back to itself"),
        (doubling(20), (), "stand for more than 50,000 schemas"),
        ({"minLength": "x"}, ("minLength",), "not a JSON Schema"),
    ],
)
def test_an_unusable_schema_is_reported(
    schema: dict[str, Any], place: tuple[str, ...], words: str
) -> None:
    """When the file is read, with the position in the schema."""
    found = find_schema_problem(schema)
    assert found is not None
    assert found[0] == place
    assert words in found[1]
    with pytest.raises(UnusableSchemaError):
        find_output_problems("x", schema)


def test_patterns_of_others_are_left_out_where_they_would_backtrack() -> None:
    """The rest of such a schema holds."""
    schema = {
        "properties": {
            "a": {"type": "string", "pattern": r"^(?!\.)x"},
            "b": {"type": "string", "pattern": "^b"},
        },
        "patternProperties": {"^(?=c)": {"type": "integer"}, "^d": {"type": "integer"}},
        "additionalProperties": False,
    }
    left = without_costly_patterns(schema)
    assert find_output_problems({"a": ".", "b": "b", "c": "x", "d": 1}, left) == []
    assert len(find_output_problems({"a": 1, "b": "x", "d": "x"}, left)) == 3
    assert without_costly_patterns({"pattern": "^b"}) == {"pattern": "^b"}


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        ("abc", 3),
        ("a*b+c?", 6),
        ("[a-z]{10}", 10),
        ("(ab){3}c", 7),
        ("((a{10}){10}){10}", 1_000),
        (r"\{2\}", 3),
        ("[]{3}]", 4),
        ("[^a]{3}", 12),
        (r"\p{L}{2}", 100),
        ("a{3,}", 4),
        (".{0,5}", 20),
        ("(((", 0),
        ("a)))", 1),
        ("{3}", 0),
    ],
)
def test_patterns_weigh_what_they_repeat(pattern: str, weight: int) -> None:
    """Nested repetitions multiply; what only looks like one counts as text."""
    assert pattern_weight(pattern) == weight


_SCHEMAS: Final = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer", "minimum": 3},
            {"enum": [1, "a", None]},
            {"$ref": "#/$defs/d"},
            {"$ref": "#later"},
            {"pattern": "^a"},
            {"uniqueItems": True},
            {},
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"properties": st.fixed_dictionaries({"a": inner, "b": inner})}),
        st.fixed_dictionaries({"additionalProperties": inner, "properties": st.just({"a": True})}),
        *(
            st.fixed_dictionaries({word: st.lists(inner, min_size=1, max_size=3)})
            for word in ("allOf", "anyOf", "oneOf", "prefixItems")
        ),
        st.fixed_dictionaries({"not": inner, "propertyNames": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
        st.fixed_dictionaries({"contains": inner, "unevaluatedItems": inner}),
    ),
    max_leaves=8,
)
_VALUES: Final = st.recursive(
    st.sampled_from([None, True, 1, 5, 2.5, "a", "abc"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(_SCHEMAS, _SCHEMAS, _SCHEMAS, _VALUES)
def test_the_answer_is_the_validators_own(
    schema: dict[str, Any], one: dict[str, Any], other: dict[str, Any], value: Any
) -> None:
    """Bounds change when a value is refused, never which values are right; and counts are bounds."""
    whole = {**schema, "$defs": {"d": one, "e": {**other, "$anchor": "later"}}}
    if find_schema_problem(whole) is not None:
        return
    is_right = Draft202012Validator(whole, offline=True).is_valid(value)
    assert (find_output_problems(value, whole) == []) is is_right
    cost = SchemaCost(json.loads(json.dumps(whole)))
    counted = cost.count(value)
    assert counted.largest_choice <= counted.operations
    assert counted.operations <= cost.bound(size_of(value)) or cost.is_recursive
    with pytest.raises(TooCostlyError):
        cost.count(value, limit=0)


def test_a_count_is_exact_where_it_doubles() -> None:
    """Each reference is one operation, each choice both of its branches."""
    counted = SchemaCost(doubling(10)).count("text")
    # The root, then each of the 2^n definitions of a level and the references to them.
    assert counted.operations == 1 + sum(2**n for n in range(11)) + sum(2**n for n in range(1, 11))
    assert SchemaCost(BRANCHING).count(nested(10)).operations > 2**10
