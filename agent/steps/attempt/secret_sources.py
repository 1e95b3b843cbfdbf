"""Where the secrets of this process come from, as its configuration says.

`env:` and `file:` are read at once. `keyring:` and `exec:` may take long, because a person may have to
confirm: each is read in a thread of its own, once for all that wait for it, and kept for a while, so
that a prompt does not appear for every step.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.core.files.environment_file import EnvironmentFile, EnvironmentFileError

if TYPE_CHECKING:
    from concurrent.futures import Future

FAILURE_SECONDS: Final = 10.0
"""How long a failure is kept: steps that start together must not ask a person several times."""
_MOST_HANGING: Final = 4
"""Reads of one source that never returned, at most; no further one starts then."""


class SecretReadError(Exception):
    """A secret cannot be read; the message names where it should be, never its value."""


Reader = Callable[[str], str]
"""Reads the secret of a name, and may block; raises `SecretReadError`."""


class _Read:
    """One read of one secret, in a thread of its own."""

    __slots__ = ("ended_at", "future", "started_at")

    def __init__(self, started_at: float) -> None:
        from concurrent.futures import Future

        self.started_at = started_at
        self.future: Future[str] = Future()
        self.ended_at = 0.0


class SlowReads:
    """Reads secrets in threads, each once at a time, and keeps the results; any thread may use it."""

    def __init__(self) -> None:
        self.readers: dict[str, Reader] = {}
        """By source."""
        self.timeout_seconds = 60.0
        self.cache_seconds = 300.0
        self._lock = threading.Lock()
        self._reads: dict[tuple[str, str], _Read] = {}
        self._hanging: dict[str, int] = {}

    def start(self, source: str, name: str) -> "Future[str]":
        """Return the future of a secret: a kept result, the read that is under way, or a new one."""
        now = time.monotonic()
        with self._lock:
            read = self._reads.get((source, name))
            if read is not None and self._is_current(read, now):
                return read.future
            if self._hanging.get(source, 0) >= _MOST_HANGING and read is not None:
                return read.future
            read = self._reads[source, name] = _Read(now)
            self._hanging[source] = self._hanging.get(source, 0) + 1
        read.future.set_running_or_notify_cancel()
        try:
            threading.Thread(
                target=self._run, args=(source, name, read), name=f"secret-{source}", daemon=True
            ).start()
        except RuntimeError as error:
            self._end(source, read)
            read.future.set_exception(SecretReadError(f"no thread can be started: {error}"))
        return read.future

    def seconds_left(self, source: str, name: str) -> float:
        """Return how long to wait for the read that is under way."""
        with self._lock:
            read = self._reads.get((source, name))
        if read is None:
            return 0.0
        return max(0.0, read.started_at + self.timeout_seconds - time.monotonic())

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._reads.clear()

    def _is_current(self, read: _Read, now: float) -> bool:
        if not read.future.done():
            # After a while another read may have more luck than the one that hangs.
            return now - read.started_at < self.timeout_seconds + self.cache_seconds
        failed = read.future.exception() is not None
        kept_seconds = min(FAILURE_SECONDS, self.cache_seconds) if failed else self.cache_seconds
        return now - read.ended_at < kept_seconds

    def _run(self, source: str, name: str, read: _Read) -> None:
        try:
            reader = self.readers.get(source)
            if reader is None:
                raise SecretReadError(f"this process has no source {source}:")
            value = reader(name)
        except SecretReadError as error:
            self._end(source, read)
            read.future.set_exception(error)
        except BaseException as error:  # a library's defect must not leave its callers waiting
            self._end(source, read)
            # Its text may contain anything.
            read.future.set_exception(
                SecretReadError(f"{source}:{name} cannot be read: {type(error).__name__}")
            )
        else:
            self._end(source, read)
            read.future.set_result(value)

    def _end(self, source: str, read: _Read) -> None:
        with self._lock:
            self._hanging[source] -= 1
            read.ended_at = time.monotonic()


class SecretSources:
    """The sources of one process."""

    def __init__(self) -> None:
        self._environment_file: EnvironmentFile | None = None
        self._slow = SlowReads()
        self._set_up: Callable[[], None] | None = None

    def set_up_with(self, set_up: Callable[[], None]) -> None:
        """Let a function set the sources up before they are first used."""
        self._set_up = set_up

    @property
    def environment_file(self) -> EnvironmentFile | None:
        """The `.env` file."""
        self._be_ready()
        return self._environment_file

    @environment_file.setter
    def environment_file(self, file: EnvironmentFile | None) -> None:
        self._environment_file = file

    @property
    def slow(self) -> SlowReads:
        """The sources that may take long."""
        self._be_ready()
        return self._slow

    def _be_ready(self) -> None:
        set_up, self._set_up = self._set_up, None
        if set_up is not None:
            set_up()

    def environment_value(self, name: str) -> str | None:
        """Return a variable: of the real environment, else of the `.env` file; None without one.

        Raises `SecretReadError` if the file would be needed and cannot be used.
        """
        value = os.environ.get(name)
        if value is not None or self.environment_file is None:
            return value
        try:
            return self.environment_file.get(name)
        except EnvironmentFileError as error:
            raise SecretReadError(
                f"the environment variable {name} is not set, and {error}"
            ) from None

    def wait(self, source: str, name: str) -> str:
        """Return a secret of a slow source; this blocks. Raises `SecretReadError`."""
        from concurrent.futures import TimeoutError as FutureTimeoutError

        future = self.slow.start(source, name)
        try:
            return future.result(self.slow.seconds_left(source, name))
        except FutureTimeoutError:
            raise self.overdue(source, name) from None

    def overdue(self, source: str, name: str) -> SecretReadError:
        """Return the error of a read that takes too long."""
        return SecretReadError(
            f"{source}:{name} was not read within {self.slow.timeout_seconds:g} s; it may wait for"
            " a person to confirm or to unlock it (timeout_seconds in [secrets])"
        )


sources: Final = SecretSources()
"""The sources of this process; `agent.bootstrap` sets them up."""
