"""Reports the daemon's health to the service manager."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.daemon import service_notifier

if TYPE_CHECKING:
    from agent.server.server_thread import Server
    from agent.tasks.worker.worker import Worker


class ServiceWatch:
    """Keeps the manager notified, where one has started this process."""

    def __init__(self, worker: "Worker", server: "Server | None", lease_seconds: float) -> None:
        self._worker = worker
        self._server = server
        self._lease_seconds = lease_seconds
        self._is_stopping = False
        self._notifier = service_notifier.from_environment(os.environ)
        self._notifying: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to notify, on the event loop that this vouches for."""
        if self._notifier is not None:
            self._notifying = asyncio.get_running_loop().create_task(
                service_notifier.keep_notified(
                    self._notifier, self.is_ready, self.is_alive, self.status
                )
            )

    def note_stop(self) -> None:
        """Tell the manager that the daemon stops."""
        self._is_stopping = True
        if self._notifier is not None:
            self._notifier.stopping()

    def stop(self) -> None:
        """Notify no more."""
        if self._notifying is not None:
            self._notifying.cancel()

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Tell the manager that the settings are reloaded in this block."""
        if self._notifier is not None:
            self._notifier.reloading(time.monotonic_ns() // 1000)
        try:
            yield
        finally:
            if self._notifier is not None:
                self._notifier.ready()

    def is_ready(self) -> bool:
        """Whether the worker has an identity, and the API knows the workflows."""
        has_workflows = self._server is None or self._server.startup.has_workflows
        return self._worker.last_commit > 0 and has_workflows

    def is_alive(self) -> bool:
        """Whether the database has answered the worker within the last lease.

        An idle worker commits three times as often. One that stops has a time limit of its own.
        """
        answered = max(self._worker.last_commit, self._worker.health.last_answer)
        silent_seconds = self._worker.clock.monotonic() - answered
        return self._is_stopping or silent_seconds < self._lease_seconds

    def status(self) -> str:
        """Return one line for `systemctl status`."""
        if self._is_stopping:
            return "stopping"
        problems = [message.split("\n")[0] for message in self._worker.health.messages().values()]
        return "; ".join([f"{self._worker.running} attempts in flight", *problems])
