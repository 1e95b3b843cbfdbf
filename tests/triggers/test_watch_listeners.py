"""Listeners of watchers: what cannot be listened to is recorded, and `doctor` says so."""

import asyncio
import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.steps.attempt.services import Limits
from agent.store.db.database import Database
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.triggers import watch_listeners
from agent.triggers.health_checks import trigger_checks
from agent.triggers.watch_listeners import WatchListeners
from agent.triggers.watch_runner import WatchRunner
from agent.triggers.watchers.paths import open_watch
from tests.support.recorded_triggers import StillClock, record_workflow, trigger_row

WATCHED = """\
name: inbox
on:
  watch:
    - {id: one, path: {path: one}, every: 15m}
    - {id: two, path: {path: two}, every: 15m}
    - {id: polled, path: {path: one, poll: true}, every: 15m}
steps: {rest: {wait: 1s}}
"""
PATIENCE = 20.0


@pytest.fixture
def listened(still: Database, clock: StillClock, tmp_path: Path) -> Database:
    """Return a database with watchers of two directories."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    record_workflow(still, WATCHED, str(tmp_path / "inbox.yaml"))
    return still


def findings(database: Database) -> list[str]:
    """Return what `doctor` warns of while the agent runs."""
    with database.connect("reader") as connection:
        found = trigger_checks(connection, database.clock.now(), is_running=True)
        return [message for state, message in found if state == "warning"]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (the database sets no event)
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def listening(database: Database):  # type: ignore[no-untyped-def]
    """Listen to all watchers, as a daemon does; polls do nothing."""

    async def fire(_update: TriggerUpdate) -> FireResult:
        return FireResult("stale")

    runner = WatchRunner(database, database.clock, Limits(), fire)
    listeners = WatchListeners(runner)
    await listeners.refresh()
    try:
        yield
    finally:
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.aclose()


def test_a_refusal_is_recorded_and_taken_back(
    listened: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next daemon too, whose system watches more directories; a refusal changes no version."""
    monkeypatch.setattr(watch_listeners, "_RECORD_SECONDS", 0.01)
    before = trigger_row(listened, "inbox:one").version

    def refuse(_wanted: dict[str, int]) -> None:
        raise open_watch.WatchRefusedError("no more directories")

    def reasons() -> list[str | None]:
        return [trigger_row(listened, f"inbox:{name}").not_listening for name in ("one", "two")]

    async def refused() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(open_watch, "open_most", refuse)
            async with listening(listened):
                await until(lambda: None not in reasons())

    async def accepted() -> None:
        async with listening(listened):
            await until(lambda: reasons() == [None, None])

    asyncio.run(refused())
    assert "no more directories" in str(reasons()[0])
    (finding,) = findings(listened)
    assert finding.startswith("inbox:one and 1 more are only polled, every so often: ")
    assert "no more directories" in finding
    assert trigger_row(listened, "inbox:one").version == before
    asyncio.run(accepted())
    assert findings(listened) == []


def test_a_missing_library_is_named(listened: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """For paths that would be listened to, and not for those that are polled on purpose."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (finding,) = findings(listened)
    assert finding.startswith("inbox:one and 1 more are only polled")
    assert "python -m pip install watchfiles" in finding
