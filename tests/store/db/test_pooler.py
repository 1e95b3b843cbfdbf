"""PostgreSQL behind a connection pooler that gives each transaction to any session."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from agent.store import backup
from agent.store.db.database import Database, StoreError
from agent.store.schema import migrate
from agent.workflows.graph import Fanout
from tests.support.engine import Engine, find_violations, graph, other, step
from tests.support.postgres_pooler import pgbouncer, pooled


@pytest.fixture(params=["own", "pgbouncer"])
def pooled_url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """Return the address of a fresh database behind a pooler in transaction mode."""
    # A socket's path has about a hundred characters, and PgBouncer's user must reach it.
    with tempfile.TemporaryDirectory(prefix="agent-pool-") as name:
        directory = Path(name)
        if request.param == "own":
            with pooled(postgres_url, directory) as (_, url):
                yield url
            return
        with pgbouncer(postgres_url, directory) as found:
            if found is None:
                pytest.skip("PgBouncer is not installed")
            yield found


def test_tasks_of_every_shape_run(pooled_url: str) -> None:
    """Two workers share tasks through the pooler; each ends correctly, exactly once."""
    database = Database(pooled_url)
    engines = [Engine(database), Engine(database)]
    try:
        wide = step("all", "echo", given={"value": 1}, after=["a"], fanout=Fanout(count=30))
        line = [step(f"s{n}", after=[f"s{n - 1}"] if n else []) for n in range(5)]
        shapes = [
            graph(step("a", "echo"), wide, step("z", after=["all"]), name="wide"),
            graph(*line, name="line"),
            graph(other("nap", "wait", config={"duration": 0.1}), step("b", after=["nap"])),
        ]
        tasks = [engines[n % 2].submit(shape) for n in range(10) for shape in shapes]
        for task_id in tasks:
            engines[0].wait(task_id, "succeeded")
    finally:
        for engine in engines:
            engine.stop()
            engine.close()
    assert find_violations(database) == []


def test_a_pooler_is_recognized(pooled_url: str, postgres_url: str) -> None:
    """By the process id that the server reports on connect; a pooler's matches no session."""
    for url, is_pooled in ((pooled_url, True), (postgres_url, False)):
        with Database(url).connect("writer") as connection:
            assert connection.is_pooled is is_pooled


_SHOWN = "SELECT current_setting('synchronous_commit'), current_setting('enable_seqscan')"


def test_the_settings_are_set_in_each_transaction(pooled_url: str, postgres_url: str) -> None:
    """Whatever the sessions have, a commit is durable; outside a transaction too."""
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        name = direct.info.dbname
        direct.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
    with Database(pooled_url).connect("writer") as connection:
        for _ in range(6):
            with connection.transaction():
                assert connection.query(_SHOWN) == [("on", "off")]
            assert connection.query(_SHOWN) == [("on", "off")]


def test_no_state_is_left_in_the_poolers_sessions(pooled_url: str) -> None:
    """Neither settings nor prepared statements nor LISTEN stay."""
    database = Database(pooled_url)
    with database.connect("writer") as writer, database.connect("listener"):
        for _ in range(6):
            with writer.transaction():
                writer.notify()
                writer.query("SELECT count(*) FROM tasks WHERE id = :id", id="x")
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as other_client:
        for _ in range(6):
            found = other_client.execute(
                "SELECT current_setting('enable_seqscan'), current_setting('jit'),"
                " (SELECT count(*) FROM pg_prepared_statements),"
                " (SELECT count(*) FROM pg_listening_channels())"
            ).fetchone()
            assert found == ("on", "on", 0, 0)


def test_a_wait_for_notifications_ends_in_a_poll(pooled_url: str) -> None:
    """No notification comes through a pooler: after each wait the worker polls."""
    with Database(pooled_url).connect("listener") as connection:
        began = time.monotonic()
        assert connection.wait_for_notify(0.1)
        assert time.monotonic() - began >= 0.1


def test_the_schema_is_created_through_a_pooler(pooled_url: str, postgres_url: str) -> None:
    """Migrations run in one transaction, so in one session."""
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("DROP SCHEMA public CASCADE")
        direct.execute("CREATE SCHEMA public")
    database = Database(pooled_url)
    migrate.upgrade(database)
    migrate.check(database)


def test_a_backup_through_a_pooler_is_refused(pooled_url: str, tmp_path: Path) -> None:
    """pg_dump changes its session permanently, which another client would get next."""
    with pytest.raises(StoreError, match=r"connection pooler.*name the server itself"):
        backup.write(Database(pooled_url), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
