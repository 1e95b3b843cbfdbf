"""The checker finds every kind of damage to conversations."""

import pytest

from agent.steps.types.conversation import Exchange, Summary
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from tests.support.engine import Hand, find_violations, graph, step

_ENTRY = (
    "INSERT INTO conversation_turns"
    " (conversation, number, role, content, task_id, step_id, tokens, covers_until, created_at)"
    " SELECT 'it', 6, {role}, 'x', task_id, step_id, 1, {covers}, 1 FROM conversation_turns"
    " WHERE number = 1"
)
DAMAGE = {
    "DELETE FROM conversation_turns WHERE number = 2": "has 4, from 1 to 5",
    "UPDATE conversation_turns SET number = 7 WHERE number = 5": "has 5, from 1 to 7",
    "DELETE FROM conversations": "which does not exist",
    "UPDATE conversation_turns SET covers_until = 5 WHERE role = 'summary'": "not before it",
    "UPDATE conversation_turns SET covers_until = 0 WHERE role = 'summary'": "were deleted",
    _ENTRY.format(role="'summary'", covers=2): "were summed up before",
    _ENTRY.format(role="'user'", covers="NULL"): "has appended 2 entries of user",
    "UPDATE steps SET claim_token = 0": "was kept from another task",
    "UPDATE conversation_turns SET step_id = 'other' WHERE number = 2": "not followed by its answer",
}
"""A change behind the engine's back, and what the checker says."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(sqlite_database: Database, damage: str) -> None:
    """Each change is named; without one there is nothing to say."""
    hand = Hand(sqlite_database)
    hand.start(graph(step("a"), step("b")))
    hand.settle({"a": Succeeded(1, exchange=Exchange("it", "one", 1, "1", 1))})
    said = Exchange("it", "two", 1, "2", 1, Summary("both", 1, 2))
    hand.settle({"b": Succeeded(2, exchange=said)})
    hand.close()
    assert find_violations(sqlite_database) == []
    with sqlite_database.connect("writer") as tx, tx.transaction():
        assert tx.execute(damage) > 0
    assert any(DAMAGE[damage] in found for found in find_violations(sqlite_database))
