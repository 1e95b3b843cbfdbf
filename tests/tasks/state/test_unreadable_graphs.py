"""A task whose definition cannot be read: it stops no other task, and can be cancelled."""

from pathlib import Path

import pytest

from agent import recovery
from agent.approvals import expiry
from agent.core.state_machine import CallStatus
from agent.core.waits import ChildRequest
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Question, Waiting
from agent.tasks.commit.batch import JournalEntry
from agent.tasks.errors import RefusedError
from agent.tasks.rescue import spilled_results
from agent.tasks.worker.attempts import claim_of
from tests.support.approvals import asks, pending
from tests.support.child_tasks import child_of, register
from tests.support.definitions import unreadable
from tests.support.engine import Hand, graph, other, step
from tests.support.interventions import intend, rewrite

ASKED = Waiting(ChildRequest("child", {}))


def ask_in_two(hand: Hand) -> tuple[str, str]:
    """Return two tasks with a question each, both of them expired."""
    expiring = asks("ask", expires=5)
    first, second = hand.submit(graph(expiring, name="bad"), graph(expiring, name="good"))
    question = Question("approval", "Now?", {}, expires_seconds=5.0)
    for task_id in (first, second):
        hand.settle({"ask": Waiting(question)}, task_id)
    hand.skip(6)
    return first, second


def test_the_agent_starts_with_an_unreadable_task(hand: Hand) -> None:
    """The startup pass skips it, and handles the others as always."""
    bad, good = ask_in_two(hand)
    with unreadable(hand, "bad"):
        assert recovery.recover(hand.database, hand.clock).approvals == 1
        assert hand.status(good) == "failed"
        assert [found["task"] for found in pending(hand)] == [bad]
    assert expiry.check_due(hand.database, hand.clock) == {"expired": 1}
    assert hand.status(bad) == "failed"


def test_a_full_page_of_unreadable_questions_hides_no_others(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay due for ever; each pass goes past them."""
    monkeypatch.setattr(expiry, "MOST_AT_ONCE", 1)
    _, good = ask_in_two(hand)
    with unreadable(hand, "bad"):
        assert expiry.check_due(hand.database, hand.clock) == {"expired": 1}
    assert hand.status(good) == "failed"


def test_an_unreadable_step_delays_no_other_question(hand: Hand) -> None:
    """The loop that expires questions goes on to the next one."""
    bad, good = ask_in_two(hand)
    before = rewrite(hand, bad, "waiting_on", "{broken")
    assert expiry.check_due(hand.database, hand.clock) == {"expired": 1}
    assert hand.status(good) == "failed"
    rewrite(hand, bad, "waiting_on", before)


def test_spilled_results_are_kept_until_the_task_can_be_read(hand: Hand, tmp_path: Path) -> None:
    """Results that another process could not record are not lost, and block nothing."""
    hand.database.directory = tmp_path
    bad, good = hand.submit(graph(step("pay"), name="bad"), graph(step("pay"), name="good"))
    notes = []
    for task_id in (bad, good):
        claimed = hand.claimed("pay", task_id)
        call_id = intend(hand, claimed)
        ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
        result = CallResult(call_id, key, CallStatus.SUCCEEDED, "done")
        notes.append(JournalEntry(claim_of(claimed), claimed.graph, result=result))
    path = spilled_results.write_file(hand.database, notes)
    assert path is not None
    with unreadable(hand, "bad"):
        assert recovery.recover(hand.database, hand.clock).calls == 1
        assert path.exists()
    recovery.recover(hand.database, hand.clock)
    assert not path.exists()
    statuses = hand.rows("SELECT status FROM idempotency_outcomes")
    assert statuses == [("succeeded",), ("succeeded",)]


def test_an_unreadable_task_can_only_be_cancelled(hand: Hand) -> None:
    """Every other command is refused with the reason."""
    task_id = hand.start(graph(step("a"), step("b", after=["a"]), name="bad"))
    hand.operator.pause(task_id)
    with unreadable(hand, "bad"):
        fresh = type(hand.operator)(hand.database, hand.clock)
        for command in (fresh.resume, fresh.retry):
            with pytest.raises(RefusedError, match="only be canceled: version 1 of the workflow"):
                command(task_id)
        assert fresh.cancel(task_id).is_changed
    assert hand.status(task_id) == "canceled"
    assert hand.statuses(task_id) == {"a": "pending", "b": "pending"}
    hand.running.clear()


@pytest.mark.parametrize("bad", ["parent", "child"])
def test_the_family_of_an_unreadable_task_can_be_cancelled(hand: Hand, bad: str) -> None:
    """Whichever of a family cannot be read, a cancellation reaches children and parents."""
    register(hand, graph(step("c"), name="child"))
    first = hand.start(graph(other("run", "workflow"), name="parent"))
    hand.settle({"run": ASKED})
    child_id = child_of(hand, first)
    with unreadable(hand, bad):
        fresh = type(hand.operator)(hand.database, hand.clock)
        if bad == "parent":
            assert fresh.cancel(child_id).is_changed
            assert hand.status(first) == "running"
        assert fresh.cancel(first).is_changed
    assert (hand.status(first), hand.status(child_id)) == ("canceled", "canceled")
    hand.running.clear()
