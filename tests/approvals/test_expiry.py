"""Expiry, renewal, reminders, and the loop that applies them."""

from collections import Counter
from typing import Any

import pytest

from agent import recovery
from agent.approvals import expiry
from agent.approvals.answering import DecidedError, InvalidAnswerError, defer
from agent.approvals.permission import NotAllowedError
from agent.core.clock import Clock
from agent.core.state_machine import StepStatus
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import approval_rows as store
from tests.support.approvals import (
    asked,
    caller,
    everything,
    gated,
    parked,
    pending,
    question,
    say,
    token,
)
from tests.support.engine import Engine, Hand, HandClock, eventually, find_violations
from tests.support.step_functions import runs

HOUR = 3600


def test_an_expired_question_fails_its_step(engine: Engine) -> None:
    """Nothing is asked again, nothing runs."""
    counted = token()
    task_id, approval = asked(engine, gated("pay", counted, expires="1h"))
    assert approval["expires_at"] is not None
    engine.skip(2 * HOUR)
    done = engine.wait(task_id, "failed")
    assert done["error"]["code"] == "approval_expired"
    assert done["error"]["class"] == "denied"
    assert [found["status"] for found in everything(engine, task_id)] == ["expired"]
    assert "approval.expired" in engine.types(task_id, "pay")
    with pytest.raises(DecidedError, match="expired already"):
        say(engine, approval, "approve")
    assert runs[counted] == []


def test_a_question_is_renewed(engine: Engine) -> None:
    """With on_expiry: renew a new one takes its place; the old can no longer be answered."""
    counted = token()
    task_id, first = asked(engine, gated("pay", counted, expires="1h", on_expiry="renew"))
    engine.skip(2 * HOUR)
    second = question(engine, task_id, other_than=first["id"])
    assert second["renews"] == first["id"]
    assert second["request_hash"] == first["request_hash"]
    assert engine.steps(task_id)["pay"]["waiting_on"]["approval"] == second["id"]
    ((checkpoint,),) = engine.rows("SELECT checkpoint FROM steps WHERE task_id = :id", id=task_id)
    assert second["id"] in checkpoint
    with pytest.raises(DecidedError, match=f"asked again as {second['id']}"):
        say(engine, first, "approve")
    engine.skip(2 * HOUR)
    third = question(engine, task_id, other_than=second["id"])
    say(engine, third, "approve")
    engine.wait(task_id, "succeeded")
    statuses = [found["status"] for found in everything(engine, task_id)]
    assert statuses == ["expired", "expired", "approved"]
    assert engine.types(task_id).count("approval.renewed") == 2
    assert runs[counted] == [("pay", None, 1)]


def test_a_question_asked_while_the_clock_ran_ahead_expires_in_its_own_time(
    engine: Engine,
) -> None:
    """Once the clock is corrected, its time begins; a second correction does not begin it again."""
    engine.skip(144 * HOUR)
    task_id, _ = asked(engine, gated("pay", token(), expires="1h", remind="30m"))
    engine.skip(-144 * HOUR)
    clock = engine.database.clock
    recovery.correct_waits(engine.database, clock)
    engine.skip(HOUR / 2 + 60)
    eventually(lambda: engine.types(task_id).count("approval.reminded") == 1)
    recovery.correct_waits(engine.database, clock)
    engine.skip(HOUR / 2)
    assert engine.wait(task_id, "failed")["error"]["code"] == "approval_expired"


def test_reminders_are_repeated(engine: Engine) -> None:
    """A reminder is an event; the question does not change, and expires when it is due."""
    task_id, approval = asked(engine, gated("pay", token(), remind="1h", expires="150m"))
    for count in (1, 2):
        engine.skip(HOUR + 1)
        eventually(lambda: engine.types(task_id).count("approval.reminded") >= count)  # noqa: B023
    assert [found["id"] for found in pending(engine, task_id)] == [approval["id"]]
    engine.skip(HOUR)
    engine.wait(task_id, "failed")
    assert engine.types(task_id).count("approval.reminded") == 2


def test_a_deferred_question_reminds_later(hand: Hand) -> None:
    """It stays open, reminds at the new time, and cannot be deferred once decided."""
    task_id = parked(hand, remind="1h")
    (approval,) = pending(hand, task_id)
    for seconds in (0, -1, 400 * 24 * HOUR, float("nan")):
        with pytest.raises(InvalidAnswerError, match="at most 366 days"):
            defer(hand.database, approval["id"], seconds, principal=caller())
    defer(hand.database, approval["id"], 5 * HOUR, principal=caller())
    with pytest.raises(NotAllowedError):
        defer(hand.database, approval["id"], 1, principal=caller("77", "telegram"))
    hand.skip(2 * HOUR)
    hand.commit()
    assert "approval.reminded" not in hand.types(task_id)
    hand.skip(4 * HOUR)
    hand.commit()
    assert hand.types(task_id, "pay")[-2:] == ["approval.deferred", "approval.reminded"]
    say(hand, approval, "deny")
    with pytest.raises(DecidedError):
        defer(hand.database, approval["id"], HOUR, principal=caller())


def test_an_answer_that_comes_late_finds_the_question_expired(hand: Hand) -> None:
    """Expiry counts from its instant, not from when the loop records it: no approval afterwards."""
    for on_expiry, message in (("fail", "expired already"), ("renew", "asked again as")):
        task_id = parked(hand, expires="1h", on_expiry=on_expiry)
        (approval,) = pending(hand, task_id)
        hand.skip(2 * HOUR)
        with pytest.raises(DecidedError, match=message):
            say(hand, approval, "approve")
        left = [found["renews"] for found in pending(hand, task_id)]
        assert left == ([approval["id"]] if on_expiry == "renew" else [])


def test_questions_of_a_paused_task_expire_and_are_answered(hand: Hand) -> None:
    """The loop serves paused tasks too; the decision takes effect when they resume."""
    expiring, answered = parked(hand, expires="1h"), parked(hand, remind="1h")
    for task_id in (expiring, answered):
        hand.operator.pause(task_id)
    hand.skip(2 * HOUR)
    hand.commit()
    assert len(pending(hand)) == 2, "a commit does not touch paused tasks"
    assert expiry.check_due(hand.database, hand.clock) == {"expired": 1, "reminded": 1}
    assert expiry.check_due(hand.database, hand.clock) == {}
    (approval,) = pending(hand, answered)
    say(hand, approval, "approve")
    hand.commit()
    assert hand.names() == [], "nothing of a paused task starts"
    assert hand.status(expiring) == "paused"
    for task_id in (expiring, answered):
        hand.operator.resume(task_id)
    hand.commit()
    assert hand.names() == ["pay"]
    hand.settle({"pay": Succeeded(1)})
    assert (hand.status(expiring), hand.status(answered)) == ("failed", "succeeded")


def test_a_task_cancelled_meanwhile_is_not_changed(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop reads due approvals before it locks the task, which may have ended since."""
    task_id = parked(hand, expires="1h")
    hand.skip(2 * HOUR)
    find = store.due

    def find_too_early(*given: Any) -> Any:
        found = find(*given)
        assert found
        hand.operator.cancel(task_id)
        return found

    monkeypatch.setattr(store, "due", find_too_early)
    before = hand.rows("SELECT count(*) FROM events")
    assert expiry.check_due(hand.database, hand.clock) == {}
    assert hand.statuses(task_id) == {"pay": StepStatus.WAITING}
    events = hand.rows("SELECT type FROM events ORDER BY id")[before[0][0] :]
    assert events == [("approval.withdrawn",), ("task.canceled",)]
    assert find_violations(hand.database) == []


def test_a_waiting_step_is_woken_by_the_safety_net(database: Database) -> None:
    """A step that still waits on a decided question goes on at the loop's next check or at a start.

    The engine never leaves one so: a decision wakes its step in the same transaction.
    """
    database.clock = HandClock()
    for recover in (False, True):
        hand = Hand(database)
        task_id = parked(hand)
        (approval,) = pending(hand, task_id)
        with database.connect("writer") as connection, connection.transaction():
            connection.execute(
                "UPDATE approvals SET status = 'approved', decided_at = :now,"
                " approved_hash = request_hash WHERE id = :id",
                now=database.clock.now(),
                id=approval["id"],
            )
        hand.commit()
        assert hand.statuses(task_id) == {"pay": StepStatus.WAITING}
        if recover:
            assert recovery.recover(database, database.clock).approvals == 1
        else:
            assert expiry.check_due(database, database.clock) == {"woken": 1}
        assert hand.statuses(task_id) == {"pay": StepStatus.PENDING}
        hand.close()


def test_a_failed_check_is_made_up_for(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one covers its time too; those after a success cover only what came since."""
    task_id = parked(hand, expires="1h")
    hand.operator.pause(task_id)
    hand.skip(2 * HOUR)
    check, checks = expiry.check_due, []

    def fail_once(database: Database, clock: Clock, since: int) -> Counter[str]:
        checks.append(since)
        if len(checks) == 1:
            raise StoreError(Fault.LOST, "the database is away")
        return check(database, clock, since)

    monkeypatch.setattr(expiry, "check_due", fail_once)

    approval_check = expiry.ApprovalCheck(hand.database, hand.clock)
    with pytest.raises(StoreError):
        approval_check.run()
    approval_check.run()
    assert not pending(hand, task_id)
    approval_check.run()
    assert [found["status"] for found in everything(hand, task_id)] == ["expired"]
    assert checks[:2] == [0, 0], "what a failed check may have missed is checked again"
    assert 0 < checks[2] < hand.clock.now() - expiry.OVERLAP_US
