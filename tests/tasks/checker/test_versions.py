"""The checker finds a task that keeps what its version does not have, or lost calls on record."""

import pytest

from agent.core.waits import UnknownCall
from agent.steps.types.outcome import Waiting
from agent.store.db.database import Database
from tests.support.child_tasks import register
from tests.support.engine import Hand, HandClock, find_violations, graph, step
from tests.support.interventions import intend


def _retried(hand: Hand) -> str:
    """Return a retry on a newer version, of a task with a kept step and an unknown call."""
    pay = step("pay", "act", ["a"], given={"token": "t"})
    task_id = hand.start(graph(step("a"), pay))
    hand.succeed("a")
    hand.settle({"pay": Waiting(UnknownCall(intend(hand, hand.claimed("pay"))))})
    hand.operator.cancel(task_id)
    hand.skip(3600)
    register(hand, graph(step("new"), step("a"), pay))
    again = hand.operator.retry(task_id, is_latest=True).task_id
    hand.commit()
    return again


def test_a_sound_retry_on_another_version_is_not_reported(hand: Hand) -> None:
    """Steps with other indexes are the same steps."""
    _retried(hand)
    assert find_violations(hand.database) == []


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            "UPDATE workflows SET graph = replace(graph, 'step_functions:noop', 'x:y')"
            " WHERE version = 1",
            "was kept from version 1, where it differs: python.call",
        ),
        (
            "DELETE FROM idempotency_outcomes WHERE tool_call_id IN"
            " (SELECT id FROM tool_calls WHERE attempt = 0)",
            "has no row in the ledger",
        ),
        ("DELETE FROM tool_calls WHERE attempt = 0", "step pay lost pay#1 of task"),
        (
            "UPDATE steps SET name = 'b' WHERE name = 'a' AND claim_token > 0",
            "step a was kept from something else",
        ),
    ],
    ids=["definition", "ledger", "calls", "name"],
)
def test_damage_is_found(sqlite_database: Database, damage: str, sentence: str) -> None:
    """Each promise of a retry is checked by what the rows say."""
    sqlite_database.clock = HandClock()
    hand = Hand(sqlite_database)
    _retried(hand)
    with sqlite_database.connect("writer") as connection, connection.transaction():
        connection.execute(damage)
    found = find_violations(sqlite_database)
    assert any(sentence in each for each in found), found
    hand.close()
