"""The operator's commands: every cell of state × command, on a real database."""

from collections.abc import Callable

import pytest

from agent.core import ids
from agent.core.state_machine import TASK_ENDED, TaskStatus
from agent.core.waits import Signal
from agent.steps.types.outcome import Waiting
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import budget_pause
from agent.tasks.operator.operator import CommandResult
from agent.tasks.operator.state_table import COMMANDS
from tests.support.approvals import resolve
from tests.support.engine import Hand, graph, other, step
from tests.support.task_states import arrange

RUN: dict[str, Callable[[Hand, str], CommandResult]] = {
    "pause": lambda hand, task_id: hand.operator.pause(task_id, "lunch"),
    "resume": lambda hand, task_id: hand.operator.resume(task_id),
    "cancel": lambda hand, task_id: hand.operator.cancel(task_id, "no longer wanted"),
    "retry": lambda hand, task_id: hand.operator.retry(task_id),
    "fork": lambda hand, task_id: hand.operator.fork(task_id, "pay"),
    "resolve": lambda hand, task_id: resolve(hand.database, task_id, "pay", "done", {"paid": 1}),
    "budget": lambda hand, task_id: budget_pause.raise_budget(hand.operator, task_id, tokens=10**9),
    "signal": lambda hand, task_id: hand.operator.signal(task_id, "go", {"now": True}),
}
STATUS_AFTER = {"pause": "paused", "resume": "running", "cancel": "canceled"}


@pytest.mark.parametrize("command", RUN)
def test_every_cell(hand: Hand, command: str) -> None:
    """Each command acts, reports that it changed nothing, or is refused, as in the table."""
    assert set(COMMANDS[command]) == set(TaskStatus)
    for status, cell in COMMANDS[command].items():
        task_id = arrange(hand, TaskStatus(status))
        before = hand.everything()
        if cell.effect == "refuse":
            with pytest.raises(RefusedError, match=cell.message):
                RUN[command](hand, task_id)
            assert hand.everything() == before, f"{command} on {status} changed something"
        elif cell.effect == "same":
            answer = RUN[command](hand, task_id)
            assert answer == CommandResult(False, cell.message, task_id)
            assert hand.everything() == before, f"{command} on {status} changed something"
        else:
            answer = RUN[command](hand, task_id)
            assert answer.is_changed, f"{command} on {status}"
            assert_done(hand, command, status, task_id, answer)


def assert_done(hand: Hand, command: str, status: str, task_id: str, answer: CommandResult) -> None:
    """Check the effect of a command that acted."""
    if command in STATUS_AFTER:
        assert hand.status(task_id) == STATUS_AFTER[command]
        assert answer.task_id == task_id
        again = RUN[command](hand, task_id)
        assert not again.is_changed and "already" in again.message
    elif command in ("retry", "fork"):
        assert answer.task_id != task_id and answer.task_id in answer.message
        assert hand.status(task_id) == status, "the old task stays as it is"
        assert hand.status(answer.task_id) == "running"
    elif command == "resolve":
        assert hand.status(task_id) == status
        if status not in TASK_ENDED:
            assert hand.steps(task_id)["pay"]["status"] == "pending"
        assert "tool_call.resolved" in hand.types(task_id)
    elif command == "budget":
        assert hand.status(task_id) == status, "what a person paused stays paused"
        assert hand.types(task_id)[-1] == "budget.raised"
    else:
        assert hand.status(task_id) == status
        is_kept = status == "pending"
        assert answer.message.startswith("kept until" if is_kept else "step 'hear' goes on")
        ((taken_by,),) = hand.rows("SELECT taken_by FROM signals WHERE task_id = :t", t=task_id)
        assert (taken_by is None) == is_kept


def test_a_second_retry_returns_the_first_one(hand: Hand) -> None:
    """A retry that is requested twice gives one new task."""
    task_id = arrange(hand, TaskStatus.FAILED)
    first = hand.operator.retry(task_id)
    before = hand.everything()
    second = hand.operator.retry(task_id)
    assert (second.is_changed, second.task_id) == (False, first.task_id)
    assert "already" in second.message
    assert hand.everything() == before


def test_commands_on_missing_tasks_and_steps_are_refused(hand: Hand) -> None:
    """Every command on a task or a step that does not exist reports that and changes nothing."""
    task_id = arrange(hand, TaskStatus.RUNNING)
    before = hand.everything()
    for run in RUN.values():
        with pytest.raises(NotFoundError, match="no task"):
            run(hand, ids.new_id())
    for name in ("nope", "pay[0]", "pay[x]"):
        with pytest.raises(NotFoundError, match="no step"):
            resolve(hand.database, task_id, name, "done")
    with pytest.raises(NotFoundError, match="no step"):
        hand.operator.fork(task_id, "nope")
    with pytest.raises(RefusedError, match="no unknown effect"):
        resolve(hand.database, task_id, "hear", "done")
    assert hand.everything() == before


def test_cancel_leaves_the_steps_in_place_without_claims(hand: Hand) -> None:
    """Steps have no cancelled state: running ones lose their claims, waiting ones stay."""
    gone = graph(step("ran"), other("waits", "wait", config={"signal": "go"}), step("held"),
                 step("later", after=["ran"]), max_parallel=2)  # fmt: skip
    task_id = hand.start(gone)
    hand.settle({"waits": Waiting(Signal("go"))})
    hand.operator.cancel(task_id)
    statuses = hand.statuses(task_id)
    assert statuses == {
        "ran": "pending",
        "waits": "waiting",
        "held": "pending",
        "later": "pending",
    }
    found = hand.rows(
        "SELECT owner, claim_turn, wake_at FROM steps WHERE task_id = :id", id=task_id
    )
    assert set(found) == {(None, None, None)}
    assert "step.returned" in hand.types(task_id, "ran")


def test_a_signal_that_no_step_waits_for_is_reported(hand: Hand) -> None:
    """It is stored all the same; if names are only known later, there is no report."""
    listens = graph(step("a"), other("hear", "wait", ["a"], config={"signal": "approved"}))
    answer = hand.operator.signal(hand.start(listens), "aproved")
    assert answer.is_changed
    assert answer.message.endswith("and none of 'tested' does; did you mean 'approved'?")
    assert hand.operator.signal(hand.start(listens), "approved").message.endswith("'approved'")
    later = graph(
        other("hear", "wait", config={"signal": "{{ inputs.name }}"}), inputs={"name": {}}
    )
    task_id = hand.start(later, input={"name": "x"})
    assert hand.operator.signal(task_id, "whatever").message.endswith("'whatever'")
