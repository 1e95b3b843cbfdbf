"""What a worker commits while it can start nothing: a few transactions a second, whatever is due."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from agent.store.db.database import Database
from agent.tasks.commit.committer import Committer
from tests.support.engine import Engine, Hand, Start, eventually, graph, step
from tests.support.interventions import lose
from tests.support.step_functions import Gate

SECONDS = 2.0
MOST_A_SECOND = 10
DUE = 50


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count how often workers read what is due, in transactions of their own."""
    counted: Counter[str] = Counter()
    poll = Committer.poll

    def counting(committer: Committer, *arguments: object) -> object:
        counted["polls"] += 1
        return poll(committer, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Committer, "poll", counting)
    yield counted


def transactions(engines: list[Engine], polls: Counter[str]) -> int:
    """Return the number of transactions that workers have made until now."""
    return polls["polls"] + sum(engine.worker.committer.session.tx_number for engine in engines)


def rate(engines: list[Engine], polls: Counter[str]) -> float:
    """Return the number of transactions that workers make in a second, measured over some."""
    before, began = transactions(engines, polls), time.monotonic()
    time.sleep(SECONDS)
    return (transactions(engines, polls) - before) / (time.monotonic() - began)


def submit_due(database: Database) -> list[str]:
    """Submit tasks as other processes do."""
    hand = Hand(database)
    task_ids = hand.submit(*[graph(step("a"), name="due") for _ in range(DUE)], slots=0)
    hand.close()
    return task_ids


def test_a_worker_is_idle_while_an_isolated_step_runs(
    start: Start, checked: Database, polls: Counter[str]
) -> None:
    """Fifty due tasks wait for it, and cost next to nothing."""
    gate = Gate()
    victim = Hand(checked)
    poison = victim.start(graph(step("p", "gated", given={"gate": gate.name}), name="poisonous"))
    lose(victim)
    victim.close()
    engine = start(poll_seconds=1.0)
    eventually(lambda: gate.entered == 1)
    due = submit_due(checked)
    assert rate([engine], polls) < MOST_A_SECOND
    gate.open()
    for task_id in [poison, *due]:
        engine.wait(task_id, "succeeded")


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_is_idle_while_every_slot_is_taken(
    count: int, start: Start, checked: Database, polls: Counter[str]
) -> None:
    """Workers without a free slot do not wake each other for work that none of them can start."""
    if checked.is_sqlite and count > 1:
        pytest.skip("one process at a time runs tasks on SQLite")
    gate = Gate()
    engines = [start(poll_seconds=1.0, slots=1) for _ in range(count)]
    busy = [
        engines[0].submit(graph(step("b", "gated", given={"gate": gate.name})))
        for _ in range(count)
    ]
    eventually(lambda: gate.entered == count)
    due = submit_due(checked)
    assert rate(engines, polls) < MOST_A_SECOND * count
    gate.open()
    for task_id in [*busy, *due]:
        engines[0].wait(task_id, "succeeded")


def test_a_worker_is_idle_while_a_due_task_is_locked(
    postgres_database: Database, polls: Counter[str]
) -> None:
    """A lock that is held for long is tried seldom; other due tasks start at once."""
    (task_id, *_) = submit_due(postgres_database)
    holder = postgres_database.connect("writer")
    holder._begin()
    holder.query("SELECT id FROM tasks WHERE id = :id FOR NO KEY UPDATE", id=task_id)
    engine = Engine(postgres_database, poll_seconds=1.0)
    open_others = "SELECT count(*) FROM tasks WHERE ended_at IS NULL"
    eventually(lambda: engine.rows(open_others) == [(1,)])
    time.sleep(SECONDS)
    assert rate([engine], polls) < MOST_A_SECOND
    began = time.monotonic()
    engine.run(graph(step("a"), name="new"), "succeeded")
    assert time.monotonic() - began < MOST_A_SECOND
    holder._rollback()
    holder.close()
    engine.wait(task_id, "succeeded")
    engine.stop()
    engine.close()


def test_a_worker_is_idle_after_another_one_took_the_due_work(
    postgres_database: Database, polls: Counter[str]
) -> None:
    """It does not keep polling for work that is gone."""
    hand = Hand(postgres_database)
    (task_id,) = hand.submit(graph(step("a"), name="due"), slots=0)
    hand.close()
    holder = postgres_database.connect("writer")
    holder._begin()
    holder.query("SELECT id FROM tasks WHERE id = :id FOR NO KEY UPDATE", id=task_id)
    engine = Engine(postgres_database, poll_seconds=1.0)
    eventually(lambda: engine.worker._polls.is_backing_off)
    holder.execute("UPDATE tasks SET next_wake_time = NULL WHERE id = :id", id=task_id)
    holder._commit()
    holder.close()
    time.sleep(SECONDS)
    assert rate([engine], polls) < MOST_A_SECOND / 2
    engine.stop()
    engine.close()


def test_a_worker_is_idle_while_the_task_of_an_outcome_is_locked(
    postgres_database: Database, polls: Counter[str]
) -> None:
    """The outcome is tried seldom, and recorded once the lock is free."""
    gate = Gate()
    engine = Engine(postgres_database, poll_seconds=1.0)
    task_id = engine.submit(graph(step("a", "gated", given={"gate": gate.name})))
    eventually(lambda: gate.entered == 1)
    holder = postgres_database.connect("writer")
    holder._begin()
    holder.query("SELECT id FROM tasks WHERE id = :id FOR NO KEY UPDATE", id=task_id)
    gate.open()
    time.sleep(SECONDS)
    assert rate([engine], polls) < MOST_A_SECOND
    holder._rollback()
    holder.close()
    engine.wait(task_id, "succeeded")
    engine.stop()
    engine.close()
