"""A start retries after a lost session or a busy database, and ends after a permanent fault."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog.testing

from agent import bootstrap, recovery
from agent.approvals import expiry
from agent.config.settings import DatabaseSettings, ServerSettings, Settings
from agent.core.files import file_descriptors
from agent.core.logs import audit
from agent.daemon import daemon, startup_retry, workflow_sync
from agent.daemon.periodic import workflow_sync_job
from agent.server.startup import Startup
from agent.store.db.database import CommitUnknownError, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate
from agent.tasks.rescue import orphan_processes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses."""
    monkeypatch.setattr(startup_retry, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(startup_retry, "_PROBE_PAUSES", (0.01, 0.01))


def failing_once(work: Callable[..., Any], failure: Callable[[], None]) -> Callable[..., Any]:
    """Return the same function, failing at its first call."""
    has_failed = False

    def once(*args: Any, **options: Any) -> Any:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            failure()
        return work(*args, **options)

    return once


def terminate_others(url: str) -> None:
    """End every other session of a PostgreSQL database, as a restart of the server does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def busy() -> None:
    """Fail like a statement that exceeded the server's timeout."""
    raise StoreError(Fault.BUSY, "canceling statement due to statement timeout")


def test_recovery_is_retried_after_a_lost_session(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recovery pass runs again on a new session."""
    lose = failing_once(orphan_processes.end, lambda: terminate_others(postgres_database.url))
    monkeypatch.setattr(orphan_processes, "end", lose)
    # The pass asks for orphans before it looks for owners again, on the session that was lost.
    with structlog.testing.capture_logs() as logs:
        asyncio.run(startup_retry.recover(postgres_database))
    assert [entry["fault"] for entry in logs if entry["event"] == "start.repeated"] == ["lost"]


def test_recovery_waits_for_a_busy_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timed-out statement is retried, with a line in the log."""
    monkeypatch.setattr(expiry, "check_due", failing_once(expiry.check_due, busy))
    with structlog.testing.capture_logs() as logs:
        asyncio.run(startup_retry.recover(database))
    assert [entry["event"] for entry in logs] == ["start.repeated"]


@pytest.mark.parametrize("fault", [Fault.CORRUPT, Fault.READONLY, Fault.DEFECT, Fault.REPLACED])
def test_a_permanent_fault_ends_the_start(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A permanent fault is not retried."""

    def fail(*_: object) -> None:
        raise StoreError(fault, "no")

    monkeypatch.setattr(recovery, "recover", fail)
    with pytest.raises(StoreError) as raised:
        asyncio.run(startup_retry.recover(sqlite_database))
    assert raised.value.fault is fault


def test_opening_is_retried_after_a_lost_session(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema is checked again."""
    current = failing_once(migrate.current, lambda: terminate_others(postgres_url))
    monkeypatch.setattr(migrate, "current", current)
    settings = Settings(base=tmp_path, database=DatabaseSettings(url=postgres_url))
    with structlog.testing.capture_logs() as logs:
        startup_retry.open_database(settings).connect("reader").close()
    assert [entry["fault"] for entry in logs] == ["lost"]


# A process of its own: libpq's ping keeps every other thread of this one from running.
STARTING = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
fields = b"SFATAL\\0VFATAL\\0C57P03\\0Mthe database system is starting up\\0\\0"
while True:
    client, _ = listener.accept()
    with client:
        client.recv(65536)
        client.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
"""


def test_a_server_that_starts_is_waited_for(postgres_url: str, tmp_path: Path) -> None:
    """With a line that says so; then the start goes on."""
    base, _, directory = postgres_url.partition("?host=")
    address = tmp_path / ".s.PGSQL.5432"
    command = [sys.executable, "-c", STARTING, str(address)]
    notes: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starting:
        assert starting.stdout is not None
        assert starting.stdout.readline() == "ready\n"

        def on_note(line: str) -> None:
            notes.append(line)
            starting.kill()
            address.unlink()
            address.symlink_to(Path(directory) / address.name)

        settings = Settings(database=DatabaseSettings(url=f"{base}?host={tmp_path}"))
        migrate.check(startup_retry.open_database(settings, on_note))
    (note,) = notes
    assert note.startswith("waiting for the database: cannot connect to PostgreSQL")
    assert note.endswith("FATAL: the database system is starting up")


def test_an_unreachable_server_ends_the_start(tmp_path: Path) -> None:
    """The address may be wrong, so the start fails at once."""
    url = f"postgresql://agent@/none?host={tmp_path}"
    settings = Settings(base=tmp_path, database=DatabaseSettings(url=url))
    with pytest.raises(StoreError, match="cannot connect"):
        startup_retry.open_database(settings)


def test_a_commit_of_unknown_result_is_not_retried() -> None:
    """A first task whose COMMIT was not acknowledged is not submitted twice."""

    def fail() -> None:
        raise CommitUnknownError(Fault.LOST, "no answer")

    with pytest.raises(CommitUnknownError):
        asyncio.run(startup_retry.with_retries(fail, is_idempotent=False))
    work = failing_once(lambda: 1, busy)
    assert asyncio.run(startup_retry.with_retries(work, is_idempotent=False)) == 1


def test_a_signal_ends_a_start_that_waits(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the first task cannot be recorded, because the disk is full."""
    monkeypatch.setattr(daemon, "_exit_after", lambda _: None)
    # These are the process's own, which goes on with other tests.
    monkeypatch.setattr(audit, "configure", lambda *_, **__: None)
    monkeypatch.setattr(file_descriptors, "raise_limit", file_descriptors.limit)
    tried = 0

    def fail() -> None:
        nonlocal tried
        tried += 1
        if tried == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        if tried == 50:
            raise RuntimeError("nothing ended it")
        raise StoreError(Fault.FULL, "no space left on device")

    async def ready(_: str | None) -> None:
        await startup_retry.with_retries(fail, is_idempotent=False)

    settings = Settings(base=tmp_path, server=ServerSettings(enabled=False))
    asyncio.run(daemon.serve(settings, sqlite_database, on_ready=ready))
    assert 2 <= tried < 50


def test_the_server_knows_when_the_workflow_files_are_recorded(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts although they could not be recorded, and is notified when they are."""
    seen: list[tuple[str, bool]] = []

    class FakeServer:
        startup = Startup()

        def start(self) -> None:
            seen.append(("started", self.startup.has_workflows))

    server = FakeServer()

    class FailingSync(workflow_sync.WorkflowSync):
        failures = 2

        def sync(self, database: Database) -> list[workflow_sync.WorkflowChange]:
            if self.failures:
                self.failures -= 1
                seen.append(("failed", server.startup.has_workflows))
                raise StoreError(Fault.FULL, "no room")
            return super().sync(database)

    monkeypatch.setattr(workflow_sync, "WorkflowSync", FailingSync)

    async def run() -> None:
        untyped_server: Any = server
        job = workflow_sync_job.WorkflowSyncJob(
            Settings(base=tmp_path), sqlite_database, untyped_server
        )
        for _ in range(3):
            assert not server.startup.has_workflows
            await job.run()

    asyncio.run(run())
    assert server.startup.has_workflows
    assert seen == [("failed", False), ("started", False), ("failed", False)]
    assert bootstrap.has_database(Settings(base=tmp_path)) is False
