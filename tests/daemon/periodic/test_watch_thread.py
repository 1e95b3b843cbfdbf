"""The thread in which watchers poll ends with the daemon, whatever calls it meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config.settings import Settings
from agent.daemon.periodic.trigger_jobs import WatchThread
from agent.store.db.database import Database
from agent.triggers.watch_listeners import WatchListeners

PATIENCE_SECONDS = 30


@pytest.fixture
def watch_thread(sqlite_database: Database, tmp_path: Path) -> WatchThread:
    """Return the thread, not yet started."""
    return WatchThread(Settings(base=tmp_path), sqlite_database, print, lambda: None)


def in_time(work: Callable[[], object]) -> None:
    """Fail unless a function returns; it may not keep the tests waiting."""
    has_ended = threading.Event()

    def run() -> None:
        work()
        has_ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert has_ended.wait(PATIENCE_SECONDS)


def test_calls_after_the_end_do_nothing(watch_thread: WatchThread) -> None:
    """Jobs of the daemon may still run for a moment; none may wait for a loop that has ended."""
    watch_thread.start()
    in_time(watch_thread.listen)
    in_time(watch_thread.stop)
    in_time(watch_thread.listen)
    in_time(watch_thread.start_due)
    in_time(watch_thread.stop)


def test_a_stopped_thread_is_not_started(watch_thread: WatchThread) -> None:
    """A daemon may be stopped before its first sync has ended."""
    in_time(watch_thread.stop)
    in_time(watch_thread.start)
    assert "watchers" not in {thread.name for thread in threading.enumerate()}


def test_the_end_cancels_a_call_in_progress(
    watch_thread: WatchThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller returns too."""
    has_begun, has_returned = threading.Event(), threading.Event()

    async def hang(_: WatchListeners) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    def listen() -> None:
        watch_thread.listen()
        has_returned.set()

    monkeypatch.setattr(WatchListeners, "refresh", hang)
    watch_thread.start()
    threading.Thread(target=listen, daemon=True).start()
    assert has_begun.wait(PATIENCE_SECONDS)
    in_time(watch_thread.stop)
    assert has_returned.wait(PATIENCE_SECONDS)
