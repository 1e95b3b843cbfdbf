"""Workers during an upgrade of the schema: compatible and breaking migrations, and the fence."""

import socket
import threading
from pathlib import Path

import pytest

from agent import upgrade
from agent.core.files.process_lock import Lock
from agent.store.db.database import Database, StoreError
from agent.store.engine import workers
from agent.store.schema import migrate
from agent.store.schema.migrate import NewerSchemaError, OlderWorkersError
from agent.tasks.commit.faults import FencedError
from tests.support.cli import Cli
from tests.support.engine import Engine, Hand, eventually, find_violations, graph, step
from tests.support.step_functions import Gate
from tests.upgrade.revisions import all_revisions, migrate_to, set_revision

EARLIER = all_revisions()[-2]
LEASE_SECONDS = 1.0


@pytest.fixture(params=["sqlite", "postgres"])
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return an empty database of the revision before the present one."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/agent.db"
    else:
        url = request.getfixturevalue("empty_postgres_url")
    migrate_to(EARLIER, url)
    return Database(url)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark the newest migration as one that older workers cannot work with."""
    monkeypatch.setattr(migrate, "BREAKING", frozenset({migrate.HEAD}))


def _enroll(database: Database, worker_id: str, host: str = "elsewhere") -> None:
    with database.connect("writer") as tx, tx.transaction():
        workers.enroll(tx, worker_id, host, 1, "earlier", database.clock.now())


def _advance(database: Database, worker_id: str) -> None:
    with database.connect("writer") as tx:
        tx.execute("UPDATE workers SET turn = turn + 1 WHERE id = :id", id=worker_id)


def _dead(database: Database) -> dict[str, int]:
    with database.connect("reader") as reader:
        return dict(reader.query("SELECT id, dead FROM workers"))


def _upgrade(database: Database, **options: object) -> None:
    upgrade.upgrade(database, lease_seconds=LEASE_SECONDS, **options)  # type: ignore[arg-type]


def test_a_compatible_upgrade_keeps_workers_alive(earlier: Database) -> None:
    """They go on and keep their claims."""
    _enroll(earlier, "w")
    _upgrade(earlier)
    migrate.check(earlier)
    assert _dead(earlier) == {"w": 0}


@pytest.mark.usefixtures("breaking")
def test_a_breaking_upgrade_is_refused_while_a_worker_commits(empty_postgres_url: str) -> None:
    """A worker of another machine that commits within a lease is alive; the message names it."""
    migrate_to(EARLIER, empty_postgres_url)
    database = Database(empty_postgres_url)
    _enroll(database, "w")
    messages: list[str] = []
    is_over = threading.Event()

    def keep_committing() -> None:
        while not is_over.wait(0.1):
            _advance(database, "w")

    committing = threading.Thread(target=keep_committing)
    committing.start()
    try:
        with pytest.raises(OlderWorkersError, match=r"process 1 on elsewhere.*--force"):
            _upgrade(database, on_note=messages.append)
    finally:
        is_over.set()
        committing.join()
    with database.connect("reader") as reader:
        assert migrate.current(reader) == EARLIER
    assert _dead(database) == {"w": 0}


@pytest.mark.usefixtures("breaking")
def test_a_breaking_upgrade_goes_on_once_silent_workers_are_dead(empty_postgres_url: str) -> None:
    """A worker of this machine without a process is dead at once; another one after a lease."""
    migrate_to(EARLIER, empty_postgres_url)
    database = Database(empty_postgres_url)
    _enroll(database, "here", socket.gethostname())
    _enroll(database, "there")
    messages: list[str] = []
    _upgrade(database, on_note=messages.append)
    migrate.check(database)
    assert _dead(database) == {"here": 1, "there": 1}
    assert messages == ["waiting up to 1 s to see whether workers on elsewhere are alive"]


@pytest.mark.usefixtures("breaking")
def test_force_fences_with_the_migration(earlier: Database) -> None:
    """When the schema is new the workers are dead, with the event that names their last commit."""
    hand = Hand(earlier)
    messages: list[str] = []
    _upgrade(earlier, must_fence=True, on_note=messages.append)
    assert [message.split(": ")[1] for message in messages] == ["declared dead, and will end"]
    migrate.check(earlier)
    assert set(_dead(earlier).values()) == {1}
    with pytest.raises(FencedError):
        hand.commit()
    ((data,),) = hand.rows("SELECT data FROM events WHERE type = 'worker.died'")
    assert hand.committer.worker_id in data
    hand.close()
    assert find_violations(earlier) == []


def test_a_file_in_use_is_not_upgraded(tmp_path: Path) -> None:
    """`agent db upgrade` and `agent up` do not change the database of a running daemon."""
    cli = Cli(tmp_path)
    path = tmp_path / "data" / "agent.db"
    path.parent.mkdir()
    migrate_to(EARLIER, f"sqlite:///{path}")
    database = Database(f"sqlite:///{path}")
    with Lock(path) as lock:
        assert lock.acquire("daemon")
        for command in (["db", "upgrade"], ["up"]):
            assert "stop it, then upgrade" in cli(*command, code=3).err
        with database.connect("reader") as reader:
            assert migrate.current(reader) == EARLIER
        cli("db", "upgrade", "--force")
    migrate.check(database)


def test_a_worker_stops_at_a_newer_schema(database: Database) -> None:
    """It releases its claims at no cost, retires, and reports which versions do not match."""
    gate = Gate()
    engine = Engine(database, lease_seconds=LEASE_SECONDS)
    task_id = engine.submit(graph(step("a", "gated", given={"gate": gate.name})))
    eventually(lambda: gate.entered == 1)
    set_revision(database, "9999")
    try:
        eventually(lambda: engine.failure is not None)
        assert isinstance(engine.failure, NewerSchemaError)
        assert str(engine.failure) == (
            f"the database needs schema 9999 or newer, this version knows {migrate.HEAD}:"
            " upgrade this worker"
        )
        assert engine.statuses(task_id) == {"a": "pending"}
        assert engine.steps(task_id)["a"]["attempt"] == 1
        assert set(_dead(database).values()) == {1}
    finally:
        engine.failure = None
        engine.close()
    set_revision(database, migrate.HEAD)
    gate.open()
    after = Engine(database)
    after.wait(task_id, "succeeded")
    after.stop()
    after.close()
    assert find_violations(database) == []


def test_a_worker_goes_on_at_a_newer_schema_that_lets_it_stay(database: Database) -> None:
    """It runs and enrolls there, commands work, and no migration is tried."""
    set_revision(database, "9999", oldest=migrate.HEAD)
    engine = Engine(database, lease_seconds=LEASE_SECONDS)
    # The schema is checked every quarter of a lease.
    for _ in range(2):
        engine.worker.peers.expect_peers()
        engine.run(graph(step("a")), "succeeded")
    engine.stop()
    engine.close()
    migrate.check(database)
    _upgrade(database)
    with database.connect("reader") as reader:
        assert migrate.current(reader) == "9999"


def test_a_fenced_worker_does_not_enroll_in_a_newer_schema(database: Database) -> None:
    """Declared dead by the upgrade, it ends instead of enrolling with another id."""
    engine = Engine(database, lease_seconds=60.0)
    eventually(lambda: engine.rows("SELECT 1 FROM workers"))
    with database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE alembic_version SET version_num = '9999'")
        workers.retire(tx, engine.worker.worker_id, database.clock.now(), "worker.died")
    engine.loop.call_soon_threadsafe(engine.worker.outbox.add_log, ("t", "s", 1, 1, "log", "x"))
    engine.loop.call_soon_threadsafe(engine.worker.wake)
    try:
        eventually(lambda: engine.failure is not None)
        assert isinstance(engine.failure, StoreError)
        assert "upgrade this worker" in str(engine.failure)
        assert engine.rows("SELECT count(*) FROM workers") == [(1,)]
    finally:
        engine.failure = None
        engine.close()
