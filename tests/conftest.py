"""Fixtures for everyone: fresh, migrated databases, on SQLite and on a real PostgreSQL."""

import fcntl
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import hypothesis
import psycopg
import pytest

from agent.cli import invocation
from agent.core.redaction import everywhere
from agent.steps.attempt import prepare, secret_sources, secrets
from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.postgres import shared_server

_TEMPLATE = "agent_template"

# Collection makes millions of objects that live to the end: looking for garbage among them takes half
# of its time. `pytest_collection_finish` turns the collector on again.
gc.disable()

# The same examples in every run, however slow the machine: a failure is always the code's.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")

# A shell starts jobs in the background with SIGINT ignored, and what they start inherits that: tests
# that interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each HTTP client reads every authority of the machine, which takes 50 ms of processor time. No test
# leaves the machine: one authority will do, for the processes that tests start too.
os.environ.setdefault(
    "SSL_CERT_FILE", str(Path(__file__).parent / "support" / "tls" / "unrelated_authority.pem")
)

# Commands remember what they have checked; not in the home directory of the person who runs the tests.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir(), f"agent-tests-cache-{os.getuid()}"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of daemons first: they take longest, and a run should end with short ones."""
    items.sort(key=lambda item: item.get_closest_marker("process") is None)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, among what tests make: modules and tests stay to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Forget what a test has hidden, and the options of its commands: both count for a whole process."""
    yield
    invocation.begin(None, None)
    everywhere.clear()
    secrets.secret_watcher.clear()
    secret_sources.sources.environment_file = None
    secret_sources.sources.slow.clear()
    prepare._watched.clear()


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a directory that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def postgres_server(shared_directory: Path) -> Iterator[str]:
    """Return the address of the running PostgreSQL server's own database."""
    with shared_server(shared_directory / "postgres") as address:
        yield address


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str, shared_directory: Path) -> str:
    """Return the name of a migrated database that others are copied from."""
    with (shared_directory / "postgres" / "template").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with psycopg.connect(postgres_server, autocommit=True) as server:
            exists = server.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s AND datistemplate", [_TEMPLATE]
            ).fetchone()
            if exists is None:
                server.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE} WITH (FORCE)")
                server.execute(f"CREATE DATABASE {_TEMPLATE}")
                migrate.upgrade(Database(_sibling(postgres_server, _TEMPLATE)))
                server.execute(f"ALTER DATABASE {_TEMPLATE} IS_TEMPLATE true")
    return _TEMPLATE


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """Return the address of a fresh PostgreSQL database without any table."""
    yield from _fresh_postgres(postgres_server, "template0")


@pytest.fixture
def postgres_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """Return the address of a fresh, migrated PostgreSQL database."""
    yield from _fresh_postgres(postgres_server, postgres_template)


@pytest.fixture(scope="session")
def emptied_postgres_url(postgres_server: str, postgres_template: str, worker_id: str) -> str:
    """Return the address of one migrated PostgreSQL database for all tests of this process.

    `engine_fixtures` empties it for each test: that takes a tenth of the time of making one.
    """
    name = f"emptied_{worker_id}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    return _sibling(postgres_server, name)


@pytest.fixture
def postgres_database(postgres_url: str) -> Database:
    """Return a fresh, migrated PostgreSQL database."""
    return Database(postgres_url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated SQLite file that others are copied from."""
    path = tmp_path_factory.mktemp("sqlite-template") / "agent.db"
    migrate.upgrade(Database(f"sqlite:///{path}"))
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Return the address of a fresh, migrated SQLite database."""
    path = tmp_path / "agent.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Database:
    """Return a fresh, migrated SQLite database."""
    return Database(sqlite_url)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    """Return a fresh, migrated database: each test that asks for it runs on both kinds."""
    name = f"{request.param}_database"
    found = request.getfixturevalue(name)
    assert isinstance(found, Database)
    return found


def _fresh_postgres(postgres_server: str, template: str) -> Iterator[str]:
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        # A copy of files takes half the time of one through the server's log.
        server.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    yield _sibling(postgres_server, name)
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _sibling(address: str, name: str) -> str:
    return address.replace("/postgres?", f"/{name}?", 1)
