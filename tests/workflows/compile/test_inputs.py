"""Inputs: checked against what the workflow declares, all problems at once."""

import time
from typing import Any

import pytest

from agent.workflows.compile.compiler import compile_text
from agent.workflows.compile.inputs import InputError, check_inputs, read_inputs
from agent.workflows.graph import Graph
from tests.support.sample_kinds import KINDS


def graph_with(inputs: str) -> Graph:
    """Compile a workflow that declares these inputs."""
    return compile_text(f"name: x\ninputs: {inputs}\nsteps: {{a: {{nap: }}}}", kinds=KINDS)


DECLARED = """
  city: string
  days: {type: integer, default: 3}
  limit: {type: number, default: 0.5}
  loud: {type: boolean, default: false}
  tags: {type: list, default: []}
  extra: {type: object, required: false}
  units: {type: string, enum: [metric, imperial], default: metric}
  anything: {default: null}
"""


def test_defaults_are_filled_in() -> None:
    """What is not given takes its default, or null where it may be missing."""
    assert check_inputs(graph_with(DECLARED), {"city": "Rome"}) == {
        "city": "Rome", "days": 3, "limit": 0.5, "loud": False, "tags": [], "extra": None,
        "units": "metric", "anything": None,
    }  # fmt: skip


def test_every_problem_is_reported_at_once() -> None:
    """Unknown, missing and wrong inputs together, with what would be right."""
    with pytest.raises(InputError) as caught:
        check_inputs(graph_with(DECLARED), {"dayz": 1, "days": "3", "loud": 1, "units": "other"})
    problems = caught.value.problems
    assert len(problems) == 5
    for words in ("did you mean 'days'?", "input 'city' is missing; it is text",
                  "input 'days' must be a whole number, and is \"3\"",
                  "'loud' must be true or false", 'one of "metric", "imperial"'):  # fmt: skip
        assert any(words in problem for problem in problems), words


@pytest.mark.parametrize(
    ("name", "value"),
    [("days", True), ("days", 1.5), ("days", None), ("limit", "1"), ("limit", False),
     ("limit", float("nan")), ("limit", float("inf")), ("loud", "true"), ("tags", "a"),
     ("tags", {}), ("extra", []), ("city", 5), ("city", None), ("units", "METRIC")],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    """Nothing is converted silently; booleans are no numbers."""
    with pytest.raises(InputError, match=f"input '{name}'"):
        check_inputs(graph_with(DECLARED), {"city": "Rome", name: value})


def test_whole_numbers_and_nulls_where_they_fit() -> None:
    """3.0 is a whole number, an integer is a number, and an optional input may be null."""
    given = {"city": "Rome", "days": 3.0, "limit": 2, "extra": None, "anything": [1]}
    assert check_inputs(graph_with(DECLARED), given)["days"] == 3.0


def test_a_workflow_without_inputs_takes_none() -> None:
    """A misspelt input is not swallowed."""
    with pytest.raises(InputError, match="the workflow takes none"):
        check_inputs(graph_with("{}"), {"x": 1})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("city", "5", "5"), ("city", "", ""), ("city", "a=b", "a=b"), ("days", "5", 5),
     ("limit", "1e3", 1000.0), ("loud", "true", True), ("loud", "NO", False), ("tags", "[1]", [1]),
     ("extra", '{"a": 1}', {"a": 1}), ("anything", "plain", "plain"), ("anything", "[1]", [1]),
     ("unknown", "x", "x")],
)  # fmt: skip
def test_typed_text_becomes_a_value_of_the_declared_type(name: str, text: str, value: Any) -> None:
    """`-i key=value` is read by the input's type."""
    assert read_inputs(graph_with(DECLARED), {name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text"),
    [("days", "five"), ("days", "NaN"), ("limit", "Infinity"), ("loud", "maybe"), ("tags", "a,b"),
     ("extra", "{"), ("tags", "[" * 100_000)],
)  # fmt: skip
def test_typed_text_that_does_not_fit_is_refused(name: str, text: str) -> None:
    """With the input's name and what it takes."""
    graph = graph_with(DECLARED)
    with pytest.raises(InputError, match=f"input '{name}' must be"):
        check_inputs(graph, read_inputs(graph, {name: text}))


def test_typed_and_missing_inputs_are_reported_together() -> None:
    """An invalid input hides neither missing nor unknown ones."""
    graph = graph_with("{days: integer, tags: list, city: string}")
    with pytest.raises(InputError) as caught:
        check_inputs(graph, read_inputs(graph, {"days": "x", "tags": "5", "nope": "1"}))
    assert [problem.partition(";")[0] for problem in caught.value.problems] == [
        "there is no input 'nope'",
        "input 'days' must be a whole number, and is \"x\"",
        "input 'tags' must be a list, and is 5",
        "input 'city' is missing",
    ]


def test_thousands_of_wrong_names_are_counted_and_not_compared() -> None:
    """Looking for similar names takes time, which a caller must not decide."""
    graph = graph_with("{" + ", ".join(f"in{n}: {{default: {n}}}" for n in range(50)) + "}")
    began = time.thread_time()
    with pytest.raises(InputError) as caught:
        check_inputs(graph, {f"im{n}": 1 for n in range(100_000)})
    assert time.thread_time() - began < 2.0
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "there are 99,980 more inputs that it does not take"
