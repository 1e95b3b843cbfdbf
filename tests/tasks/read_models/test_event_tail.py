"""The event tail: every event of the log reaches each listener once, in commit order."""

import subprocess
import sys
import time
from typing import Any

import pytest

from agent.store import event_log
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import writes
from agent.store.read import views
from agent.tasks.operator.operator import Operator
from agent.tasks.read_models import event_tail
from agent.tasks.read_models.event_tail import EventTail
from tests.support.engine import Engine, eventually, graph, other

_PAUSE = """\
import sys
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
database = Database(sys.argv[1])
Operator(database, database.clock).pause(sys.argv[2], "from elsewhere")
"""

Delivered = list[tuple[Any, ...]]


def _logged(database: Database) -> list[tuple[Any, ...]]:
    with database.connect("reader") as connection, connection.snapshot():
        found, _ = event_log.events_after(connection, (0, 0), None, 100_000)
    return found


_ALL_ARE_VISIBLE = "SELECT :last < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


def _append(database: Database, *words: str) -> None:
    """Commit events, and wait until readers see them.

    On PostgreSQL any open transaction of the server, of another test too, delays that.
    """
    with database.connect("writer") as tx:
        with tx.transaction():
            writes.insert_events(tx, [(None, None, word, None, None, 1, None) for word in words])
        if not database.is_sqlite:
            ((last,),) = tx.query("SELECT max(xid) FROM events")
            eventually(lambda: tx.query(_ALL_ARE_VISIBLE, last=last) == [(True,)])


def test_listeners_get_what_operators_and_other_processes_commit(engine: Engine) -> None:
    """Events of this and of other processes are delivered once each, in the log's order."""
    task_id = engine.submit(graph(other("wait", "wait", config={"signal": "go"})))
    engine.wait_step(task_id, "wait", "waiting")
    command = [sys.executable, "-c", _PAUSE, engine.database.url, task_id]
    subprocess.run(command, check=True, timeout=60)
    operator = Operator(engine.database, engine.clock)
    operator.resume(task_id)
    operator.signal(task_id, "go")
    engine.wait(task_id, "succeeded")
    eventually(lambda: [event for event in engine.delivered_events if event[2] == "task.succeeded"])
    own = [event[2] for event in engine.delivered_events if event[0] == task_id]
    assert own[own.index("task.paused") :][:2] == ["task.paused", "task.resumed"]
    logged = _logged(engine.database)
    eventually(lambda: len(engine.delivered_events) >= len(logged))
    assert engine.delivered_events == logged


def test_a_listener_gets_only_the_types_it_asked_for(database: Database) -> None:
    """Types are filtered for each listener; pages of other types hide nothing behind them."""
    tail = EventTail(database)
    some: Delivered = []
    every: Delivered = []
    tail.subscribe(some.extend, ["wanted"])
    tail.start()
    _append(database, *["noise"] * (event_tail._PAGE + 5), "wanted")
    tail.wake()
    eventually(lambda: some)
    tail.subscribe(every.extend)
    _append(database, "noise", "wanted")
    tail.wake()
    eventually(lambda: len(some) == 2)
    tail.stop()
    assert [event[2] for event in some] == ["wanted", "wanted"]
    assert [event[2] for event in every] == ["noise", "wanted"]


def test_pages_are_delivered_whole_and_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events than a page holds arrive in order, without gaps and duplicates."""
    monkeypatch.setattr(event_tail, "_PAGE", 3)
    tail = EventTail(database)
    delivered: Delivered = []
    tail.subscribe(delivered.extend)
    _append(database, "before")
    tail.open()
    words = [f"event.{number}" for number in range(20)]
    for word in words:
        _append(database, word)
    tail.start()
    eventually(lambda: delivered and delivered[-1][2] == words[-1])
    tail.stop()
    assert [event[2] for event in delivered] == words


def test_an_outage_delays_events_and_loses_none(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the log cannot be read the cursor stays; afterwards everything is delivered."""
    tail = EventTail(database)
    delivered: Delivered = []
    tail.subscribe(delivered.extend)
    tail.open()
    failures = 0
    latest_event = views.latest_event

    def refuse(connection: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise StoreError(Fault.LOST, "the database is away")
        return latest_event(connection)

    monkeypatch.setattr(views, "latest_event", refuse)
    _append(database, "during")
    tail.start()
    eventually(lambda: delivered)
    tail.stop()
    assert [event[2] for event in delivered] == ["during"]
    assert failures > 2


def test_commits_do_not_cause_retries_of_a_failing_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without file descriptors the worker still commits: the tail does not read at every commit."""
    tail = EventTail(database)
    tail.open()
    tries: list[float] = []

    def refuse(*_: object) -> None:
        tries.append(time.monotonic())
        raise StoreError(Fault.LOST, "too many open files")

    monkeypatch.setattr(database, "connect", refuse)
    tail.start()
    eventually(lambda: tries)
    deadline = time.monotonic() + 0.9
    while time.monotonic() < deadline:
        tail.wake()
        time.sleep(0.01)
    began = time.monotonic()
    tail.stop()
    assert time.monotonic() - began < event_tail._LAST_SECONDS
    assert len(tries) <= 3


def test_events_committed_before_the_stop_are_delivered(database: Database) -> None:
    """Stopping reads the log one last time."""
    tail = EventTail(database)
    delivered: Delivered = []
    tail.subscribe(delivered.extend)
    tail.start()
    _append(database, "last")
    tail.stop()
    assert [event[2] for event in delivered] == ["last"]


def test_counts_continue_page_by_page(database: Database) -> None:
    """Counting from a cursor sees every event once, however small the pages are."""
    _append(database, *["a", "b", "a", "c", "a"])
    cursor, is_end = (0, 0), False
    counted: dict[str, int] = {}
    while not is_end:
        with database.connect("reader") as connection, connection.snapshot():
            found, cursor, is_end = event_log.count_after(connection, cursor, 2)
        for name, count in found.items():
            counted[name] = counted.get(name, 0) + count
    assert counted == {"a": 3, "b": 1, "c": 1}
