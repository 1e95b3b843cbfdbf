"""Pruning between the instants of a schedule: nothing fires twice, and the checker finds nothing."""

import pytest

from agent.core.clock import SECOND
from agent.store import firing_pruning
from agent.store.db.database import Database
from agent.store.engine.firing_rows import DAY_US
from agent.triggers.commands.trigger_commands import TriggerCommands
from tests.support.recorded_triggers import (
    StillClock,
    fates,
    firings,
    record_workflow,
    run_pass,
)

DAILY = """
name: daily
on: {schedule: {id: s, every: 1d, overlap: allow, catch_up: none}}
steps: {work: {wait: {signal: go}}}
"""


def test_a_prune_lets_no_instant_fire_twice(still: Database, clock: StillClock) -> None:
    """Neither a skipped one that is to come, nor one of the past after the clock was set back."""
    record_workflow(still, DAILY)
    for _ in range(3):
        clock.skip(86_400)
        run_pass(still)
    TriggerCommands(still, clock).skip("daily:s")
    before = fates(still, "daily:s")
    clock.skip(0.9 * 86_400)
    with still.connect("writer") as connection:
        list(firing_pruning.prune_in_steps(connection, clock.now(), clock.now()))
    assert fates(still, "daily:s") == before
    clock.skip(-2 * 86_400)
    run_pass(still)
    clock.skip(2.5 * 86_400)
    run_pass(still)
    rows = firings(still, "daily:s")
    nominal = [row["nominal_at"] for row in rows.values() if row["until_at"] is None]
    assert len(nominal) == len(set(nominal))
    assert sum(row["status"] == "started" for row in rows.values()) == 3


@pytest.mark.parametrize("days", [2, 40])
def test_pruned_instants_are_only_those_long_over(
    still: Database, clock: StillClock, days: int
) -> None:
    """A gap of any length is one row; what follows the prune is decided as before."""
    record_workflow(still, DAILY)
    clock.skip(days * 86_400 + 3600)
    run_pass(still)
    clock.skip(86_400)
    run_pass(still)
    clock.skip(86_400)
    with still.connect("writer") as connection:
        counts = dict(firing_pruning.prune_in_steps(connection, clock.now() - DAY_US, clock.now()))
    assert counts["firings"] == 1
    run_pass(still)
    newest = max(row["nominal_at"] for row in firings(still, "daily:s").values())
    assert clock.now() - newest == 3600 * SECOND
