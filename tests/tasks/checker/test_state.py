"""The checker finds every kind of damage to `state`."""

import pytest

from agent.store.db.database import Database
from agent.tasks.operator.state_commands import set_value
from agent.workflows.compile.compiler import compile_text
from tests.support.engine import Hand, find_violations
from tests.support.state_attempts import completion_of, settle_once

GRAPH = compile_text(
    """
name: tested
steps:
  count:
    python: {call: "tests.support.step_functions:noop"}
    set_state: {counter: "{{ state.counter | default(0) + 1 }}"}
"""
)
COUNTER = ("workflow:tested", "counter")

DAMAGE = {
    "UPDATE state_values SET value = '9'": "its history says otherwise",
    "UPDATE state_values SET version = 2": "its history says otherwise",
    "DELETE FROM state_history WHERE version = 2": "has 2 of the versions 1 to 3",
    "DELETE FROM state_history WHERE version = 1": "keeps only 2 versions",
    "DELETE FROM state_history WHERE version = 3": "ends with 2, and the value is at 3",
    "DELETE FROM state_values": "the value is at None",
    "UPDATE state_history SET task_id = NULL WHERE version = 1": "and so has task None",
    "UPDATE state_history SET call_id = 'x' WHERE version = 1": "and so has task",
    "UPDATE events SET type = 'state.seen' WHERE type = 'state.changed'": (
        "succeeded, and has written state 0 times"
    ),
    "UPDATE steps SET status = 'failed'": "is failed, and has written state 1 times",
    "UPDATE events SET data = replace(data, '\"version\": 1', '\"version\": 7')": (
        "version 7 of workflow:tested/counter, which does not exist"
    ),
}
"""A change behind the engine's back, and what the checker says."""


@pytest.mark.parametrize("statement", DAMAGE, ids=range(len(DAMAGE)))
def test_damage_is_found(database: Database, statement: str) -> None:
    """Every inconsistency is reported."""
    hand = Hand(database)
    hand.submit(GRAPH, GRAPH)
    for name in list(hand.running):
        settle_once(hand, [completion_of(hand.running[name])])
        if len(hand.rows("SELECT 1 FROM state_history")) == 1:
            break
    (left,) = hand.running
    _, again = settle_once(hand, [completion_of(hand.running[left])])
    settle_once(hand, again)
    set_value(database, database.clock, COUNTER, 3)
    hand.close()
    assert find_violations(database) == []
    with database.connect("writer") as connection, connection.transaction():
        connection.execute(statement)
    found = find_violations(database)
    assert any(DAMAGE[statement] in sentence for sentence in found), found
