"""What a worker keeps in memory between turns: true as long as nobody else writes, and not longer."""

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
from tests.support.engine import FAILURE, RETRY, Hand, HandClock, find_violations, graph, step
from tests.support.random_graphs import graphs
from tests.support.statements import record_statements

CHAIN = graph(step("a"), step("b", after=["a"]), step("c", after=["b"]))


@pytest.fixture
def hand(sqlite_database: Database) -> Iterator[Hand]:
    """Return a worker on SQLite whose turns are made by hand."""
    sqlite_database.clock = HandClock()
    hand = Hand(sqlite_database)
    yield hand
    hand.close()
    assert find_violations(sqlite_database) == []


def reads(hand: Hand, *names: str) -> list[str]:
    """Let steps succeed in one turn, and return the tables that it read from."""
    asked = record_statements(hand.committer.connection)
    hand.succeed(*names)
    selects = [sql for sql in asked if sql.startswith("SELECT")]
    return [name for name in ("tasks", "steps") if any(f" {name}" in sql for sql in selects)]


def test_a_turn_reads_nothing_that_its_worker_wrote(hand: Hand) -> None:
    """Neither the task nor its steps nor what is due are asked for, turn after turn."""
    hand.start(CHAIN)
    assert reads(hand, "a") == []
    assert reads(hand, "b") == []
    assert hand.names() == ["c"]


def test_what_others_write_is_seen(hand: Hand) -> None:
    """A pause by another process holds for the very next turn, and so does its end."""
    task_id = hand.start(CHAIN)
    hand.operator.pause(task_id)
    assert "tasks" in reads(hand, "a")
    assert hand.names() == []
    hand.operator.resume(task_id)
    hand.commit()
    assert hand.names() == ["b"]


def test_what_its_connection_does_besides_turns_is_seen(hand: Hand) -> None:
    """A transaction between two turns may have changed anything: all is read again."""
    hand.start(CHAIN)
    connection = hand.committer.connection
    with connection.transaction():
        pass
    assert reads(hand, "a") == ["tasks", "steps"]


def test_a_failed_turn_leaves_nothing_in_memory(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a turn changed in memory is gone with it: the same batch again meets the record."""
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


def test_what_becomes_due_is_found_without_a_look(hand: Hand) -> None:
    """A turn knows when the next task is due, and asks only then."""
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


def test_the_poll_looks_whatever_is_remembered(hand: Hand) -> None:
    """Should the memory ever be wrong, the next look finds what is due all the same."""
    hand.start(CHAIN)
    hand.committer.cache._next_due = 2**62
    asked = record_statements(hand.committer.connection)
    hand.commit(must_poll=True)
    assert any("next_wake_time <=" in sql for sql in asked)


def test_a_wide_task_is_not_kept(hand: Hand) -> None:
    """Looking through many steps in every turn would cost more than reading the two it is about."""
    last = step("last", after=["first"])
    hand.slots = 1
    hand.start(graph(step("first"), last, *(step(f"s{n}") for n in range(MOST_STEPS))))
    assert reads(hand, "first") == ["tasks", "steps"]


class NoCache(TaskCache):
    """A memory that forgets everything at once."""

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
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(graphs(), st.data())
def test_memory_changes_nothing(sqlite_template: Path, graph: Graph, data: st.DataObject) -> None:
    """With it and without it, the same outcomes leave the same rows, turn for turn."""
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
                # Each its own: a turn fills outcomes in.
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
    """Leave out what two clocks and two sources of ids make different."""
    return [
        tuple(None if isinstance(value, str) and '"at"' in value else value for value in row)
        for row in rows
    ]
