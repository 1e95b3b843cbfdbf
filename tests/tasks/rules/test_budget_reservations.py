"""Reservations: made with the intent, settled with the result, kept if the call is lost."""

import pytest

from agent.core.clock import SECOND
from agent.steps.types.call_records import Spend
from agent.steps.types.outcome import Paused, Succeeded
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.errors import RefusedError
from agent.tasks.operator import budget_pause
from agent.tasks.rescue import rescue_steps
from agent.tasks.worker.attempts import claim_of
from tests.support.engine import RETRY, Hand, graph
from tests.support.model_steps import ask, used
from tests.support.reservations import intend, intent_of, result_of


def test_an_unknown_call_counts_as_spent(hand: Hand) -> None:
    """A reservation that a crash left stays: the next attempt has only the rest."""
    task_id = hand.start(graph(ask("it"), budget={"tokens": 1000}))
    claimed = hand.claimed("it")
    assert intend(hand, (claimed, intent_of(claimed, 400)))[0].refusal is None
    assert used(hand, task_id) == (0, 0, 400, 400)
    with hand.database.connect("writer") as tx:
        owner = hand.committer.worker_id
        rescue_steps.take_over(tx, hand.committer.graphs, hand.clock, [owner], is_process_gone=True)
    hand.running.clear()
    hand.committer.enroll()
    hand.commit()
    again = hand.claimed("it")
    assert again.attempt == 2
    (note,) = intend(hand, (again, intent_of(again, 700)))
    assert note.refusal is not None and "600 are left" in note.refusal.message
    assert hand.status(task_id) == "paused"
    hand.settle({"it": Paused()})
    budget_pause.raise_budget(hand.operator, task_id, tokens=1100)
    hand.commit()
    again = hand.claimed("it")
    assert (again.attempt, again.checkpoint) == (2, None)
    intent = intent_of(again, 700)
    assert intend(hand, (again, intent))[0].refusal is None
    result = result_of(intent, Spend(100, 50, 150))
    hand.commit(Batch(entries=[JournalEntry(claim_of(again), again.graph, result=result)]))
    assert used(hand, task_id) == (150, 150, 400, 400)
    hand.settle({"it": Succeeded("hi")})
    assert hand.status(task_id) == "succeeded"


def test_reservations_of_one_commit_see_each_other(hand: Hand) -> None:
    """Two calls that fit separately and not together: one is sent, and one is refused."""
    task_id = hand.start(graph(ask("one"), ask("two"), budget={"tokens": 1000}))
    one, two = hand.claimed("one"), hand.claimed("two")
    notes = intend(hand, (one, intent_of(one, 600)), (two, intent_of(two, 600)))
    assert [note.refusal is None for note in notes] == [True, False]
    assert used(hand, task_id) == (0, 0, 600, 600)
    assert hand.rows("SELECT count(*) FROM tool_calls") == [(1,)]
    hand.settle({"one": Succeeded(), "two": Paused()})
    assert hand.statuses(task_id) == {"one": "succeeded", "two": "paused"}


def test_a_late_result_settles_once(hand: Hand) -> None:
    """A result under a lost claim settles its reservation; the same result again changes nothing."""
    task_id = hand.start(graph(ask("it")))
    claimed = hand.claimed("it")
    intent = intent_of(claimed, 400)
    intend(hand, (claimed, intent))
    hand.operator.cancel(task_id)
    note = JournalEntry(
        claim_of(claimed), claimed.graph, result=result_of(intent, Spend(10, 5, 15))
    )
    for _ in range(2):
        hand.commit(Batch(entries=[note]))
        assert used(hand, task_id) == (15, 15, 0, 0)


def test_raising_a_budget_does_not_lift_a_persons_pause(hand: Hand) -> None:
    """Raising a budget resumes only what a budget paused."""
    task_id = hand.start(graph(ask("it"), budget={"tokens": 10}))
    hand.operator.pause(task_id, "lunch")
    budget_pause.raise_budget(hand.operator, task_id, tokens=10_000)
    assert hand.status(task_id) == "paused"


def test_time_is_a_budget(hand: Hand) -> None:
    """A task whose time is used up is paused; it goes on only with more time."""
    budget = {"time_seconds": 60.0, "on_exhausted": "pause"}
    task_id = hand.start(
        graph(ask("one"), ask("two", after=["one"]), budget=budget, timeout_seconds=60.0)
    )
    assert hand.claimed("one").task.deadline is None, "what is in flight may finish"
    hand.skip(61)
    hand.commit()
    assert hand.status(task_id) == "paused"
    assert "the task's time is over" in hand.document(task_id)["pause_reason"]
    hand.succeed("one")
    hand.operator.resume(task_id)
    assert hand.status(task_id) == "paused", "its time was not raised"
    with pytest.raises(RefusedError, match="has passed"):
        budget_pause.raise_budget(hand.operator, task_id, seconds=30)
    budget_pause.raise_budget(hand.operator, task_id, seconds=600)
    assert hand.status(task_id) == "running"
    hand.commit()
    hand.succeed("two")
    assert hand.status(task_id) == "succeeded"


def test_a_steps_time_pauses_its_task(hand: Hand) -> None:
    """The task is paused with the reason; the step goes on when its time is raised."""
    task_id = hand.start(graph(ask("it", budget={"time_seconds": 60.0}), ask("other")))
    hand.skip(61)
    hand.settle({"it": Paused(exhausted="the time of step 'it' is over; do this"), "other": RETRY})
    assert hand.status(task_id) == "paused"
    reason = hand.document(task_id)["pause_reason"]
    assert reason == "budget: the time of step 'it' is over; do this"
    assert "budget.exhausted" in hand.types(task_id, "it")
    with pytest.raises(RefusedError, match="has no budget of its own"):
        budget_pause.raise_budget(hand.operator, task_id, step="other", seconds=600)
    with pytest.raises(RefusedError, match="has passed since the step started"):
        budget_pause.raise_budget(hand.operator, task_id, step="it", seconds=30)
    assert hand.status(task_id) == "paused"
    budget_pause.raise_budget(hand.operator, task_id, step="it", seconds=600)
    assert hand.status(task_id) == "running"
    hand.commit()
    deadline = hand.claimed("it").deadline
    assert deadline is not None and 0 < (deadline - hand.clock.now()) / SECOND < 600
    hand.succeed("it")
    hand.succeed("other")
    assert hand.status(task_id) == "succeeded"


def test_a_steps_time_counts_from_its_first_start(hand: Hand) -> None:
    """A step whose own time is over fails with its next attempt, however many are left."""
    task_id = hand.start(graph(ask("it", budget={"time_seconds": 60.0})))
    first = hand.claimed("it").deadline
    assert first is not None
    hand.skip(30)
    hand.settle({"it": RETRY})
    assert hand.claimed("it").deadline == first
    assert hand.status(task_id) == "running"
