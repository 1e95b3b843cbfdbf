"""Inputs of triggers: what the compiler lets templates read is what a run gives them."""

import pytest

from agent.store.db.database import Database
from agent.triggers.run_builder import schedule_context, watch_context
from agent.triggers.watchers.source import Item
from agent.workflows.compile.trigger_inputs import names_of
from tests.support.recorded_triggers import record_workflow, trigger_row

WORKFLOW = """
name: w
on: {schedule: {id: s, every: 1h}}
steps: {rest: {wait: 1s}}
"""


@pytest.mark.parametrize("per", ["item", "batch"])
def test_the_known_names_are_those_of_a_run(database: Database, per: str) -> None:
    """A name that is missing here would refuse a template that works."""
    record_workflow(database, WORKFLOW)
    row = trigger_row(database, "w:s")
    assert set(names_of("schedule", {})) == set(schedule_context(row, 1, 2, "started"))
    given = watch_context(row, "feed", [Item("a", {})], per)
    assert set(names_of("watch", {"per": per})) == set(given)
