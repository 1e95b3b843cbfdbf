"""Commits in flight: sent to PostgreSQL before the one ahead was answered, which may fail."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent.config.execution import EngineSettings
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch, CommitResult, JournalEntry, TxResult
from agent.tasks.commit.faults import DroppedError, FencedError
from agent.tasks.commit.pipeline import InFlightTx
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.outbox import SPLIT_AT, Outbox
from agent.tasks.worker.worker import Worker
from tests.support.engine import (
    Engine,
    Hand,
    Start,
    eventually,
    find_violations,
    graph,
    settle_of,
    step,
)
from tests.support.postgres_proxy import Proxy, proxied
from tests.support.round_trips import count_round_trips

CHAIN = graph(step("a"), step("b", after=["a"]), step("c", after=["b"]))
CAPACITY = ClaimCapacity(slots=10, running=0, lease_us=30_000_000)


@pytest.fixture
def hand(postgres_database: Database) -> Iterator[Hand]:
    """Return a worker on PostgreSQL whose commits the test makes."""
    hand = Hand(postgres_database)
    yield hand
    hand.close()
    assert find_violations(postgres_database) == []


@pytest.fixture
def distant(postgres_database: Database) -> Iterator[tuple[Proxy, Hand]]:
    """Return such a worker behind a network that may fail."""
    # Not under pytest's directory: a socket's path has about a hundred characters.
    with (
        tempfile.TemporaryDirectory(prefix="agent-proxy-") as directory,
        proxied(postgres_database.url, Path(directory)) as (proxy, url),
    ):
        hand = Hand(Database(url))
        yield proxy, hand
        hand.close()
    assert find_violations(postgres_database) == []


@pytest.fixture
def launched(postgres_database: Database) -> Iterator[Start]:
    """Return a function that starts a worker on PostgreSQL; all are stopped at the end."""
    engines: list[Engine] = []

    def launched(**settings: Any) -> Engine:
        engines.append(Engine(postgres_database, **settings))
        return engines[-1]

    yield launched
    for engine in engines:
        engine.stop()
        engine.close()
    assert find_violations(postgres_database) == []


def start(hand: Hand, count: int = 2) -> list[str]:
    """Start tasks that are cached, and whose first steps run."""
    hand.commit()
    return hand.submit(*(CHAIN for _ in range(count)))


def send(hand: Hand, task_id: str, name: str) -> InFlightTx:
    """Send the commit in which a step succeeds."""
    settle = settle_of(hand.running.pop((task_id, name)), Succeeded(name))
    return hand.committer.send(Batch(completions=[settle]), CAPACITY)


def complete(hand: Hand, tx: InFlightTx) -> CommitResult | None:
    """Wait for a transaction, and keep what it claimed as running; None if it was dropped."""
    try:
        done = hand.committer.complete(tx)
    except DroppedError:
        return None
    for claimed in done.attempts:
        hand.running[(claimed.task.id, claimed.step.name)] = claimed
    return done


def finish(hand: Hand, *task_ids: str) -> None:
    """Let everything that runs succeed until the tasks have ended."""
    for _ in range(10):
        if hand.running:
            hand.commit(
                Batch(completions=[settle_of(each, Succeeded(1)) for each in hand.running.values()])
            )
        else:
            hand.commit()
    assert {hand.status(task_id) for task_id in task_ids} == {"succeeded"}


def test_a_commit_of_cached_tasks_is_one_round_trip(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read first: the assumptions are checked by the statements that write."""
    start(hand, 1)
    seen = count_round_trips(monkeypatch)
    hand.succeed("a")
    assert len(seen) == 1
    hand.start(CHAIN)
    assert len(seen) == 2
    assert hand.names() == ["a", "b"]


def test_two_commits_are_in_flight(hand: Hand) -> None:
    """The second is sent before the first is answered; both are committed, in their order."""
    one, two = start(hand)
    first, second = send(hand, one, "a"), send(hand, two, "a")
    assert first.is_unconfirmed
    assert second.is_unconfirmed
    assert complete(hand, first) is not None
    assert complete(hand, second) is not None
    assert hand.names() == ["b", "b"]
    assert (first.tx_number + 1, second.tx_number) == (
        second.tx_number,
        hand.committer.session.tx_number,
    )
    finish(hand, one, two)


def test_a_commit_may_be_about_a_task_of_an_unconfirmed_commit(hand: Hand) -> None:
    """A task whose last commit is not confirmed is not cached: it is read behind that commit."""
    pair = graph(step("a"), step("b"), step("c", after=["a", "b"]))
    hand.commit()
    task_id = hand.start(pair)
    first, second = send(hand, task_id, "a"), send(hand, task_id, "b")
    assert not second.is_unconfirmed
    assert complete(hand, first) is not None
    assert complete(hand, second) is not None
    assert hand.names() == ["c"]
    finish(hand, task_id)


def test_a_task_changed_by_another_process_is_read_again(hand: Hand) -> None:
    """The first commit is stale and is made again from the rows; the second is dropped."""
    one, two = start(hand)
    hand.operator.pause(one)
    kept = hand.running[(two, "a")]
    first, second = send(hand, one, "a"), send(hand, two, "a")
    assert complete(hand, first) is not None
    assert hand.names() == []
    assert complete(hand, second) is None
    assert second.is_dropped
    hand.running[(two, "a")] = kept
    hand.operator.resume(one)
    hand.commit()
    finish(hand, one, two)


def test_a_contended_task_is_not_cached_for_a_while(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated stale commits would cost more than reading it."""
    (task_id,) = start(hand, 1)
    hand.operator.pause(task_id)
    hand.operator.resume(task_id)
    hand.succeed("a")
    seen = count_round_trips(monkeypatch)
    hand.succeed("b")
    assert len(seen) == 2


def test_a_changed_step_changes_its_tasks_row(hand: Hand) -> None:
    """Other workers notice any change by the version of the task's row."""
    (task_id,) = start(hand, 1)
    version = "SELECT xmin::text FROM tasks WHERE id = :id"
    before = hand.rows(version, id=task_id)
    claimed = hand.claimed("a")
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, checkpoint="1")]))
    assert hand.rows(version, id=task_id) != before


def test_a_new_workflow_version_is_noticed(hand: Hand, postgres_database: Database) -> None:
    """A workflow that another process has changed starts tasks of the new version."""
    hand.start(CHAIN)
    changed = graph(step("other"), name=CHAIN.name)
    hand.operator.submit(Submission(graph=changed))
    again = hand.start(CHAIN)
    rows = hand.rows("SELECT workflow_version FROM tasks WHERE id = :id", id=again)
    assert rows == [(3,)]


def test_a_worker_that_was_declared_dead_commits_nothing(
    hand: Hand, postgres_database: Database
) -> None:
    """Neither of its commits in flight changes anything, whichever was sent first."""
    one, two = start(hand)
    with postgres_database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE workers SET dead = 1 WHERE id = :id", id=hand.committer.worker_id)
    first, second = send(hand, one, "a"), send(hand, two, "a")
    with pytest.raises(FencedError):
        complete(hand, first)
    assert complete(hand, second) is None
    assert hand.rows("SELECT DISTINCT status FROM steps ORDER BY 1") == [("pending",), ("running",)]


def test_a_bad_outcome_in_flight_fails_only_its_own_step(hand: Hand) -> None:
    """The outcome is replaced by the reason, and the others are committed."""
    one, two = start(hand)
    bad = Succeeded(1)
    bad.text = '"\x00"'
    settle = settle_of(hand.running.pop((one, "a")), bad)
    kept = hand.running[(two, "a")]
    first = hand.committer.send(Batch(completions=[settle]), CAPACITY)
    second = send(hand, two, "a")
    assert complete(hand, first) is not None
    if complete(hand, second) is None:
        hand.running[(two, "a")] = kept
    assert hand.status(one) == "failed"
    finish(hand, two)


def test_two_commits_whose_answers_are_lost(
    distant: tuple[Proxy, Hand], postgres_database: Database
) -> None:
    """Both were committed: the worker's own row shows it, and nothing is sent again."""
    proxy, hand = distant
    one, two = start(hand)
    before = hand.committer.session.tx_number
    proxy.may_answer.clear()
    first, second = send(hand, one, "a"), send(hand, two, "a")
    wait_for_commit(postgres_database, hand, before + 2)
    proxy.lose = b"COMMIT\0"
    proxy.may_answer.set()
    assert complete(hand, first) is not None
    assert complete(hand, second) is not None
    assert hand.names() == ["b", "b"]
    proxy.lose = None
    finish(hand, one, two)


def test_only_the_first_of_two_commits_arrives(
    distant: tuple[Proxy, Hand], postgres_database: Database
) -> None:
    """The second never reached the server: it is dropped, and may be sent again."""
    proxy, hand = distant
    one, two = start(hand)
    before = hand.committer.session.tx_number
    kept = hand.running[(two, "a")]
    proxy.may_answer.clear()
    first = send(hand, one, "a")
    wait_for_commit(postgres_database, hand, before + 1)
    proxy.deafen()
    second = send(hand, two, "a")
    proxy.lose = b"COMMIT\0"
    proxy.may_answer.set()
    assert complete(hand, first) is not None
    assert complete(hand, second) is None
    assert hand.committer.session.tx_number == before + 1
    hand.running[(two, "a")] = kept
    proxy.lose = None
    finish(hand, one, two)


def test_neither_of_two_commits_arrives(
    distant: tuple[Proxy, Hand], postgres_database: Database
) -> None:
    """The connection counts as lost, and both may be sent again."""
    proxy, hand = distant
    one, two = start(hand)
    running = dict(hand.running)
    proxy.deafen()
    first, second = send(hand, one, "a"), send(hand, two, "a")
    with psycopg.connect(postgres_database.url, autocommit=True) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'agent worker' AND datname = current_database()"
        )
    with pytest.raises(StoreError, match="not known"):
        complete(hand, first)
    assert complete(hand, second) is None
    hand.running = running
    finish(hand, one, two)


def test_a_failed_commit_is_no_heartbeat(postgres_database: Database) -> None:
    """The next commit is due as if there had been none: other workers wait for a heartbeat."""

    async def take_in() -> None:
        worker = Worker(postgres_database, EngineSettings())
        busy = StoreError(Fault.BUSY, "locked by another process")
        await worker._handle([(InFlightTx(Batch(), CAPACITY), busy)])
        assert worker._is_commit_due()
        await worker._handle([(InFlightTx(Batch(), CAPACITY), CommitResult(TxResult()))])
        assert not worker._is_commit_due()
        worker.database_thread.close()

    asyncio.run(take_in())


def test_a_large_batch_is_sent_as_two_halves() -> None:
    """One half is computed while the other is written; a small batch is sent at once."""
    outbox = Outbox()
    for _ in range(SPLIT_AT):
        outbox.add_submission(Submission(graph=CHAIN))
    assert len(outbox.take(is_half=True).submissions) == SPLIT_AT // 2
    assert len(outbox.take(is_half=True).submissions) == SPLIT_AT // 2
    assert outbox.is_empty


def test_a_busy_worker_loses_nothing_with_its_connections(
    postgres_database: Database, launched: Start
) -> None:
    """Connections end again and again during commits: every step runs once, in order."""
    engine = launched(slots=100)
    task_ids: list[str] = []
    with psycopg.connect(postgres_database.url, autocommit=True) as server:
        for _ in range(8):
            works = [
                asyncio.run_coroutine_threadsafe(
                    engine.worker.submit(Submission(graph=CHAIN)), engine.loop
                )
                for _ in range(60)
            ]
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'agent worker' AND datname = current_database()"
            )
            task_ids += [work.result(60) for work in works]
    for task_id in task_ids:
        engine.wait(task_id, "succeeded")
    counts = engine.rows(
        "SELECT type, count(*) FROM events WHERE type LIKE 'step.%' GROUP BY type ORDER BY type"
    )
    assert ("step.succeeded", 3 * len(task_ids)) in counts


def wait_for_commit(database: Database, hand: Hand, number: int) -> None:
    """Wait until the server has made a commit, by reading the worker's row."""
    with database.connect("reader") as reader:
        eventually(lambda: workers.turn_of(reader, hand.committer.worker_id) == number)
