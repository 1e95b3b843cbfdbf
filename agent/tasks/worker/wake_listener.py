"""Wake-ups for changes by other processes; polling alone would find them later."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from agent.store.db.database import Database, StoreError

CHECK_SECONDS: Final = 0.05
_CHECKS_PER_FILE_CHECK: Final = 10
"""A removed file may be noticed later than a commit of another process: each commit checks it, too."""
_PATIENCE_SECONDS: Final = 1.0


async def watch_marks(
    database: Database,
    wake: Callable[[], None],
    check_file: Callable[[], None],
    end: Callable[[StoreError], None],
) -> None:
    """On SQLite: wake the worker after a commit of another process; end it when its file is gone."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    seen = database.write_mark()
    checks = 0
    timer: asyncio.TimerHandle

    def check() -> None:
        nonlocal seen, checks, timer
        checks += 1
        try:
            if checks % _CHECKS_PER_FILE_CHECK == 0:
                check_file()
            mark = database.write_mark()
        except StoreError as error:
            ended.set_result(None)
            end(error)
            return
        except OSError:
            # The directory cannot be written: the next commit fails with that.
            mark = seen
        timer = loop.call_later(CHECK_SECONDS, check)
        if mark != seen:
            seen = mark
            wake()

    # A plain callback: a coroutine that sleeps takes half as much again, twenty times a second.
    timer = loop.call_later(CHECK_SECONDS, check)
    try:
        await ended
    finally:
        timer.cancel()


class Listener:
    """On PostgreSQL: a thread that waits for notifications and wakes the worker."""

    def __init__(self, database: Database, wake: Callable[[], None]) -> None:
        self._database = database
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread end at its next check."""
        self._is_stopped.set()

    def _listen(self) -> None:
        while not self._is_stopped.is_set():
            try:
                with self._database.connect("listener") as connection:
                    # A poll finds commits from before the connection listened.
                    self._notify()
                    while not self._is_stopped.is_set():
                        if connection.wait_for_notify(_PATIENCE_SECONDS):
                            self._notify()
            except StoreError:
                self._is_stopped.wait(_PATIENCE_SECONDS)

    def _notify(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            self._is_stopped.set()
