"""Running tasks while a command waits for one: by the daemon, or by a worker in this process."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent import bootstrap
from agent.cli import private_files
from agent.cli.client.base import WorkerGoneError

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.db.database import Database

_POLL_SECONDS = 0.5


@contextmanager
def running_tasks(
    settings: "Settings", database: "Database", notify: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Keep tasks running in this block: start a worker here unless another process has one.

    Yields a check to call between two polls. It raises `WorkerGoneError` when the other process has
    ended, and what the worker of this process failed with.
    """
    from agent.daemon import database_lock
    from agent.daemon.embedded_worker import EmbeddedWorker

    _interrupt_on_signals()
    try:
        lock = database_lock.take_lock(database, "run")
    except database_lock.AlreadyRunningError:
        lock, runs_here = None, False
    else:
        # PostgreSQL has no such lock: the workers that are registered decide.
        runs_here = lock is not None or bootstrap.holder_of(database) is None
    try:
        if not runs_here:
            yield _check_of_holder(database)
            return
        private_files.require(settings, notify)
        # Where the code of steps runs, whatever the directory of the terminal is.
        os.chdir(settings.base)
        with EmbeddedWorker(settings, database) as worker:
            yield worker.check
    finally:
        if lock is not None:
            lock.release()


def _interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the command as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _check_of_holder(database: "Database") -> Callable[[], None]:
    """Return a check, at most twice a second, that another process still runs tasks."""
    checked_at = time.monotonic()

    def check() -> None:
        nonlocal checked_at
        if time.monotonic() - checked_at > _POLL_SECONDS:
            checked_at = time.monotonic()
            if bootstrap.holder_of(database) is None:
                raise WorkerGoneError

    return check
