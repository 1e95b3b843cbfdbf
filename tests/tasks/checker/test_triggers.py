"""The checker finds every kind of damage to triggers and firings."""

import time

import pytest

from agent.core.clock import SECOND
from agent.store import firing_pruning
from agent.store.db.database import Database
from agent.store.engine.firing_rows import DAY_US
from agent.store.pruning import prune
from tests.support.engine import find_violations
from tests.support.trigger_bench import BEGIN, TriggerBench

HOUR = 3600.0
SCHEDULE = {"id": "it", "every_seconds": HOUR, "overlap": "queue"}
WATCH = {"id": "seen", "python": {"call": "x:y"}}
STARTED = "status = 'started'"

DAMAGE = {
    "DELETE FROM tasks WHERE trigger_id IS NOT NULL AND status = 'running'": "which does not exist",
    "UPDATE tasks SET trigger_id = 'tested:seen' WHERE status = 'running'"
    " AND trigger_id = 'tested:it'": "its task names tested:seen",
    "UPDATE tasks SET trigger_id = NULL WHERE status = 'running'": "its task names None",
    "DELETE FROM firings WHERE status = 'started'": "no firing names it",
    "UPDATE firings SET task_id = (SELECT min(task_id) FROM firings) WHERE status = 'started'": (
        "2 firings name it, and they are no batch"
    ),
    "UPDATE firings SET count = 3 WHERE status = 'started'": "neither one firing nor a range",
    "UPDATE firings SET count = 0 WHERE until_at IS NOT NULL": "neither one firing nor a range",
    "UPDATE firings SET until_at = nominal_at WHERE until_at IS NOT NULL": (
        "neither one firing nor a range"
    ),
    "UPDATE triggers SET status = 'removed', removed_at = 1, next_at = NULL"
    " WHERE kind = 'schedule'": "1 of its firings are queued",
    "UPDATE firings SET input = NULL": "cannot start as it is",
    "UPDATE firings SET due_at = NULL WHERE status = 'queued'": "cannot start as it is",
    "UPDATE triggers SET owner = 'daemon'": "both are set or neither is",
    "UPDATE triggers SET next_at = NULL": "is active and is never polled again",
    "UPDATE triggers SET next_at = NULL WHERE kind = 'schedule'": "is due at None for the instant",
    "UPDATE triggers SET next_at = next_at - 1 WHERE kind = 'schedule'": "before its instant",
    "UPDATE triggers SET last_nominal = next_nominal": "every instant up to",
    "UPDATE triggers SET status = 'paused'": "is paused without a reason",
    "UPDATE triggers SET status = 'paused', pause_reason = 'x'": "is paused until None, and due",
    "UPDATE triggers SET status = 'broken'": "is broken, and due at",
    "UPDATE triggers SET status = 'broken', next_at = NULL": "is broken without a problem",
    "UPDATE triggers SET removed_at = 1": "its time of removal is 1",
    "DELETE FROM firings WHERE until_at IS NOT NULL": (
        "no fate is recorded for 2027-01-15T09:00:00.000Z, 2027-01-15T10:00:00.000Z"
    ),
    "UPDATE firings SET until_at = until_at - 1, count = 2 WHERE until_at IS NOT NULL": (
        "no fate is recorded for 2027-01-15T11:00:00.000Z"
    ),
}
"""A change behind the engine's back, and what the checker says."""


def fill(bench: TriggerBench) -> None:
    """Record a missed range, a run that has ended, an open and a queued one, and a watcher."""
    bench.define(SCHEDULE, watch=(WATCH,))
    bench.at(4 * HOUR)
    bench.run_pass()
    bench.end(bench.task_ids()[0])
    for hour in (5, 6):
        bench.at(hour * HOUR)
        bench.run_pass()
    assert bench.fates() == [
        (HOUR, 3 * HOUR, "missed", 3),
        (4 * HOUR, "started"),
        (5 * HOUR, "started"),
        (6 * HOUR, "queued"),
    ]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(sqlite_database: Database, damage: str) -> None:
    """Each change of a row behind the engine's back is a violation that says what is wrong."""
    bench = TriggerBench(sqlite_database)
    fill(bench)
    bench.close()
    assert find_violations(sqlite_database) == []
    with sqlite_database.connect("writer") as tx:
        tx.execute("PRAGMA foreign_keys = OFF")
        with tx.transaction():
            tx.execute(damage)
    found = find_violations(sqlite_database)
    assert any(DAMAGE[damage] in sentence for sentence in found), found


def test_a_sound_database_of_triggers_has_no_violation(bench: TriggerBench) -> None:
    """The same questions find nothing on both databases, before and after old tasks are pruned."""
    fill(bench)
    assert find_violations(bench.database) == []
    with bench.database.connect("writer") as connection:
        assert prune(connection, BEGIN + int(5 * HOUR) * 1_000_000)["tasks"] == 1
    assert find_violations(bench.database) == []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_pruned_firings_are_no_violation(bench: TriggerBench, is_damaged: bool) -> None:
    """Instants whose firings were pruned have no fate any more; later ones must have theirs."""
    begin = int(time.time() - 30 * 86_400) - BEGIN // SECOND
    bench.at(begin)
    bench.define({**SCHEDULE, "catch_up": "none"})
    for hour in range(2, 21, 2):
        bench.at(begin + hour * HOUR + 120)
        bench.run_pass()
    with bench.database.connect("writer") as connection:
        pruned = firing_pruning.prune_in_steps(
            connection, bench.now - 5 * int(HOUR) * SECOND, bench.now + 2 * DAY_US
        )
        assert sum(count for _, count in pruned) == 7
    assert [fate[-1] for fate in bench.fates()] == [2, 2, 2]
    assert find_violations(bench.database) == []
    if is_damaged:
        with bench.database.connect("writer") as tx, tx.transaction():
            tx.execute(
                "DELETE FROM firings WHERE nominal_at > :at", at=bench.now - 3 * HOUR * SECOND
            )
        assert "no fate is recorded" in find_violations(bench.database)[0]
        # The fixture finds a sound database at the end.
        with bench.database.connect("writer") as tx, tx.transaction():
            tx.execute("DELETE FROM triggers")
