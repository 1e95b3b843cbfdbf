"""A step's document has each attempt with what it was given, what it did and what came of it."""

from typing import Any

import pytest

from agent.steps.types.outcome import Question, Succeeded, Waiting
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import step_attempts, task_documents
from agent.workflows.graph import Fanout
from tests.support.engine import RETRY, Engine, Hand, Reader, graph, other, step


def _step(reader: Reader, task_id: str, name: str) -> dict[str, Any]:
    with reader.database.connect("reader") as connection:
        return step_attempts.step_document(connection, task_id, name)


def test_each_attempt_has_its_configuration_error_and_log(engine: Engine) -> None:
    """Rendered arguments are those that the attempt got; the error is in the attempt that failed."""
    task = engine.run(
        graph(
            step("a", "echo", given={"value": "first"}),
            step("b", "speak_until", ["a"], given={"attempt": 2, "word": "{{ steps.a.output }}"}),
        ),
    )
    document = _step(engine, task["id"], "b")
    first, second = document["attempts"]
    assert document["definition"]["with"]["word"] == "{{ steps.a.output }}"
    assert first["config"]["with"] == second["config"]["with"] == {"attempt": 2, "word": "first"}
    assert (first["status"], second["status"]) == ("failed", "succeeded")
    assert first["error"]["message"] == "ValueError: not yet: first"
    assert "in speak_until" in first["traceback"] and "containment" not in first["traceback"]
    assert second["error"] is None and second["traceback"] is None
    assert (first["output"], second["output"]) == (None, "first")
    assert [(line["stream"], line["text"]) for line in second["log"]] == [("stdout", "attempt 2")]
    assert first["ended_at"] <= second["started_at"]


def test_configurations_are_not_among_the_logs(engine: Engine) -> None:
    """They stand in the table of logs, and people who read logs do not see them."""
    task = engine.run(graph(step("a", "echo", given={"value": "{{ task.id }}"})))
    assert _step(engine, task["id"], "a")["attempts"][0]["config"]["with"] == {"value": task["id"]}
    with engine.database.connect("reader") as connection:
        assert task_documents.step_logs(connection, task["id"]) == []


def test_a_configuration_without_templates_is_the_definitions(engine: Engine) -> None:
    """It is not recorded again for each attempt."""
    task = engine.run(graph(step("a", "echo", given={"value": 1})))
    assert _step(engine, task["id"], "a")["attempts"][0]["config"]["with"] == {"value": 1}
    assert engine.rows("SELECT count(*) FROM step_logs") == [(0,)]


def test_a_configuration_that_is_refused_is_shown(engine: Engine) -> None:
    """What was rendered is what explains the error."""
    wait = other("w", "wait", config={"seconds": "{{ inputs.much }}"})
    task = engine.run(graph(wait), given={"much": "many"})
    (attempt,) = _step(engine, task["id"], "w")["attempts"]
    assert attempt["error"]["code"] == "bad_config"
    assert attempt["config"] == {"seconds": "many"}


def test_a_large_configuration_is_cut_and_says_so(engine: Engine) -> None:
    """The record of an attempt is bounded, whatever its templates give."""
    task = engine.run(
        graph(step("a", "echo", given={"value": "{{ inputs.text }}"})), given={"text": "x" * 50_000}
    )
    (attempt,) = _step(engine, task["id"], "a")["attempts"]
    assert attempt["config_clipped"]
    assert attempt["config"]["with"]["value"].endswith("(50,000 characters)")
    ((size,),) = engine.rows("SELECT max(length(text)) FROM step_logs")
    assert size < 20_000
    assert len(attempt["output"]) == 50_000


def test_items_are_listed_and_shown_by_their_numbers(engine: Engine) -> None:
    """A group lists its items, failed ones first; an item has its value and its attempts."""
    task = engine.run(
        graph(
            step(
                "g",
                "odd_fails_while_shut",
                given={"gate": "items", "value": "{{ item }}"},
                fanout=Fanout(items=[0, 1]),
            ),
            fail_fast=False,
        )
    )
    group = _step(engine, task["id"], "g")
    assert [item["name"] for item in group["items"]] == ["g[1]", "g[0]"]
    assert group["items"][0]["error"]["message"]
    item = _step(engine, task["id"], "g[1]")
    assert (item["item"], item["parallel_index"]) == (1, 1)
    assert [attempt["attempt"] for attempt in item["attempts"]] == [1, 2, 3]
    assert item["attempts"][0]["config"]["with"]["value"] == 1


def test_calls_questions_and_waits_are_part_of_an_attempt(hand: Hand) -> None:
    """A question is shown with its answer, under the attempt that asked it."""
    task_id = hand.start(graph(other("ask", "approval", config={"message": "May it?"})))
    hand.settle({"ask": Waiting(Question("approval", "May it?", {"pay": 1}))})
    (attempt,) = _step(hand, task_id, "ask")["attempts"]
    assert attempt["status"] == "waiting"
    assert attempt["approvals"][0]["message"] == "May it?"
    assert attempt["approvals"][0]["decided_at"] is None
    assert attempt["waits"][0]["until"] is None


def test_a_kept_step_shows_where_it_ran(hand: Hand) -> None:
    """A retry of a retry keeps a step; its attempts are those of the first task."""
    task_id = hand.start(graph(step("a"), step("b", after=["a"])))
    hand.settle({"a": RETRY})
    hand.commit()
    hand.settle({"a": Succeeded("from a")})
    for _ in range(2):
        hand.fail("b")
        task_id, first = hand.operator.retry(task_id).task_id, task_id
        hand.commit()
    document = _step(hand, task_id, "a")
    assert document["kept_from"]["task"] != first, "the first task, not the one before"
    assert [attempt["status"] for attempt in document["attempts"]] == ["failed", "succeeded"]
    assert document["attempts"][1]["output"] == document["output"] == "from a"
    assert _step(hand, task_id, "b")["kept_from"] is None


def test_a_step_that_does_not_exist_is_refused_with_those_that_do(hand: Hand) -> None:
    """The message names the steps, or how many items there are."""
    task_id = hand.start(graph(step("a"), step("b", after=["a"])))
    with pytest.raises(NotFoundError, match="its steps are a, b"):
        _step(hand, task_id, "c")
    with pytest.raises(NotFoundError, match="there is no task"):
        _step(hand, "01999999-0000-7000-8000-000000000000", "a")
    assert _step(hand, task_id, "b")["attempts"] == []
