"""The task cache between two commits: valid only as long as no other process writes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.waits import Timer
from agent.steps.types.outcome import Failed, Outcome, Retry, StepError, Succeeded, Waiting
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.tasks.commit.task_cache import MOST_STEPS, TaskCache
from agent.workflows.graph import Graph
from tests.support.effort import short_or_full
from tests.support.engine import FAILURE, RETRY, Hand, HandClock, find_violations, graph, step
from tests.support.random_graphs import graphs
from tests.support.statements import record_statements

CHAIN = graph(step("a"), step("b", after=["a"]), step("c", after=["b"]))


@pytest.fixture
def hand(sqlite_database: Database) -> Iterator[Hand]:
    """Return a worker on SQLite whose commits the test makes."""
    sqlite_database.clock = HandClock()
    hand = Hand(sqlite_database)
    yield hand
    hand.close()
    assert find_violations(sqlite_database) == []


def reads(hand: Hand, *names: str) -> list[str]:
    """Let steps succeed in one commit, and return the tables that it read from."""
    asked = record_statements(hand.committer.connection)
    hand.succeed(*names)
    selects = [sql for sql in asked if sql.startswith("SELECT")]
    return [name for name in ("tasks", "steps") if any(f" {name}" in sql for sql in selects)]


def test_a_commit_reads_nothing_that_its_worker_wrote(hand: Hand) -> None:
    """It reads neither the task nor its steps nor the due tasks, in any commit."""
    hand.start(CHAIN)
    assert reads(hand, "a") == []
    assert reads(hand, "b") == []
    assert hand.names() == ["c"]


def test_a_write_of_another_process_is_seen(hand: Hand) -> None:
    """A pause by another process holds for the very next commit, and so does its end."""
    task_id = hand.start(CHAIN)
    hand.operator.pause(task_id)
    assert "tasks" in reads(hand, "a")
    assert hand.names() == []
    hand.operator.resume(task_id)
    hand.commit()
    assert hand.names() == ["b"]


def test_other_writes_of_the_workers_connection_are_seen(hand: Hand) -> None:
    """A transaction between two commits may have changed anything: everything is read again."""
    hand.start(CHAIN)
    connection = hand.committer.connection
    with connection.transaction():
        pass
    assert reads(hand, "a") == ["tasks", "steps"]


def test_a_failed_commit_leaves_nothing_in_the_cache(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changes in memory are dropped: the same batch then works on the stored rows."""
    hand.start(CHAIN)
    connection = hand.committer.connection
    commit = connection._commit

    def refuse() -> None:
        monkeypatch.setattr(connection, "_commit", commit)
        connection._rollback()
        raise StoreError(Fault.FULL, "no room is left")

    monkeypatch.setattr(connection, "_commit", refuse)
    with pytest.raises(StoreError, match="no room"):
        hand.succeed("a")
    hand.succeed("a")
    assert hand.names() == ["b"]


def test_a_task_is_claimed_when_due_without_polling(hand: Hand) -> None:
    """A worker knows when the next task is due, and polls only then."""
    slow = graph(step("a", retry={"max_attempts": 2, "delay_seconds": 5, "jitter": False}))
    waits = hand.start(slow)
    works = hand.start(CHAIN)
    hand.settle({"a": RETRY}, waits)
    assert hand.names() == ["a"]
    asked = record_statements(hand.committer.connection)
    hand.succeed("a", task_id=works)
    assert not any("next_wake_time <=" in sql for sql in asked)
    assert isinstance(hand.clock, HandClock)
    hand.clock.skip(6)
    hand.succeed("b", task_id=works)
    assert hand.names(waits) == ["a"]


def test_a_poll_ignores_the_cache(hand: Hand) -> None:
    """If the cache were wrong, the next poll would still find what is due."""
    hand.start(CHAIN)
    hand.committer.cache._next_due = 2**62
    asked = record_statements(hand.committer.connection)
    hand.commit(must_query_due=True)
    assert any("next_wake_time <=" in sql for sql in asked)


def test_a_wide_task_is_not_cached(hand: Hand) -> None:
    """Scanning many steps in every commit would cost more than reading the two that it is about."""
    last = step("last", after=["first"])
    hand.slots = 1
    hand.start(graph(step("first"), last, *(step(f"s{n}") for n in range(MOST_STEPS))))
    assert reads(hand, "first") == ["tasks", "steps"]


class NoCache(TaskCache):
    """A cache that keeps nothing."""

    def open(self, tx: Any) -> None:
        super().open(tx)
        self._tasks.clear()
        self._next_due = 0


ERROR = StepError("no", "code", "it does not work")
OUTCOMES: list[Outcome] = [
    Succeeded(1),
    Succeeded(1),
    Succeeded(skipped="if"),
    FAILURE,
    Failed(ERROR),
    Retry(ERROR),
    Waiting(Timer(1), wake_at=1),
]

_STEPS = (
    'SELECT "index", parallel_index, status, attempt, deps_remaining, deps_failed,'
    " wake_at IS NULL, held, placed, claim_token, items_placed, items_ended, output, skip_reason"
    ' FROM steps ORDER BY "index", parallel_index'
)
_TASKS = (
    "SELECT status, phase, steps_open, steps_running, steps_failed, steps_held, places_taken,"
    " event_seq, next_wake_time IS NULL, error FROM tasks"
)
_EVENTS = "SELECT type, attempt, data FROM events WHERE task_id IS NOT NULL ORDER BY id"


@settings(
    max_examples=short_or_full(15, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(graphs(), st.data())
def test_the_cache_changes_no_result(
    sqlite_template: Path, graph: Graph, data: st.DataObject
) -> None:
    """With and without it, the same outcomes leave the same rows after every commit."""
    with TemporaryDirectory() as directory:
        hands = []
        for name, cache in (("kept", TaskCache()), ("read", NoCache())):
            path = Path(directory) / f"{name}.db"
            shutil.copyfile(sqlite_template, path)
            hand = Hand(Database(f"sqlite:///{path}", clock=HandClock()), slots=3)
            hand.committer.cache = cache
            hand.start(graph)
            hands.append(hand)
        kept, read = hands
        for _ in range(40):
            if kept.rows("SELECT 1 FROM tasks WHERE ended_at IS NOT NULL"):
                break
            names = kept.names()
            assert names == read.names()
            chosen = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
            picked = [(name, data.draw(st.sampled_from(OUTCOMES))) for name in chosen]
            if data.draw(st.integers(0, 9)) == 0:
                for hand in hands:
                    hand.operator.pause(hand.rows("SELECT id FROM tasks")[0][0])
                    hand.operator.resume(hand.rows("SELECT id FROM tasks")[0][0])
            for hand in hands:
                # Each has its own: a commit fills outcomes in.
                outcomes = {name: _outcome(hand, name, outcome) for name, outcome in picked}
                hand.settle(outcomes)
            for sql in (_STEPS, _TASKS, _EVENTS):
                assert _without_times(kept.rows(sql)) == _without_times(read.rows(sql))
        for hand in hands:
            hand.close()
            assert find_violations(hand.database) == []


def _outcome(hand: Hand, name: str, outcome: Outcome) -> Outcome:
    if hand.claimed(name).is_group:
        return Succeeded(items=[1, 2, 3])
    return Succeeded(outcome.output, outcome.skipped) if isinstance(outcome, Succeeded) else outcome


def _without_times(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Leave out what differs between two clocks and two sources of ids."""
    return [
        tuple(None if isinstance(value, str) and '"at"' in value else value for value in row)
        for row in rows
    ]
