"""The kind of a pause is a column: code acts on it, and never on the text of the reason."""

from pathlib import Path

import pytest

from agent.core.waits import ChildRequest
from agent.steps.types.outcome import Paused, Waiting
from agent.store.db.database import Database
from agent.store.schema import migrate
from agent.tasks.operator import budget_pause
from agent.tasks.read_models import task_list
from tests.support.child_tasks import child_of, parent, register
from tests.support.engine import Hand, graph, step
from tests.upgrade.revisions import migrate_to

IS_OVER = Paused(exhausted="the time is over", command="budget x --time D")


def _pause(hand: Hand, task_id: str) -> tuple[str | None, str | None, str | None]:
    document = hand.document(task_id)
    return document["pause_kind"], document["pause_reason"], document["pause_command"]


def test_resume_ends_an_operators_pause(hand: Hand) -> None:
    """A running task has no pause."""
    task_id = hand.start(graph(step("a")))
    assert _pause(hand, task_id) == (None, None, None)
    hand.operator.pause(task_id, "budget: lunch")
    assert _pause(hand, task_id) == ("operator", "budget: lunch", f"resume {task_id[-8:]}")
    hand.operator.resume(task_id)
    assert _pause(hand, task_id) == (None, None, None)


def test_the_reasons_text_does_not_decide_the_kind(hand: Hand) -> None:
    """An operator's reason may begin as a budget's does: raising the budget resumes nothing."""
    task_id = hand.start(graph(step("a"), budget={"tokens": 5}))
    hand.operator.pause(task_id, "budget: lunch")
    answer = budget_pause.raise_budget(hand.operator, task_id, tokens=10)
    assert (
        answer.message
        == f"budget set to 10 tokens; the task stays paused: `agent resume {task_id[-8:]}`"
    )
    assert hand.status(task_id) == "paused"


def test_a_budgets_pause_names_the_command_that_raises_it(hand: Hand) -> None:
    """Raising the budget resumes the task and clears the columns."""
    task_id = hand.start(graph(step("a"), budget={"tokens": 5}))
    hand.settle({"a": IS_OVER})
    assert _pause(hand, task_id) == ("budget", "budget: the time is over", "budget x --time D")
    assert budget_pause.raise_budget(hand.operator, task_id, tokens=10).message == (
        "budget set to 10 tokens, and resumed"
    )
    assert _pause(hand, task_id) == (None, None, None)


def test_a_child_requested_during_a_budgets_pause_shares_it(hand: Hand) -> None:
    """Raising the budget resumes the child too, also if it was created after the pause."""
    register(hand, graph(step("c"), name="child"))
    run = parent("child").steps[0]
    task_id = hand.start(graph(run, step("a"), budget={"tokens": 5}))
    hand.settle({"a": IS_OVER})
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    child_id = child_of(hand, task_id)
    assert _pause(hand, child_id) == _pause(hand, task_id)
    budget_pause.raise_budget(hand.operator, task_id, tokens=10)
    assert (hand.status(task_id), hand.status(child_id)) == ("running", "running")


def test_a_pause_by_an_earlier_version_has_no_kind(hand: Hand) -> None:
    """A worker that does not know the columns leaves them null: `resume` ends such a pause."""
    task_id = hand.start(graph(step("a"), budget={"tokens": 5}))
    hand.operator.pause(task_id)
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tasks SET pause_kind = NULL, pause_reason = 'budget: it is used up'")
    assert _pause(hand, task_id) == (None, "budget: it is used up", f"resume {task_id[-8:]}")
    answer = budget_pause.raise_budget(hand.operator, task_id, tokens=10)
    assert (
        answer.message
        == f"budget set to 10 tokens; the task stays paused: `agent resume {task_id[-8:]}`"
    )
    assert hand.operator.resume(task_id).is_changed


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_migration_fills_the_columns_of_paused_tasks(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It reads the texts that earlier versions wrote; tasks that are not paused have no pause."""
    url = f"sqlite:///{tmp_path}/agent.db"
    if kind == "postgres":
        url = request.getfixturevalue("empty_postgres_url")
    migrate_to("0005", url)
    raised = "budget: too little; `agent budget 12345678 --usd X` raises it"
    rows = {
        "a" * 32: ("paused", raised),
        "b" * 32: ("paused", "budget: the day's budget is used up"),
        "c" * 32: ("paused", "lunch"),
        "d" * 32: ("paused", None),
        "e" * 32: ("running", None),
        "f" * 32: ("canceled", raised),
    }
    database = Database(url)
    with database.connect("writer") as tx, tx.transaction():
        for task_id, (status, reason) in rows.items():
            tx.execute(
                "INSERT INTO tasks (id, status, workflow_name, workflow_version, input, origin_id,"
                " priority, steps_open, steps_running, steps_failed, steps_held, places_taken,"
                " phase, event_seq, depth, created_at, pause_reason) VALUES (:id, :status, 'w', 1,"
                " '{}', :id, 1, 0, 0, 0, 0, 0, 'normal', 0, 0, 1, :reason)",
                id=task_id,
                status=status,
                reason=reason,
            )
    migrate.upgrade(database)
    with database.connect("reader") as reader:
        found = {
            task["id"][0]: (task["pause_kind"], task["pause_command"])
            for task in task_list.list_tasks(reader)
        }
    assert found == {
        "a": ("budget", "budget 12345678 --usd X"),
        "b": ("budget", "resume bbbbbbbb"),
        "c": ("operator", "resume cccccccc"),
        "d": ("operator", "resume dddddddd"),
        "e": (None, None),
        "f": (None, None),
    }
