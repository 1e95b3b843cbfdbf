"""The event log: gapless, true to the rows, readable by cursor, delivered to listeners."""

from typing import Any

import pytest

from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from agent.store.engine import writes
from agent.tasks.commit.faults import FencedError
from agent.tasks.read_models import task_documents
from agent.tasks.rules.creation import Submission
from tests.support.engine import (
    FAILURE,
    RETRY,
    Engine,
    Hand,
    eventually,
    find_violations,
    graph,
    step,
)
from tests.support.event_log import read_all, wait_until_settled
from tests.support.step_functions import Gate


def test_the_log_of_a_task_is_gapless_and_complete(hand: Hand) -> None:
    """Events are numbered 1..n, one for each change, in order."""
    task_id = hand.start(graph(step("a"), step("b", after=["a"]), step("c", after=["b"])))
    hand.settle({"a": RETRY})
    hand.succeed("a")
    hand.operator.pause(task_id, "why not")
    hand.settle({"b": FAILURE})
    hand.operator.resume(task_id)
    numbers = hand.rows("SELECT seq FROM events WHERE task_id = :id ORDER BY seq", id=task_id)
    assert [number for (number,) in numbers] == list(range(1, len(numbers) + 1))
    events = [(kind, name, attempt) for kind, name, attempt, _ in hand.events(task_id)]
    assert events == [
        ("task.created", None, None),
        ("task.started", None, None),
        ("step.claimed", "a", 1),
        ("step.retried", "a", 1),
        ("step.claimed", "a", 2),
        ("step.succeeded", "a", 2),
        ("step.claimed", "b", 1),
        ("task.paused", None, None),
        ("step.failed", "b", 1),
        ("step.skipped", "c", 1),
        ("task.resumed", None, None),
        ("task.failed", None, None),
    ]


def test_a_changed_row_is_found_by_replaying(hand: Hand) -> None:
    """The checker reports a status that no event led to."""
    task_id = hand.start(graph(step("a")))
    hand.succeed("a")
    change = "UPDATE steps SET status = :to WHERE task_id = :id"
    with hand.database.connect("writer") as tx:
        with tx.transaction():
            tx.execute(change, to="failed", id=task_id)
        found = find_violations(hand.database)
        assert any("its events lead to succeeded" in sentence for sentence in found)
        with tx.transaction():
            tx.execute(change, to="succeeded", id=task_id)


def test_pages_give_every_event_once_and_in_order(hand: Hand) -> None:
    """Whatever the page size, the log is the same; a task's filter gives only its own events."""
    first, second = hand.submit(graph(step("a"), name="one"), graph(step("b"), name="two"))
    hand.succeed("a", "b")
    wait_until_settled(hand.database)
    whole = read_all(hand.database, 1000)
    assert [event["cursor"] for event in whole] == list(
        dict.fromkeys(event["cursor"] for event in whole)
    )
    assert read_all(hand.database, 2) == whole
    for task_id in (first, second):
        own = [event for event in whole if event["task"] == task_id]
        assert read_all(hand.database, 3, task_id=task_id) == own
        assert [event["seq"] for event in own] == list(range(1, len(own) + 1))


def _append(tx: Any, word: str) -> None:
    writes.insert_events(tx, [(None, None, word, None, None, 1, None)])


def test_a_late_commit_is_never_missed(postgres_database: Database) -> None:
    """A reader between them does not skip a transaction that began first and commits last."""
    database = postgres_database
    with database.connect("writer") as slow, database.connect("writer") as quick:
        with slow.transaction():
            _append(slow, "slow.one")
            slow.query("SELECT 1")
            with quick.transaction():
                _append(quick, "quick.two")
            seen = read_all(database, 10)
            cursor = seen[-1]["cursor"] if seen else None
            assert "slow.one" not in [event["type"] for event in seen]
        wait_until_settled(database)
        with database.connect("reader") as reader:
            rest = task_documents.read_events(reader, cursor, limit=10)
    types = [event["type"] for event in [*seen, *rest]]
    assert types == ["slow.one", "quick.two"]


def test_listeners_get_stored_events_and_cannot_break_the_engine(engine: Engine) -> None:
    """Events reach listeners after their commit; a listener that raises changes nothing."""
    gate = Gate()

    def broken(_events: list[tuple[Any, ...]]) -> None:
        gate.entered += 1
        raise RuntimeError("a listener's own problem")

    engine.tail.subscribe(broken)
    done = engine.run(graph(step("a"), step("b", after=["a"])))
    assert done["status"] == "succeeded"
    stored = engine.rows(
        "SELECT task_id, seq, type FROM events WHERE task_id = :id ORDER BY seq", id=done["id"]
    )
    eventually(
        lambda: (
            len([event for event in engine.delivered_events if event[0] == done["id"]])
            >= len(stored)
        )
    )
    delivered = [event[:3] for event in engine.delivered_events if event[0] == done["id"]]
    assert delivered == stored
    assert gate.entered > 0


def test_a_task_created_by_another_process_starts_at_once(engine: Engine) -> None:
    """The worker is notified, and does not wait for its next poll."""
    task_id = engine.operator.submit(Submission(graph=graph(step("a"))))
    engine.wait(task_id, "succeeded")
    assert engine.types(task_id)[0] == "task.created"


def test_outcomes_and_their_events_commit_together(hand: Hand) -> None:
    """A commit that was rolled back leaves no event."""
    task_id = hand.start(graph(step("a"), step("b", after=["a"])))
    before = hand.types(task_id)
    hand.committer.session.tx_number += 7
    with pytest.raises(FencedError):
        hand.settle({"a": Succeeded(1)})
    assert hand.types(task_id) == before
    hand.committer.session.tx_number -= 7
    hand.succeed("a")
    hand.succeed("b")
