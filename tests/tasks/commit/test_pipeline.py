"""Turns in the air: sent to PostgreSQL before the one ahead was answered, and what if that fails."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent.config.settings import EngineSettings
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.pg_pipeline import PgPipeline
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch, CommitResult, JournalEntry, TxResult
from agent.tasks.commit.faults import DroppedError, FencedError
from agent.tasks.commit.pipeline import InFlightTx
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.outbox import MUCH, Outbox
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

CHAIN = graph(step("a"), step("b", after=["a"]), step("c", after=["b"]))
ROOM = ClaimCapacity(slots=10, running=0, lease_us=30_000_000)


@pytest.fixture
def hand(postgres_database: Database) -> Iterator[Hand]:
    """Return a worker on PostgreSQL whose turns are made by hand."""
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
    """Start tasks that are remembered, and whose first steps run."""
    hand.turn()
    return hand.submit(*(CHAIN for _ in range(count)))


def send(hand: Hand, task_id: str, name: str) -> InFlightTx:
    """Send the turn in which a step succeeds."""
    settle = settle_of(hand.running.pop((task_id, name)), Succeeded(name))
    return hand.committer.send(Batch(completions=[settle]), ROOM)


def complete(hand: Hand, tx: InFlightTx) -> CommitResult | None:
    """Wait for a transaction, and keep what it claimed as running; None if it was dropped."""
    try:
        done = hand.committer.complete(tx)
    except DroppedError:
        return None
    for claimed in done.attempts:
        hand.running[(claimed.task.id, claimed.step.name)] = claimed
    return done


def count_exchanges(monkeypatch: pytest.MonkeyPatch) -> list[PgPipeline]:
    """Count round trips from now on."""
    seen: list[PgPipeline] = []
    send = PgPipeline.send

    def counted(wire: PgPipeline) -> Any:
        seen.append(wire)
        return send(wire)

    monkeypatch.setattr(PgPipeline, "send", counted)
    return seen


def finish(hand: Hand, *task_ids: str) -> None:
    """Let everything that runs succeed until the tasks have ended."""
    for _ in range(10):
        if hand.running:
            hand.turn(
                Batch(completions=[settle_of(each, Succeeded(1)) for each in hand.running.values()])
            )
        else:
            hand.turn()
    assert {hand.status(task_id) for task_id in task_ids} == {"succeeded"}


def test_a_turn_of_remembered_tasks_is_one_exchange(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked: what is taken for granted travels with what is written."""
    start(hand, 1)
    seen = count_exchanges(monkeypatch)
    hand.succeed("a")
    assert len(seen) == 1
    hand.start(CHAIN)
    assert len(seen) == 2
    assert hand.names() == ["a", "b"]


def test_two_turns_are_in_the_air(hand: Hand) -> None:
    """The second is sent before the first is answered; both land, in their order."""
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


def test_a_turn_may_be_about_a_task_that_is_unconfirmed(hand: Hand) -> None:
    """What is not remembered, since its last turn has not landed, is read behind that turn."""
    pair = graph(step("a"), step("b"), step("c", after=["a", "b"]))
    hand.turn()
    task_id = hand.start(pair)
    first, second = send(hand, task_id, "a"), send(hand, task_id, "b")
    assert not second.is_unconfirmed
    assert complete(hand, first) is not None
    assert complete(hand, second) is not None
    assert hand.names() == ["c"]
    finish(hand, task_id)


def test_what_somebody_has_changed_is_read(hand: Hand) -> None:
    """The first turn is stale, and is made again from what is there; the second is given up."""
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
    hand.turn()
    finish(hand, one, two)


def test_a_task_that_others_work_on_too_is_not_remembered_for_a_while(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being wrong about it again and again would cost more than reading it."""
    (task_id,) = start(hand, 1)
    hand.operator.pause(task_id)
    hand.operator.resume(task_id)
    hand.succeed("a")
    seen = count_exchanges(monkeypatch)
    hand.succeed("b")
    assert len(seen) == 2


def test_a_steps_change_shows_in_its_tasks_row(hand: Hand) -> None:
    """By the row's version others notice it, whatever it is that changed."""
    (task_id,) = start(hand, 1)
    version = "SELECT xmin::text FROM tasks WHERE id = :id"
    before = hand.rows(version, id=task_id)
    claimed = hand.claimed("a")
    hand.turn(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, checkpoint="1")]))
    assert hand.rows(version, id=task_id) != before


def test_a_newer_version_is_noticed(hand: Hand, postgres_database: Database) -> None:
    """A workflow that another process has changed meanwhile starts tasks as it is now."""
    hand.start(CHAIN)
    changed = graph(step("other"), name=CHAIN.name)
    hand.operator.submit(Submission(graph=changed))
    again = hand.start(CHAIN)
    rows = hand.rows("SELECT workflow_version FROM tasks WHERE id = :id", id=again)
    assert rows == [(3,)]


def test_a_worker_that_was_declared_dead_lands_nothing(
    hand: Hand, postgres_database: Database
) -> None:
    """Neither of its turns changes anything, whichever was sent first."""
    one, two = start(hand)
    with postgres_database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE workers SET dead = 1 WHERE id = :id", id=hand.committer.worker_id)
    first, second = send(hand, one, "a"), send(hand, two, "a")
    with pytest.raises(FencedError):
        complete(hand, first)
    assert complete(hand, second) is None
    assert hand.rows("SELECT DISTINCT status FROM steps ORDER BY 1") == [("pending",), ("running",)]


def test_what_cannot_be_stored_ends_its_own_step_alone(hand: Hand) -> None:
    """A bad outcome in the air is found, replaced by the reason, and takes no other with it."""
    one, two = start(hand)
    bad = Succeeded(1)
    bad.text = '"\x00"'
    settle = settle_of(hand.running.pop((one, "a")), bad)
    kept = hand.running[(two, "a")]
    first = hand.committer.send(Batch(completions=[settle]), ROOM)
    second = send(hand, two, "a")
    assert complete(hand, first) is not None
    if complete(hand, second) is None:
        hand.running[(two, "a")] = kept
    assert hand.status(one) == "failed"
    finish(hand, two)


def test_both_landed_and_no_answer_came(
    distant: tuple[Proxy, Hand], postgres_database: Database
) -> None:
    """The worker's own row says so: nothing is sent again, and everything goes on."""
    proxy, hand = distant
    one, two = start(hand)
    before = hand.committer.session.tx_number
    proxy.may_answer.clear()
    first, second = send(hand, one, "a"), send(hand, two, "a")
    wait_for_turn(postgres_database, hand, before + 2)
    proxy.lose = b"COMMIT\0"
    proxy.may_answer.set()
    assert complete(hand, first) is not None
    assert complete(hand, second) is not None
    assert hand.names() == ["b", "b"]
    proxy.lose = None
    finish(hand, one, two)


def test_only_the_first_landed(distant: tuple[Proxy, Hand], postgres_database: Database) -> None:
    """The second never reached the server: it is given up, and may be sent again."""
    proxy, hand = distant
    one, two = start(hand)
    before = hand.committer.session.tx_number
    kept = hand.running[(two, "a")]
    proxy.may_answer.clear()
    first = send(hand, one, "a")
    wait_for_turn(postgres_database, hand, before + 1)
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


def test_neither_landed(distant: tuple[Proxy, Hand], postgres_database: Database) -> None:
    """What never reached the server is told as a lost connection, and may be sent again."""
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


def test_a_turn_that_failed_is_no_heartbeat(postgres_database: Database) -> None:
    """The next one is due as if it had not been: others wait for a sign of life."""

    async def take_in() -> None:
        worker = Worker(postgres_database, EngineSettings())
        busy = StoreError(Fault.BUSY, "somebody is in the way")
        await worker._handle([(InFlightTx(Batch(), ROOM), busy)])
        assert worker._is_commit_due()
        await worker._handle([(InFlightTx(Batch(), ROOM), CommitResult(TxResult()))])
        assert not worker._is_commit_due()
        worker.database_thread.close()

    asyncio.run(take_in())


def test_much_is_sent_as_two_halves() -> None:
    """So that one half is computed while the other is written; little is sent at once."""
    outbox = Outbox()
    for _ in range(MUCH):
        outbox.add_submission(Submission(graph=CHAIN))
    assert len(outbox.take(is_half=True).submissions) == MUCH // 2
    assert len(outbox.take(is_half=True).submissions) == MUCH // 2
    assert outbox.is_empty


def test_a_busy_worker_loses_nothing_with_its_connections(
    postgres_database: Database, launched: Start
) -> None:
    """Connections end again and again in the middle of turns: every step runs once, in order."""
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


def wait_for_turn(database: Database, hand: Hand, number: int) -> None:
    """Wait until the server has committed a turn, asking it directly."""
    with database.connect("reader") as reader:
        eventually(lambda: workers.turn_of(reader, hand.committer.worker_id) == number)
