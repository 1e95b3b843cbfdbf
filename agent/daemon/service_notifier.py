"""Tells systemd how the daemon is, by the protocol of sd_notify.

`READY=1` is sent when tasks are accepted, and `WATCHDOG=1` only while the event loop runs and the worker
commits, or gets errors from the database and tries again. A daemon that hangs sends nothing, and systemd
restarts it. Outside systemd there is no `NOTIFY_SOCKET`, and nothing is sent.
"""

import asyncio
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 0.1
_STATUS_SECONDS: Final = 10.0
_PINGS_PER_WATCHDOG: Final = 3


class ServiceNotifier:
    """The socket of the service manager that started this process."""

    def __init__(self, address: str, watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds
        """How long the manager waits for `WATCHDOG=1`; None if it does not wait for it."""

    def ready(self) -> None:
        """Say that tasks are accepted: at the start, and after a reload."""
        self.send("READY=1")

    def reloading(self, monotonic_us: int) -> None:
        """Say that the settings are being reloaded; `ready` ends that."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={monotonic_us}")

    def stopping(self) -> None:
        """Say that the daemon stops."""
        self.send("STOPPING=1", "STATUS=stopping")

    def send(self, *lines: str) -> None:
        """Send a message; a manager that does not listen is no reason to stop."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.connect(self._address)
                sender.send("\n".join(lines).encode())
        except OSError as error:
            log.debug("service.not_notified", error=str(error))


def from_environment(environment: MutableMapping[str, str]) -> ServiceNotifier | None:
    """Return the notifier of the manager that started this process; None where there is none.

    The variables are removed: programs that steps start must not speak for the daemon.
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    microseconds = environment.pop("WATCHDOG_USEC", "")
    process_id = environment.pop("WATCHDOG_PID", "")
    if not address.startswith(("/", "@")):
        return None
    seconds = None
    if microseconds.isdecimal() and int(microseconds) and process_id in ("", str(os.getpid())):
        seconds = int(microseconds) / 1_000_000
    return ServiceNotifier(address, seconds)


async def keep_notified(
    notifier: ServiceNotifier,
    is_ready: Callable[[], bool],
    is_alive: Callable[[], bool],
    status: Callable[[], str],
) -> None:
    """Notify the manager until this is cancelled; runs on the event loop that it vouches for."""
    while not is_ready():  # noqa: ASYNC110  (two threads decide it, without an event)
        await asyncio.sleep(_POLL_SECONDS)
    notifier.ready()
    interval = _STATUS_SECONDS
    if notifier.watchdog_seconds is not None:
        interval = min(interval, notifier.watchdog_seconds / _PINGS_PER_WATCHDOG)
    last = ""
    while True:
        lines = ["WATCHDOG=1"] if notifier.watchdog_seconds is not None and is_alive() else []
        if (text := status()) != last:
            lines.append(f"STATUS={text}")
            last = text
        if lines:
            notifier.send(*lines)
        await asyncio.sleep(interval)
