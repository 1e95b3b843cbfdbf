"""The checker finds broken approvals: each case is a database that was tampered with."""

import pytest

from agent.store.db.database import Database
from tests.support.approvals import one_step, parked, pending, say
from tests.support.engine import Hand, find_violations

TAMPERINGS = [
    ("DELETE FROM approvals", "which it did not ask for"),
    (
        "UPDATE approvals SET status = 'denied', decided_at = 1",
        "waits on approval {id}, which is denied",
    ),
    (
        "UPDATE approvals SET status = 'approved', decided_at = 1, approved_hash = 'x'",
        "approved for something else than was shown",
    ),
    (
        "UPDATE approvals SET status = 'approved', decided_at = 1",
        "and its approved hash is",
    ),
    (
        "UPDATE approvals SET status = 'expired', decided_at = 1",
        "is expired, and its events say nothing",
    ),
    (
        'UPDATE steps SET waiting_on = \'{"signal": "x"}\'',
        "is pending, and its step does not wait on it",
    ),
    ("UPDATE approvals SET renews = 'y'", "it renews y"),
    ("DELETE FROM events WHERE type = 'approval.requested'", "was asked 0 times"),
]


@pytest.mark.parametrize(("sql", "sentence"), TAMPERINGS)
def test_a_tampered_question_is_found(sqlite_database: Database, sql: str, sentence: str) -> None:
    """A waiting step, its pending approval and its events must agree."""
    hand = Hand(sqlite_database)
    parked(hand)
    (approval,) = pending(hand)
    assert find_violations(sqlite_database) == []
    _tamper(sqlite_database, sql)
    found = find_violations(sqlite_database)
    assert any(sentence.format(id=approval["id"]) in each for each in found), found
    hand.close()


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        (
            "INSERT INTO events (xid, task_id, seq, type, step_id, attempt, at, data)"
            " SELECT xid, task_id, 1000, type, step_id, attempt, at, data FROM events"
            " WHERE type = 'approval.decided'",
            "its events say approved, approved",
        ),
        ("DELETE FROM approvals", "succeeded without an approval"),
    ],
)
def test_a_tampered_decision_is_found(sqlite_database: Database, sql: str, sentence: str) -> None:
    """An approval is decided at most once, and no gated step succeeds without one."""
    hand = Hand(sqlite_database)
    parked(hand)
    (approval,) = pending(hand)
    say(hand, approval, "approve")
    hand.commit()
    hand.succeed("pay")
    assert find_violations(sqlite_database) == []
    _tamper(sqlite_database, sql)
    found = find_violations(sqlite_database)
    assert any(sentence in each for each in found), found
    hand.close()


def test_a_step_that_acted_past_its_conditional_gate_is_found(sqlite_database: Database) -> None:
    """It succeeded with neither an approval nor a record that the condition was false."""
    hand = Hand(sqlite_database)
    gate, _ = one_step(when="request.config.with.value > 50")
    hand.start(gate)
    hand.succeed("pay")
    (found,) = find_violations(sqlite_database)
    assert "step pay succeeded without an approval" in found
    hand.close()


def _tamper(database: Database, sql: str) -> None:
    with database.connect("writer") as connection, connection.transaction():
        connection.execute(sql)
