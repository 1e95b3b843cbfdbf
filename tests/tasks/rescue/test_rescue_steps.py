"""A dead worker with more steps than one transaction puts back: none is missed, none wrongly blamed."""

import pytest

from agent.store.engine import workers
from agent.tasks.rescue import rescue_steps
from agent.tasks.state.graph_cache import GraphCache
from tests.support.definitions import unreadable
from tests.support.engine import Hand, graph, step


def rescue(hand: Hand) -> int:
    """Put back the steps of a dead worker, in one pass."""
    owner = hand.committer.worker_id
    with hand.database.connect("writer") as tx:
        with tx.transaction():
            workers.retire(tx, owner, hand.clock.now(), "worker.died")
        return rescue_steps.take_over(tx, GraphCache(), hand.clock, [owner], is_process_gone=True)


def test_steps_of_unreadable_tasks_hide_no_others(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass goes past whole batches of steps that it cannot put back."""
    monkeypatch.setattr(rescue_steps, "MAX_STEPS_AT_ONCE", 2)
    bad, good = graph(step("a"), name="bad"), graph(step("a"), name="good")
    *stuck, _ = tasks = hand.submit(bad, bad, bad, bad, bad, good)
    with unreadable(hand, "bad"):
        assert rescue(hand) == 1
    assert hand.statuses(tasks[-1]) == {"a": "pending"}
    assert [hand.statuses(task_id)["a"] for task_id in stuck] == ["running"] * 5
    assert rescue(hand) == 5
