"""An answer covers the steps that a person answered for: changed ones are asked about again, with the difference."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.approvals.answering import answer as answer_approval
from agent.core.waits import ChildRequest
from agent.steps.attempt import approval_gate, prepare
from agent.steps.types.outcome import Question, Waiting
from agent.store.db.database import Database
from agent.workflows.graph import Graph, Step
from agent.workflows.step_code import code_hashes
from tests.support.approvals import caller
from tests.support.child_tasks import register
from tests.support.engine import Hand, HandClock, find_violations, graph, other
from tests.support.interventions import intend


def _shell(name: str, *argv: str, after: tuple[str, ...] = (), **config: Any) -> Step:
    return other(name, "shell", list(after), config={"argv": list(argv), **config})


def _question(name: str = "ask") -> Step:
    return other(name, "approval", config={"message": "OK to pay?"})


def _paying(*argv: str, **options: Any) -> Graph:
    """Return a workflow that asks, and then pays in this way."""
    return graph(_question(), _shell("pay", *(argv or ("pay", "35")), after=("ask",)), **options)


def _answer(hand: Hand, name: str = "ask", task_id: str | None = None) -> str:
    """Let the running step of a question, or of a gate, ask; approve it. Return the question's text."""
    claimed = hand.claimed(name, task_id)
    if claimed.step.approval is None:
        message = prepare.rendered_config(claimed, prepare.prepare_step(claimed.step))["message"]
        asked: Any = Question("approval", message, {"kind": "approval", "message": message})
    else:
        gated = approval_gate.gated_request(claimed.step.kind, claimed.step.config)
        asked = Question("approval", claimed.step.approval["message"], gated)
    hand.settle({name: Waiting(asked)}, task_id)
    ((approval_id, text),) = hand.rows(
        "SELECT id, message FROM approvals WHERE task_id = :id AND status = 'pending'",
        id=claimed.task.id,
    )
    answer_approval(hand.database, approval_id, "approve", principal=caller())
    hand.commit()
    hand.succeed(name, task_id=claimed.task.id)
    return str(text)


def _answered(hand: Hand, definition: Graph, **options: Any) -> str:
    """Return a task whose question was approved, and whose payment failed."""
    task_id = hand.start(definition, **options)
    _answer(hand)
    hand.fail("pay")
    return task_id


def _fork(hand: Hand, task_id: str) -> Any:
    return hand.operator.fork(task_id, "pay", is_latest=True)


def _retry(hand: Hand, task_id: str) -> Any:
    return hand.operator.retry(task_id, is_latest=True)


both = pytest.mark.parametrize("go_on", [_fork, _retry], ids=["fork", "retry"])
GoOn = Callable[[Hand, str], Any]

GATED = Step(
    name="pay",
    kind="shell",
    config={"argv": ["pay", "35"]},
    depends_on=["ask"],
    approval={"message": "Really?"},
)
ELSEWHERE = GATED.model_copy(update={"approval": None, "executor": {"name": "process"}})


@both
@pytest.mark.parametrize(
    ("new", "difference"),
    [
        (_paying("pay", "9999"), 'step pay: shell.argv: ["pay","35"] is now ["pay","9999"]'),
        (graph(_question(), ELSEWHERE), "step pay: executor: nothing is now"),
        (graph(_question(), GATED), "step pay: approval: nothing is now"),
        (
            graph(
                _question(),
                _shell("more", "pay", "9999", after=("ask",)),
                _shell("pay", "pay", "35", after=("ask",)),
            ),
            "step more: it is new",
        ),
        (
            graph(
                _question(),
                _shell("sum", "cat", "sum", after=("ask",), effect="none"),
                _shell("pay", "pay", "35", after=("sum",)),
            ),
            "step sum: it is new",
        ),
    ],
    ids=["definition", "executor", "gate", "new", "leads to it"],
)
def test_a_changed_step_that_acts_is_asked_about_again(
    hand: Hand, new: Graph, difference: str, go_on: GoOn
) -> None:
    """The question's text is the same, and what would be done is not: the command and the question show the difference."""
    task_id = _answered(hand, _paying())
    register(hand, new)
    result = go_on(hand, task_id)
    hand.commit()
    assert f"asked again: ask, whose answer does not cover {difference}" in result.message
    assert hand.statuses(result.task_id)["pay"] == "pending"
    text = _answer(hand, task_id=result.task_id)
    assert text.startswith("OK to pay?\n\nAsked again, since the earlier answer does not cover")
    assert difference in text
    assert find_violations(hand.database) == []


@both
@pytest.mark.parametrize(
    "new",
    [
        graph(_question(), _shell("pay", "pay", "35", after=("ask",)), _shell("more", "tidy")),
        graph(
            _question(),
            _shell("pay", "pay", "35", after=("ask",)),
            _shell("look", "ls", after=("pay",), effect="none"),
        ),
        graph(
            _question(),
            other("pause", "wait", ["ask"], config={"seconds": 5}),
            _shell("pay", "pay", "35", after=("pause",)),
        ),
    ],
    ids=["independent", "only reads", "only waits"],
)
def test_an_answer_that_covers_all_that_acts_is_kept(hand: Hand, new: Graph, go_on: GoOn) -> None:
    """A change that no effect depends on leaves the answer as it is."""
    task_id = _answered(hand, _paying())
    register(hand, new)
    result = go_on(hand, task_id)
    assert "asked again" not in result.message
    assert hand.statuses(result.task_id)["ask"] == "succeeded"


@pytest.mark.parametrize("is_latest", [True, False], ids=["latest", "own version"])
@pytest.mark.parametrize("is_fork", [True, False], ids=["fork", "retry"])
def test_changed_code_is_asked_about_again(
    hand: Hand, tmp_path: Path, is_fork: bool, is_latest: bool
) -> None:
    """A step runs its code as it is now, whatever the version: an edited script is not what was approved."""
    script, path = tmp_path / "pay.sh", tmp_path / "tested.yaml"
    script.write_text("echo 35")
    definition = _paying(str(script))
    definition.note_code(code_hashes(definition, path))
    task_id = _answered(hand, definition, path=str(path))
    kept = hand.operator.fork(task_id, "pay")
    assert "asked again" not in kept.message
    script.write_text("echo 9999")
    if is_fork:
        result = hand.operator.fork(task_id, "pay", is_latest=is_latest)
    else:
        result = hand.operator.retry(task_id, is_latest=is_latest)
    assert "does not cover step pay: its code has changed" in result.message
    assert hand.statuses(result.task_id)["pay"] == "pending"


def test_a_changed_child_is_asked_about_again(hand: Hand) -> None:
    """A step that starts a workflow acts as that workflow does, at any depth."""
    register(hand, graph(_shell("transfer", "pay", "35"), name="transfer"))
    register(hand, graph(other("run", "workflow", config={"name": "transfer"}), name="child"))
    pay = other("pay", "workflow", ["ask"], config={"name": "child"})
    task_id = _answered(hand, graph(_question(), pay))
    register(hand, graph(_shell("transfer", "pay", "9999"), name="transfer"), hand.clock.now())
    result = hand.operator.fork(task_id, "pay")
    assert "does not cover step pay: the workflow transfer has changed" in result.message


def _with_child(*argv: str) -> Graph:
    review = other("ask", "workflow", config={"name": "review"})
    return graph(review, _shell("pay", *argv, after=("ask",)))


@both
def test_a_child_that_asked_asks_again(hand: Hand, go_on: GoOn) -> None:
    """A question below a step covers what follows the step: a retry repeats the question, and no effect of the child."""
    register(hand, graph(_shell("note", "note"), _question("sure"), name="review"))
    task_id = hand.start(_with_child("pay", "35"))
    hand.settle({"ask": Waiting(ChildRequest("review", {}))})
    intend(hand, hand.claimed("note"))
    hand.succeed("note")
    _answer(hand, "sure")
    hand.skip(3600)
    hand.commit()
    hand.succeed("ask")
    hand.fail("pay")
    hand.skip(3600)
    register(hand, _with_child("pay", "9999"))
    again = go_on(hand, task_id).task_id
    hand.commit()
    hand.settle({"ask": Waiting(ChildRequest("review", {}))}, again)
    hand.commit()
    ((child_id,),) = hand.rows("SELECT id FROM tasks WHERE parent_task_id = :id", id=again)
    assert hand.statuses(child_id)["note"] == ("succeeded" if go_on is _retry else "running")
    assert "step pay: shell.argv" in _answer(hand, "sure", child_id)
    assert hand.statuses(again)["pay"] == "pending"


@pytest.mark.parametrize("has_acted", [True, False], ids=["acted", "computed"])
def test_a_gate_covers_its_effect_and_otherwise_what_follows(hand: Hand, has_acted: bool) -> None:
    """A gated step that has acted is not asked about again; one that has only computed is."""
    listing = _shell("ask", "list").model_copy(update={"approval": {"message": "These three?"}})
    task_id = hand.start(graph(listing, _shell("pay", "pay", "35", after=("ask",))))
    if has_acted:
        intend(hand, hand.claimed("ask"))
    _answer(hand)
    hand.fail("pay")
    hand.skip(3600)
    register(hand, graph(listing, _shell("pay", "pay", "9999", after=("ask",))))
    result = hand.operator.fork(task_id, "pay", is_latest=True)
    assert ("asked again: ask" in result.message) == (not has_acted)


def test_an_answer_that_nothing_relied_on_is_compared_with_its_own_version(hand: Hand) -> None:
    """A task may keep an answer unused under a newer version: the next one compares with the version of the answer."""
    aside = _shell("aside", "tidy")
    task_id = hand.start(graph(*_paying().steps, aside))
    _answer(hand)
    hand.succeed("pay")
    hand.fail("aside")
    register(hand, graph(_question(), ELSEWHERE, aside))
    second = hand.operator.retry(task_id, is_latest=True)
    hand.commit()
    assert "asked again" not in second.message
    hand.succeed("aside", task_id=second.task_id)
    third = hand.operator.fork(second.task_id, "pay")
    assert "does not cover step pay: executor" in third.message


def test_the_checker_finds_an_answer_that_does_not_cover_what_ran(
    sqlite_database: Database,
) -> None:
    """A step that ran after an answer for another definition is reported, with the difference."""
    sqlite_database.clock = HandClock()
    hand = Hand(sqlite_database)
    task_id = _answered(hand, _paying())
    register(hand, _paying(timeout_seconds=60))
    again = hand.operator.retry(task_id, is_latest=True).task_id
    hand.commit()
    hand.succeed("pay", task_id=again)
    assert find_violations(hand.database) == []
    with sqlite_database.connect("writer") as connection, connection.transaction():
        connection.execute(
            "UPDATE workflows SET graph = replace(graph, '35', '36') WHERE version = 1"
        )
    (found,) = (each for each in find_violations(hand.database) if "answered before" in each)
    assert (
        "step pay ran after ask, which was answered before a change: step pay: shell.argv" in found
    )
    hand.close()
