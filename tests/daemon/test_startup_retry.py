"""A start that meets a lost session or a busy database goes on; one that cannot succeed ends."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog.testing

from agent import bootstrap, recovery
from agent.approvals import expiry
from agent.config.settings import DatabaseSettings, ServerSettings, Settings
from agent.core import audit, file_descriptors
from agent.daemon import daemon, startup_retry, workflow_sync
from agent.server.startup import Startup
from agent.store.db.database import CommitUnknownError, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate
from agent.tasks.rescue import orphan_processes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait no longer than a test has time for."""
    monkeypatch.setattr(startup_retry, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(startup_retry, "_PROBE_PAUSES", (0.01, 0.01))


def failing_once(work: Callable[..., Any], failure: Callable[[], None]) -> Callable[..., Any]:
    """Return the same work with a failure before its first time."""
    has_failed = False

    def once(*given: Any, **options: Any) -> Any:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            failure()
        return work(*given, **options)

    return once


def terminate_others(url: str) -> None:
    """End every other session of a PostgreSQL database, as a restart of the server does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def busy() -> None:
    """Fail as a statement does that took longer than the server allows."""
    raise StoreError(Fault.BUSY, "canceling statement due to statement timeout")


def test_a_session_that_is_lost_in_the_startup_pass_is_no_end(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass is run again on a new session, and comes to its end."""
    lose = failing_once(orphan_processes.end, lambda: terminate_others(postgres_database.url))
    monkeypatch.setattr(orphan_processes, "end", lose)
    # The pass asks for orphans before it looks for owners again, on the session that was lost.
    with structlog.testing.capture_logs() as told:
        asyncio.run(startup_retry.recover(postgres_database))
    assert [entry["fault"] for entry in told if entry["event"] == "start.repeated"] == ["lost"]


def test_a_busy_database_delays_the_startup_pass(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that is cut off is sent again, with a line in the log."""
    monkeypatch.setattr(expiry, "check_due", failing_once(expiry.check_due, busy))
    with structlog.testing.capture_logs() as told:
        asyncio.run(startup_retry.recover(database))
    assert [entry["event"] for entry in told] == ["start.repeated"]


@pytest.mark.parametrize("fault", [Fault.CORRUPT, Fault.READONLY, Fault.DEFECT, Fault.REPLACED])
def test_what_does_not_pass_ends_the_start(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """No start goes on without what it needs."""

    def fail(*_: object) -> None:
        raise StoreError(fault, "no")

    monkeypatch.setattr(recovery, "recover", fail)
    with pytest.raises(StoreError) as raised:
        asyncio.run(startup_retry.recover(sqlite_database))
    assert raised.value.fault is fault


def test_a_session_that_is_lost_while_the_database_is_opened_is_no_end(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema is looked at again."""
    current = failing_once(migrate.current, lambda: terminate_others(postgres_url))
    monkeypatch.setattr(migrate, "current", current)
    settings = Settings(base=tmp_path, database=DatabaseSettings(url=postgres_url))
    with structlog.testing.capture_logs() as told:
        startup_retry.open_database(settings).connect("reader").close()
    assert [entry["fault"] for entry in told] == ["lost"]


def test_a_server_that_cannot_be_reached_ends_the_start(tmp_path: Path) -> None:
    """As likely as not its address is wrong: whoever starts it is told at once."""
    url = f"postgresql://nobody@/none?host={tmp_path}"
    settings = Settings(base=tmp_path, database=DatabaseSettings(url=url))
    with pytest.raises(StoreError, match="cannot connect"):
        startup_retry.open_database(settings)


def test_what_may_have_been_done_is_not_done_again() -> None:
    """A first task whose COMMIT got no answer is not submitted twice."""

    def fail() -> None:
        raise CommitUnknownError(Fault.LOST, "no answer")

    with pytest.raises(CommitUnknownError):
        asyncio.run(startup_retry.patiently(fail, may_be_done_twice=False))
    work = failing_once(lambda: 1, busy)
    assert asyncio.run(startup_retry.patiently(work, may_be_done_twice=False)) == 1


def test_a_signal_ends_a_start_that_waits(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the first task cannot be recorded, because the disk is full."""
    monkeypatch.setattr(daemon, "_end_in_any_case", lambda _: None)
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
        await startup_retry.patiently(fail, may_be_done_twice=False)

    settings = Settings(base=tmp_path, server=ServerSettings(enabled=False))
    asyncio.run(daemon.serve(settings, sqlite_database, on_ready=ready))
    assert 2 <= tried < 50


def test_the_server_knows_when_the_workflow_files_are_on_record(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers although they could not be recorded, and learns when they are."""
    monkeypatch.setattr(daemon, "_LOOK_SECONDS", 0.01)
    seen: list[tuple[str, bool]] = []

    class FakeServer:
        startup = Startup()

        def start(self) -> None:
            seen.append(("started", self.startup.has_workflows))

    server = FakeServer()

    class FailingShelf(workflow_sync.WorkflowSync):
        failures = 2

        def sync(self, database: Database) -> list[workflow_sync.Change]:
            if self.failures:
                self.failures -= 1
                seen.append(("failed", server.startup.has_workflows))
                raise StoreError(Fault.FULL, "no room")
            return super().sync(database)

    monkeypatch.setattr(workflow_sync, "WorkflowSync", FailingShelf)

    async def watch() -> None:
        given: Any = server
        task = asyncio.create_task(
            daemon._watch_workflows(Settings(base=tmp_path), sqlite_database, given)
        )
        async with asyncio.timeout(60):
            while not (seen and server.startup.has_workflows):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(watch())
    assert seen == [("failed", False), ("started", False), ("failed", False)]
    assert bootstrap.has_database(Settings(base=tmp_path)) is False
