"""The checker finds damage of work, leases and snapshots."""

import pytest

from agent.store.db.database import Database
from agent.tasks import checker
from tests.support.engine import Hand, HandClock, graph
from tests.support.work_bench import WorkBench, worker_step

DAMAGE = {
    "waits on work that is not open": "DELETE FROM work WHERE status = 'queued'",
    "does not wait on it": 'UPDATE steps SET waiting_on = \'{"signal": "go"}\''
    " WHERE id = (SELECT step_id FROM work WHERE status = 'running')",
    "pieces of open work": "UPDATE work SET status = 'queued', ended_at = NULL,"
    " step_id = (SELECT step_id FROM work WHERE status = 'queued') WHERE status = 'failed'",
    "nothing checks its lease": "UPDATE steps SET wake_at = NULL"
    " WHERE id = (SELECT step_id FROM work WHERE status = 'running')",
    "belongs to 2 pieces of work": "UPDATE work SET last_lease_id ="
    " (SELECT lease_id FROM work WHERE status = 'running') WHERE status = 'failed'",
    "in attempt 9 of 3": "UPDATE work SET attempt = 9 WHERE status = 'failed'",
    "its lease says otherwise": "UPDATE work SET started_at = NULL WHERE status = 'running'",
    "its call was not recorded": "UPDATE work SET call_id = 'gone' WHERE status = 'running'",
    "and the step is waiting": "UPDATE work SET status = 'completed' WHERE status = 'failed'",
    "continues none": "UPDATE context_snapshots SET parent = 'gone'",
    "snapshots and": "DELETE FROM events WHERE type = 'context_snapshot.appended'",
}


@pytest.mark.parametrize("sentence", DAMAGE)
def test_damage_is_found(sentence: str, sqlite_database: Database) -> None:
    """Each way to break the promise is reported, in a sentence of its own."""
    sqlite_database.clock = HandClock()
    hand = Hand(sqlite_database)
    bench = WorkBench(hand)
    first, second = hand.start(graph(worker_step("a"))), hand.start(graph(worker_step("b")))
    bench.offer("a", first, is_effect=True)
    lease = bench.claim(must_start=True)
    bench.call(lease, "snapshot", text="1")
    bench.offer("b", second)
    bench.call(bench.claim(), "fail", message="no")
    hand.commit()
    bench.offer("b", second)
    with sqlite_database.connect("writer") as tx:
        assert checker.check(tx, hand.clock.now()) == []
        with tx.transaction():
            tx.execute(DAMAGE[sentence])
        found = checker.check(tx, hand.clock.now())
    hand.close()
    assert any(sentence in each for each in found), found
