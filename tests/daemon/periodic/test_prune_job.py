"""Pruning by the daemon: off until it is configured, bounded, and no slower to stop."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
import structlog.testing

from agent import bootstrap
from agent.config.operation import PruneSettings
from agent.config.settings import ServerSettings, Settings
from agent.core.clock import SECOND, Clock
from agent.core.files import file_descriptors
from agent.core.logs import audit
from agent.daemon import daemon
from agent.daemon.periodic import prune_job, upkeep_jobs
from agent.daemon.periodic.prune_job import PruneJob
from agent.store import free_space, pruning
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from tests.support.conversations import said_before
from tests.support.rows import insert, insert_task

DAY = 86_400
PATIENCE_SECONDS = 60


class SkippedClock(Clock):
    """A clock that the test moves."""

    skipped_seconds = 0.0

    def machine_now(self) -> int:
        return super().machine_now() + int(self.skipped_seconds * SECOND)


def fill(database: Database, ages_days: Mapping[str, float]) -> None:
    """Record tasks that ended this long ago."""
    now = database.clock.now()
    with database.connect("writer") as connection, connection.transaction():
        for task_id, age in ages_days.items():
            ended = now - int(age * DAY * SECOND)
            insert_task(connection, task_id, ended_at=ended, created_at=ended - 1)


def tasks(database: Database) -> set[str]:
    """Return the ids of all tasks."""
    with database.connect("reader") as connection:
        return {row[0] for row in connection.query("SELECT id FROM tasks")}


def made(database: Database, **given: Any) -> tuple[PruneJob, list[float]]:
    """Return a job, and where the seconds until its next runs are collected."""
    waits: list[float] = []

    def set_time(instant: int) -> None:
        waits.append(round((instant - database.clock.now()) / SECOND, 1))

    settings = PruneSettings(older_than_days=90, **given)
    return PruneJob(settings, database, set_time), waits


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a daemon run in the process of the tests, which goes on with others."""
    monkeypatch.setattr(daemon, "_exit_after", lambda _: None)
    monkeypatch.setattr(audit, "configure", lambda *_, **__: None)
    monkeypatch.setattr(file_descriptors, "raise_limit", file_descriptors.limit)
    monkeypatch.setattr(bootstrap, "collect_garbage_seldom", lambda: None)


def serve_until(
    database: Database, path: Path, settings: PruneSettings, ended: str, **given: Any
) -> None:
    """Run a daemon until it logs this event."""
    has_ended = threading.Event()

    def look(_logger: Any, _method: str, line: Any) -> Any:
        if line["event"] == ended:
            has_ended.set()
        raise structlog.DropEvent

    def stop() -> None:
        stopped_in_time.append(has_ended.wait(PATIENCE_SECONDS))
        os.kill(os.getpid(), signal.SIGTERM)

    async def ready(_: str | None) -> None:
        stopping.start()

    stopped_in_time: list[bool] = []
    stopping = threading.Thread(target=stop)
    whole = Settings(base=path, server=ServerSettings(enabled=False), prune=settings)
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[look])
    try:
        asyncio.run(daemon.serve(whole, database, on_ready=ready, **given))
    finally:
        structlog.configure(processors=before)
    stopping.join()
    assert stopped_in_time == [True]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("settings", "runs_upkeep"),
    [(PruneSettings(unused_artifacts=False), True), (PruneSettings(older_than_days=1), False)],
    ids=["turned off", "in a further worker"],
)
def test_it_is_off_until_it_is_configured(
    sqlite_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: PruneSettings,
    runs_upkeep: bool,
) -> None:
    """An upgrade removes nothing; and one process of several does it."""
    monkeypatch.setattr(prune_job, "FIRST_PAUSE_SECONDS", 0.0)
    fill(sqlite_database, {"ancient": 10_000})

    def refuse(*_: Any) -> None:
        raise AssertionError("there must be no such job")

    monkeypatch.setattr(upkeep_jobs, "PruneJob", refuse)
    # A broken file, so that the first sync logs something to wait for.
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "broken.yaml").write_text("steps: [")
    serve_until(sqlite_database, tmp_path, settings, "workflow.broken", runs_upkeep=runs_upkeep)
    assert tasks(sqlite_database) == {"ancient"}


def test_by_default_only_unused_values_in_the_database_are_removed(database: Database) -> None:
    """No task, and no value in a store outside: that may be shared."""
    fill(database, {"ancient": 10_000})
    long_ago = database.clock.now() - 2 * DAY * SECOND
    with database.connect("writer") as connection, connection.transaction():
        for name, encoding in (("inside", "json"), ("outside", "json@")):
            insert(
                connection,
                "artifacts",
                hash=name,
                encoding=encoding,
                data=b"{}",
                size=2,
                touched_at=long_ago,
            )
    PruneJob(PruneSettings(), database, lambda _: None).run()
    assert tasks(database) == {"ancient"}
    with database.connect("reader") as connection:
        assert connection.query("SELECT hash FROM artifacts") == [("outside",)]


@pytest.mark.usefixtures("in_process")
def test_a_daemon_removes_what_is_older_than_configured(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `agent db prune` would."""
    monkeypatch.setattr(prune_job, "FIRST_PAUSE_SECONDS", 0.0)
    fill(database, {"old": 91, "young": 89})
    serve_until(database, tmp_path, PruneSettings(older_than_days=90), "prune.done")
    assert tasks(database) == {"young"}


def test_a_run_is_bounded_and_continues_soon(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run removes a bounded number of rows; the interval counts from the last of them."""
    monkeypatch.setattr(prune_job, "MOST_PER_RUN", 2)
    monkeypatch.setattr(pruning, "_TASKS", 1)
    fill(database, {f"old-{number}": 100 for number in range(3)} | {"young": 1})
    job, waits = made(database, every_hours=2)
    job.start()
    with structlog.testing.capture_logs() as logs:
        job.run()
        assert len(tasks(database)) == 2
        job.run()
    assert tasks(database) == {"young"}
    assert waits == [300, 30, 7200]
    pruned = [line for line in logs if line["event"] == "prune.done"]
    assert [(line["tasks"], line["is_complete"]) for line in pruned] == [(2, False), (1, True)]


def test_a_stopped_run_ends_after_its_transaction(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the daemon could not end in time."""
    monkeypatch.setattr(pruning, "_TASKS", 1)
    # The pause after a transaction ends at once.
    monkeypatch.setattr(prune_job, "_PAUSE_SECONDS", (PATIENCE_SECONDS, PATIENCE_SECONDS))
    fill(sqlite_database, {f"old-{number}": 100 for number in range(3)})
    job, _ = made(sqlite_database)
    remove = pruning._remove_families

    def stop_meanwhile(*given: Any) -> int:
        threading.Timer(0.05, job.stop).start()
        return remove(*given)

    monkeypatch.setattr(pruning, "_remove_families", stop_meanwhile)
    began = time.monotonic()
    job.run()
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert len(tasks(sqlite_database)) == 2


def test_others_write_while_it_runs(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It spends most of its time in pauses, also while the file shrinks."""
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            return self.is_set()

    monkeypatch.setattr(pruning, "_TASKS", 1)
    monkeypatch.setattr(free_space, "_PAGES_AT_ONCE", 1)
    fill(sqlite_database, {f"old-{number}": 100 for number in range(200)})
    job, _ = made(sqlite_database)
    job._is_stopping = Stop()
    committed, began = sqlite_database.write_mark(), time.monotonic()
    job.run()
    worked = time.monotonic() - began
    transactions = sqlite_database.write_mark() - committed
    assert transactions > 200
    assert len(pauses) >= transactions
    assert sum(pauses) > 2 * worked
    assert free_space.measure(sqlite_database).free_bytes == 0  # type: ignore[union-attr]


def test_a_failed_run_is_tried_again(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler logs the failure; the next run comes after the interval."""
    job, waits = made(sqlite_database)

    def fail(*_: Any) -> None:
        raise StoreError(Fault.LOST, "away")

    monkeypatch.setattr(pruning, "prune_in_steps", fail)
    with pytest.raises(StoreError):
        job.run()
    assert waits == [DAY]


def test_a_clock_that_ran_ahead_does_not_make_tasks_old(sqlite_database: Database) -> None:
    """After a large jump it waits for a correction; a clock set back does not silence it."""
    clock = SkippedClock()
    sqlite_database.clock = clock
    fill(sqlite_database, {"young": 1, "old": 100})
    job, waits = made(sqlite_database)
    clock.skipped_seconds = 365 * DAY
    job.run()
    assert tasks(sqlite_database) == {"young", "old"}
    clock.skipped_seconds = 0.0
    job.handle_jump(-365 * DAY)
    job.run()
    assert tasks(sqlite_database) == {"young", "old"}
    job.run()
    assert tasks(sqlite_database) == {"young"}
    assert waits == [300, 300, 300, DAY]


def test_idle_conversations_are_deleted_if_configured(database: Database) -> None:
    """Those that got no message for so long; tasks stay unless they are configured too."""
    now = database.clock.now()
    said_before(database, "old", ("hello", "yes"), now=now - 40 * DAY * SECOND)
    said_before(database, "new", ("hello", "yes"), now=now)
    fill(database, {"ancient": 10_000})
    settings = PruneSettings(conversations_idle_days=30)
    assert settings.is_on and not PruneSettings(unused_artifacts=False).is_on
    PruneJob(settings, database, lambda _: None).run()
    assert tasks(database) == {"ancient"}
    with database.connect("reader") as connection:
        rows = connection.query("SELECT DISTINCT conversation FROM conversation_turns")
    assert rows == [("new",)]
