"""An artifact store that does not answer: only steps that need it wait, and report it."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from agent.core.state_machine import TaskStatus
from agent.steps.attempt.services import Limits
from agent.store.artifacts import artifact_rows, bounded_calls
from agent.store.artifacts.blobs import BlobStores
from agent.store.db.database import Database
from agent.store.engine import workers
from agent.tasks import checker
from agent.tasks.commit.blocked_steps import BlockedSteps
from agent.tasks.read_models import task_list
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow, TaskRow
from agent.tasks.worker.large_values import outages
from agent.workflows.graph import Step
from tests.support import faulty_store
from tests.support.engine import Engine, HandClock, eventually, graph, other, step
from tests.support.step_functions import Gate

LARGE = "large " * 20_000

_values = ModuleType("outage_values_under_test")
sys.modules["outage_values_under_test"] = _values


def give(name: str, value: Any, /, **options: Any) -> Step:
    """Return a step whose output is a value."""
    setattr(_values, name, lambda: value)
    return other(name, "python", config={"call": f"outage_values_under_test:{name}"}, **options)


def size_of(name: str, of: str, **options: Any) -> Step:
    """Return a step whose output is the length of another step's output."""
    config = {"call": f"outage_values_under_test:{name}", "with": {"obj": of}}
    setattr(_values, name, lambda obj: sum(1 for _ in obj))
    return other(name, "python", config=config, **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Try the store often, and leave it working."""
    monkeypatch.setattr(bounded_calls, "LONGEST_DELAY_SECONDS", 0.2)
    monkeypatch.setattr(bounded_calls, "FIRST_DELAY_SECONDS", 0.05)
    monkeypatch.setattr(outages, "RECORDED_AFTER_SECONDS", 0.2)
    yield
    faulty_store.recover()


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    """Return a worker whose large values are kept in the faulty store."""
    database.clock = HandClock()
    database.blob_stores = BlobStores(faulty_store.URL, timeout_seconds=0.3)
    engine = Engine(database, limits=Limits(artifacts_url=faulty_store.URL), shutdown_seconds=1.0)
    yield engine
    faulty_store.recover()
    engine.stop()
    with database.connect("reader") as connection:
        assert list(checker.violations(connection)) == []
    engine.close()


def isolate(engine: Engine, task_id: str, name: str) -> None:
    """Let a step run isolated, as after a crash."""
    with engine.database.connect("writer") as tx, tx.transaction():
        sql = "UPDATE steps SET alone = 1 WHERE task_id = :id AND name = :name"
        tx.execute(sql, id=task_id, name=name)
        tx.execute("UPDATE tasks SET priority = priority WHERE id = :id", id=task_id)


def store_events(engine: Engine) -> list[str]:
    """Return the events about the store, in order."""
    sql = "SELECT type FROM events WHERE type LIKE 'artifacts.%' ORDER BY id"
    return [str(kind) for (kind,) in engine.rows(sql)]


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_only_steps_that_need_the_store_wait(engine: Engine, how: str) -> None:
    """Other tasks run; the waiting step names the reason, and goes on after the outage."""
    with faulty_store.broken(how):
        stuck = engine.submit(graph(give("big", LARGE), step("next", after=["big"]), name="stuck"))
        eventually(lambda: engine.steps(stuck)["big"]["delay"])
        for _ in range(3):
            assert engine.run(graph(step("one"), step("two", after=["one"])))["output"] is not None
        delayed = engine.steps(stuck)["big"]
        assert delayed["status"] == "running"
        assert delayed["delay"]["store"] == "faulty://bucket"
        assert delayed["delay"]["error"]
        (listed,) = [
            each for each in task_list.list_tasks(engine._connection) if each["id"] == stuck
        ]
        assert listed["delay"]["store"] == "faulty://bucket"
        assert [on["step"] for on in engine.document(stuck)["waiting_on"]] == ["big"]
        assert listed["activity"] == "running", "its attempt goes on once the store answers"
        assert [*engine.worker.health.messages()] == ["artifacts faulty://bucket"]
        eventually(lambda: store_events(engine) == ["artifacts.unreachable"])
    assert engine.wait(stuck, "succeeded")["steps"][0]["delay"] is None
    assert engine.steps(stuck)["big"]["output"] == LARGE
    eventually(lambda: store_events(engine) == ["artifacts.unreachable", "artifacts.reachable"])
    assert engine.worker.health.messages() == {}


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_a_worker_starts_while_its_store_is_unavailable(database: Database, how: str) -> None:
    """A driver that connects in its constructor delays only the steps that need the store."""
    url = faulty_store.CONNECTING_URL
    database.blob_stores = BlobStores(url, timeout_seconds=0.3)
    with faulty_store.broken(how):
        engine = Engine(database, limits=Limits(artifacts_url=url))
        try:
            # The outage is known before a step needs the store.
            eventually(lambda: store_events(engine) == ["artifacts.unreachable"])
            assert [*engine.worker.health.messages()] == ["artifacts connecting://bucket"]
            assert engine.run(graph(step("one")))["status"] == "succeeded"
            stuck = engine.submit(graph(give("big", LARGE)))
            eventually(lambda: engine.steps(stuck)["big"]["delay"])
            faulty_store.recover()
            engine.wait(stuck, "succeeded")
            assert engine.steps(stuck)["big"]["output"] == LARGE
        finally:
            faulty_store.recover()
            engine.stop()
            engine.close()


def test_an_idle_worker_notices_the_end_of_an_outage(database: Database) -> None:
    """No step needs the store for that."""
    url = faulty_store.CONNECTING_URL
    database.blob_stores = BlobStores(url, timeout_seconds=0.3)
    with faulty_store.broken("raises"):
        engine = Engine(database, limits=Limits(artifacts_url=url))
        eventually(lambda: store_events(engine) == ["artifacts.unreachable"])
    try:
        eventually(lambda: store_events(engine) == ["artifacts.unreachable", "artifacts.reachable"])
        assert engine.worker.health.messages() == {}
    finally:
        engine.stop()
        engine.close()


def test_more_waiting_steps_than_slots_delay_nothing(database: Database) -> None:
    """Attempts that have ended and wait for the store hold no slot."""
    database.blob_stores = BlobStores(faulty_store.URL, timeout_seconds=0.3)
    engine = Engine(database, limits=Limits(artifacts_url=faulty_store.URL), slots=2)
    try:
        with faulty_store.broken("raises"):
            stuck = [engine.submit(graph(give("big", LARGE))) for _ in range(5)]
            eventually(lambda: all(engine.steps(each)["big"]["delay"] for each in stuck))
            assert engine.run(graph(step("one")))["status"] == "succeeded"
        for task_id in stuck:
            engine.wait(task_id, "succeeded")
    finally:
        engine.stop()
        engine.close()


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_an_unreadable_value_delays_only_the_steps_that_need_it(engine: Engine, how: str) -> None:
    """An attempt whose input is in the store waits for it; others are prepared and run."""
    task_id = engine.submit(
        graph(
            give("big", LARGE),
            other("go", "wait", config={"signal": "go"}),
            size_of("size", "{{ steps.big.output }}", after=["big", "go"]),
            step("beside", after=["go"]),
        )
    )
    engine.wait_step(task_id, "go", "waiting")
    engine.wait_step(task_id, "big", "succeeded")
    with faulty_store.broken(how):
        engine.operator.signal(task_id, "go")
        engine.wait_step(task_id, "beside", "succeeded")
        eventually(lambda: engine.steps(task_id)["size"]["delay"])
        assert engine.run(graph(step("one")))["status"] == "succeeded"
        began = time.monotonic()
        shown = engine.steps(task_id)["big"]["output"]
        assert "value unavailable: store unreachable" in shown["problem"]
        assert time.monotonic() - began < 10
    assert engine.wait(task_id, "succeeded")["output"]["size"] == len(LARGE)


def test_a_step_that_waits_for_two_values_is_on_record_until_it_starts(engine: Engine) -> None:
    """A crash meanwhile is not its own; one that comes with its first line is."""
    seen: list[Any] = []

    def look(a: Any, b: Any) -> int:
        with engine.database.connect("reader") as connection:
            seen.extend(connection.query("SELECT alone FROM steps WHERE name = 'both'"))
        return sum(1 for _ in a) + sum(1 for _ in b)

    # A function of a module is loaded once: each run of this test has its own.
    setattr(_values, f"look{id(engine)}", look)
    given = {"a": "{{ steps.a.output }}", "b": "{{ steps.b.output }}"}
    config = {"call": f"outage_values_under_test:look{id(engine)}", "with": given}
    task_id = engine.submit(
        graph(
            give("a", LARGE),
            give("b", LARGE + "x"),
            other("go", "wait", config={"signal": "go"}),
            other("both", "python", config=config, after=["a", "b", "go"]),
        )
    )
    for name, status in (("go", "waiting"), ("a", "succeeded"), ("b", "succeeded")):
        engine.wait_step(task_id, name, status)
    with faulty_store.broken("raises"):
        engine.operator.signal(task_id, "go")
        eventually(lambda: engine.rows("SELECT alone FROM steps WHERE name = 'both'") == [(3,)])
    engine.wait(task_id, "succeeded")
    assert seen == [(0,)]
    assert engine.types(task_id, "both").count("step.delayed") == 1


def test_a_task_can_be_canceled_while_its_step_waits_for_a_value(engine: Engine) -> None:
    """Its step is dropped, and does not start when the store is back."""
    task_id = engine.submit(
        graph(
            give("big", LARGE),
            other("go", "wait", config={"signal": "go"}),
            size_of("size", "{{ steps.big.output }}", after=["big", "go"]),
        )
    )
    engine.wait_step(task_id, "go", "waiting")
    engine.wait_step(task_id, "big", "succeeded")
    with faulty_store.broken("raises"):
        engine.operator.signal(task_id, "go")
        eventually(lambda: engine.steps(task_id)["size"]["delay"])
        engine.operator.cancel(task_id)
        eventually(lambda: not engine.worker.committer.blocked.steps)
    engine.wait(task_id, "canceled")


def test_a_large_result_is_recorded_before_its_outcome(engine: Engine) -> None:
    """The outcome of an attempt waits for the results of its calls, in the ledger as in the events."""
    config = {
        "call": "tests.support.step_functions:call_with_large_answer",
        "with": {"text": LARGE},
    }
    with faulty_store.broken("raises"):
        task_id = engine.submit(graph(other("it", "python", config=config)))
        eventually(lambda: engine.steps(task_id)["it"]["delay"])
        # The attempt is over; its small outcome must not overtake the large answer of its call.
        time.sleep(0.3)
        assert engine.steps(task_id)["it"]["status"] == "running"
        assert engine.rows("SELECT status FROM idempotency_outcomes") == [("unknown",)]
    assert engine.wait(task_id, "succeeded")["output"] == {"it": len(LARGE)}
    assert engine.rows("SELECT status FROM idempotency_outcomes") == [("succeeded",)]


@pytest.mark.parametrize("how", ["no thread", "no memory"])
def test_an_outcome_survives_a_lack_of_local_resources(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An error that is not the store's delays the outcome too, and does not lose it."""
    start, pack = threading.Thread.start, artifact_rows.pack
    failures = iter(range(3))

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name.startswith("store ") and next(failures, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    def pack_or_fail(*arguments: Any) -> artifact_rows.PackedContent:
        if next(failures, None) is not None:
            raise MemoryError
        return pack(*arguments)

    if how == "no thread":
        monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    else:
        monkeypatch.setattr(artifact_rows, "pack", pack_or_fail)
    task_id = engine.submit(graph(give("big", LARGE)))
    assert engine.wait(task_id, "succeeded")["output"] == {"big": LARGE}
    assert next(failures, None) is None


@pytest.mark.parametrize("ends", ["fetched", "canceled"])
def test_nothing_starts_beside_an_isolated_step_that_waits_for_a_value(
    engine: Engine, ends: str
) -> None:
    """It must run isolated as soon as its value is there."""
    task_id = engine.submit(
        graph(
            give("big", LARGE),
            other("go", "wait", config={"signal": "go"}),
            size_of("size", "{{ steps.big.output }}", after=["big", "go"]),
        )
    )
    engine.wait_step(task_id, "go", "waiting")
    engine.wait_step(task_id, "big", "succeeded")
    isolate(engine, task_id, "size")
    with faulty_store.broken("raises"):
        engine.operator.signal(task_id, "go")
        eventually(lambda: engine.steps(task_id)["size"]["delay"])
        beside = [engine.submit(graph(step("one"))) for _ in range(3)]
        time.sleep(1)
        assert [engine.steps(each)["one"]["status"] for each in beside] == ["pending"] * 3
        if ends == "canceled":
            engine.operator.cancel(task_id)
            for each in beside:
                engine.wait(each, "succeeded")
    if ends == "fetched":
        assert engine.wait(task_id, "succeeded")["output"]["size"] == len(LARGE)
        started = "SELECT name FROM steps WHERE started_at IS NOT NULL ORDER BY started_at, id"
        for each in beside:
            engine.wait(each, "succeeded")
        assert [name for (name,) in engine.rows(started)].index("size") == 2


def test_a_fetched_value_is_not_fetched_again() -> None:
    """A step that waits for two values has each read once, however long the other takes."""
    blocked = BlockedSteps()
    blocked.fetched.missing = {"a", "b"}
    task = TaskRow.new("task", TaskStatus.RUNNING, workflow_name="w", workflow_version=1)
    waiting = StepRow.new("step", "task", 0)
    blocked.add(LockedTask(task, graph(step("one")), 0), waiting, is_isolated=False)
    assert blocked.wanted == {"a", "b"}
    assert blocked.supply("a", b"content") == []
    assert blocked.wanted == {"b"}
    blocked.tidy()
    assert blocked.fetched.contents == {"a": b"content"}
    assert [each.step for each in blocked.supply("b", None)] == [waiting]
    assert blocked.wanted == set()


def test_a_large_request_waits_without_using_up_attempts(engine: Engine) -> None:
    """Nothing is sent before the request is stored; the step waits without a slot."""
    config = {"prompt": LARGE, "model": "echo", "max_tokens": 100_000}
    with faulty_store.broken("raises"):
        task_id = engine.submit(graph(other("it", "llm", config=config)))
        waiting = engine.wait_step(task_id, "it", "waiting")
        assert "connection refused by the store" in waiting["waiting_on"]["store"]
        assert engine.rows("SELECT count(*) FROM tool_calls") == [(0,)]
    engine.skip(20)
    done = engine.wait(task_id, "succeeded")
    assert done["output"] == {"it": f"[echo] {LARGE}"}
    assert done["steps"][0]["attempt"] == 1


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_values_that_wait_for_the_store_are_kept_in_the_database_at_shutdown(
    engine: Engine, how: str
) -> None:
    """A worker that stops during an outage stops in time, and loses no result and no outcome."""
    with faulty_store.broken(how):
        task_id = engine.submit(graph(give("big", LARGE)))
        eventually(lambda: engine.steps(task_id)["big"]["delay"])
        began = time.monotonic()
        engine.stop()
        assert time.monotonic() - began < 10
        assert engine.status(task_id) == "succeeded"
        assert engine.steps(task_id)["big"]["output"] == LARGE


def test_an_isolated_step_that_waits_for_its_upload_delays_nothing(engine: Engine) -> None:
    """Its attempt is over: other steps start beside it, one after the other."""
    task_id = engine.submit(
        graph(other("go", "wait", config={"signal": "go"}), give("big", LARGE, after=["go"]))
    )
    engine.wait_step(task_id, "go", "waiting")
    isolate(engine, task_id, "big")
    gate = Gate()
    with faulty_store.broken("raises"):
        engine.operator.signal(task_id, "go")
        eventually(lambda: engine.steps(task_id)["big"]["delay"])
        busy = engine.submit(graph(step("busy", "gated", given={"gate": gate.name})))
        eventually(lambda: gate.entered == 1)
        assert engine.run(graph(step("one")))["status"] == "succeeded"
        gate.open()
        engine.wait(busy, "succeeded")
    engine.wait(task_id, "succeeded")


def test_isolated_steps_that_wait_for_their_uploads_keep_every_promise(engine: Engine) -> None:
    """After a crash each runs by itself, and none is on record as isolated beside the next one."""
    go = other("go", "wait", config={"signal": "go"})
    tasks = [engine.submit(graph(go, give("big", LARGE, after=["go"]))) for _ in range(3)]
    for task_id in tasks:
        engine.wait_step(task_id, "go", "waiting")
        isolate(engine, task_id, "big")
    with faulty_store.broken("raises"):
        for task_id in tasks:
            engine.operator.signal(task_id, "go")
        eventually(lambda: all(engine.steps(task_id)["big"]["delay"] for task_id in tasks))
        assert engine.rows("SELECT alone FROM steps WHERE name = 'big'") == [(3,)] * 3
        with engine.database.connect("reader") as connection:
            assert list(checker.violations(connection)) == []
    for task_id in tasks:
        engine.wait(task_id, "succeeded")


def test_an_attempt_that_is_over_behind_its_large_result_is_on_record(engine: Engine) -> None:
    """Its outcome is small and waits for the result of its call, which waits for the store."""
    config = {
        "call": "tests.support.step_functions:call_with_large_answer",
        "with": {"text": LARGE},
    }
    with faulty_store.broken("raises"):
        task_id = engine.submit(graph(other("it", "python", config=config)))
        eventually(lambda: engine.rows("SELECT alone FROM steps") == [(3,)])
        assert engine.types(task_id, "it").count("step.delayed") == 1
    engine.wait(task_id, "succeeded")


def test_a_step_that_waits_again_under_a_new_identity_reports_it_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was declared dead claims the step again, which still lacks its value.

    The download fails once more before the worker has its new identity.
    """
    database.blob_stores = BlobStores(faulty_store.URL, timeout_seconds=0.3)
    limits = Limits(artifacts_url=faulty_store.URL)
    engine = Engine(database, limits=limits, lease_seconds=1.0)
    delays = "SELECT count(*) FROM events WHERE type = 'step.delayed' AND task_id = :id"
    try:
        task_id = engine.submit(
            graph(
                give("big", LARGE),
                other("go", "wait", config={"signal": "go"}),
                size_of("size", "{{ steps.big.output }}", after=["big", "go"]),
            )
        )
        engine.wait_step(task_id, "go", "waiting")
        engine.wait_step(task_id, "big", "succeeded")
        with faulty_store.broken("raises"):
            engine.operator.signal(task_id, "go")
            eventually(lambda: engine.rows(delays, id=task_id) == [(1,)])
            enroll = engine.worker.committer.enroll

            def enroll_after_a_failure() -> None:
                # The download begins its second call when the failure of the first is reported.
                calls = faulty_store.FaultyStore.calls
                eventually(lambda: faulty_store.FaultyStore.calls >= calls + 2)
                enroll()

            monkeypatch.setattr(engine.worker.committer, "enroll", enroll_after_a_failure)
            with database.connect("writer") as tx, tx.transaction():
                workers.retire(tx, engine.worker.worker_id, engine.clock.now(), "worker.died")
            eventually(lambda: engine.rows(delays, id=task_id) == [(2,)])
        engine.wait(task_id, "succeeded")
    finally:
        faulty_store.recover()
        engine.stop()
        engine.close()


def test_the_next_worker_ends_a_recorded_outage(sqlite_database: Database) -> None:
    """It finds the outage open, reaches the store, and records the end."""
    database, url = sqlite_database, faulty_store.CONNECTING_URL
    database.blob_stores = BlobStores(url, timeout_seconds=0.3)
    with faulty_store.broken("raises"):
        first = Engine(database, limits=Limits(artifacts_url=url))
        eventually(lambda: store_events(first) == ["artifacts.unreachable"])
        first.stop()
        first.close()
    second = Engine(database, limits=Limits(artifacts_url=url))
    try:
        eventually(lambda: store_events(second) == ["artifacts.unreachable", "artifacts.reachable"])
        data = second.rows("SELECT data FROM events WHERE type LIKE 'artifacts.%' ORDER BY id")
        began, ended = (json.loads(text) for (text,) in data)
        assert began["outage"] == ended["outage"]
    finally:
        second.stop()
        second.close()
