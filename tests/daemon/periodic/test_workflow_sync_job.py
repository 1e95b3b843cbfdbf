"""The workflow sync as a job: what it calls after a sync, and again after a failure."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.config.settings import Settings
from agent.daemon.periodic.workflow_sync_job import WorkflowSyncJob
from agent.daemon.workflow_sync import WorkflowChange, WorkflowSync
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault

FLOW = "name: {name}\nsteps: {{one: {{wait: {wait}}}}}\n"


class Callbacks:
    """Records the calls of the job's callbacks, which fail as often as the test says."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[Any] = []
        self._failures = failures

    async def on_first_sync(self) -> None:
        self._fail()
        self.calls.append("first")

    async def on_sync(self, changes: list[WorkflowChange]) -> None:
        self._fail()
        self.calls.append([change.details["workflow"] for change in changes])

    def _fail(self) -> None:
        if self._failures:
            self._failures -= 1
            raise StoreError(Fault.LOST, "the database is away")


def write(path: Path, name: str, wait: str = "1ms") -> None:
    """Write a workflow file."""
    (path / "workflows").mkdir(exist_ok=True)
    (path / "workflows" / f"{name}.yaml").write_text(FLOW.format(name=name, wait=wait))


def made(database: Database, path: Path, callbacks: Callbacks) -> WorkflowSyncJob:
    """Return the job of a daemon without a server."""
    return WorkflowSyncJob(
        Settings(base=path),
        database,
        None,
        on_first_sync=callbacks.on_first_sync,
        on_sync=callbacks.on_sync,
    )


def test_callbacks_follow_the_first_sync_and_each_change(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """The first sync always counts; later ones only with a change."""
    callbacks = Callbacks()
    job = made(sqlite_database, tmp_path, callbacks)
    write(tmp_path, "a")
    for _ in range(2):
        asyncio.run(job.run())
    assert callbacks.calls == ["first", ["a"]]
    write(tmp_path, "b")
    (tmp_path / "workflows" / "a.yaml").unlink()
    asyncio.run(job.run())
    assert callbacks.calls[2:] == [["b", "a"]]
    again = Callbacks()
    asyncio.run(made(sqlite_database, tmp_path, again).run())
    assert again.calls == ["first"], "a restart finds nothing changed, and starts the triggers"


def test_a_sync_that_fails_calls_nothing(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sync is the first that succeeds."""
    callbacks = Callbacks()
    job = made(sqlite_database, tmp_path, callbacks)
    write(tmp_path, "a")

    def fail(*_: object) -> None:
        raise StoreError(Fault.LOST, "the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(WorkflowSync, "sync", fail)
        asyncio.run(job.run())
    assert callbacks.calls == []
    asyncio.run(job.run())
    assert callbacks.calls == ["first", ["a"]]


def test_callbacks_that_fail_are_called_again(sqlite_database: Database, tmp_path: Path) -> None:
    """With all changes since, although no file has changed: none may be lost."""
    callbacks = Callbacks(failures=2)
    job = made(sqlite_database, tmp_path, callbacks)
    write(tmp_path, "a")
    with pytest.raises(StoreError):
        asyncio.run(job.run())
    write(tmp_path, "b")
    with pytest.raises(StoreError):
        asyncio.run(job.run())
    assert callbacks.calls == []
    asyncio.run(job.run())
    assert callbacks.calls == ["first", ["a", "b"]]
