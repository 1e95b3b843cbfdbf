"""Notices to systemd, received on a real datagram socket."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import bootstrap
from agent.config.settings import ServerSettings, Settings
from agent.core.clock import Clock
from agent.core.files import file_descriptors
from agent.core.logs import audit
from agent.daemon import daemon, service_notifier
from agent.daemon.service_notifier import ServiceNotifier, keep_notified
from agent.daemon.service_watch import ServiceWatch
from agent.store.db.database import Database
from agent.tasks.worker.health import Health

PATIENCE_SECONDS = 60.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE_SECONDS)
        yield listening


def address_of(manager: socket.socket) -> str:
    """Return the value of `NOTIFY_SOCKET`."""
    return str(manager.getsockname())


def test_the_environment_is_read_and_cleared(manager: socket.socket) -> None:
    """Programs that steps start must not speak for the daemon."""
    environment = {
        "NOTIFY_SOCKET": address_of(manager),
        "WATCHDOG_USEC": "1500000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    notifier = service_notifier.from_environment(environment)
    assert notifier is not None
    assert notifier.watchdog_seconds == 1.5
    assert environment == {"HOME": "/"}
    notifier.reloading(7)
    assert manager.recv(1000) == b"RELOADING=1\nMONOTONIC_USEC=7"
    notifier.stopping()
    assert manager.recv(1000) == b"STOPPING=1\nSTATUS=stopping"


def test_without_a_manager_nothing_is_sent() -> None:
    """And the watchdog of another process is not ours."""
    assert service_notifier.from_environment({}) is None
    assert service_notifier.from_environment({"NOTIFY_SOCKET": "vsock:2:1"}) is None
    notifier = service_notifier.from_environment(
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}
    )
    assert notifier is not None
    assert notifier.watchdog_seconds is None
    notifier.ready()


def test_an_abstract_socket_is_reached() -> None:
    """Systemd writes its name with an @."""
    name = f"agent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(PATIENCE_SECONDS)
        ServiceNotifier(f"@{name}").ready()
        assert listening.recv(100) == b"READY=1"


def test_the_watchdog_is_fed_only_while_the_daemon_lives(manager: socket.socket) -> None:
    """First READY, then pings with the status; none while commits hang, and again after that."""
    is_ready, is_alive, texts = False, True, ["busy"]

    async def story() -> list[str]:
        nonlocal is_ready, is_alive
        loop = asyncio.get_running_loop()
        manager.setblocking(False)
        notifier = ServiceNotifier(address_of(manager), watchdog_seconds=0.03)
        task = asyncio.create_task(
            keep_notified(notifier, lambda: is_ready, lambda: is_alive, lambda: texts[0])
        )

        async def received() -> str:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return (await loop.sock_recv(manager, 1000)).decode()

        is_ready = True
        heard = [await received(), await received(), await received()]
        is_alive = False
        texts[0] = "the database does not answer"
        while (message := await received()) == "WATCHDOG=1":
            pass
        heard.append(message)
        await asyncio.sleep(0.1)
        with pytest.raises(BlockingIOError):
            manager.recv(1000)
        is_alive = True
        heard.append(await received())
        task.cancel()
        return heard

    assert asyncio.run(story()) == [
        "READY=1",
        "WATCHDOG=1\nSTATUS=busy",
        "WATCHDOG=1",
        "STATUS=the database does not answer",
        "WATCHDOG=1",
    ]


class FakeWorker:
    """A worker whose last commit the test sets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.health = Health(self.clock)
        self.running = 2
        self.last_commit = self.clock.monotonic()


def test_a_silent_database_stops_the_watchdog_and_a_failing_one_does_not() -> None:
    """A worker that gets errors tries again: a restart would not help. One that hangs needs it."""
    worker = FakeWorker()
    watch = ServiceWatch(worker, None, lease_seconds=60.0)  # type: ignore[arg-type]
    assert watch.is_ready()
    assert watch.is_alive()
    worker.last_commit -= 61
    assert not watch.is_alive()
    worker.health.report("database", "connection refused", is_certain=True)
    assert not watch.is_alive(), "that was the server's request, not the worker's"
    worker.health.report("database", "connection refused")
    assert watch.is_alive()
    assert watch.status() == "2 attempts in flight; connection refused"


def test_a_reload_is_announced(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with READY, also where the settings were refused."""
    monkeypatch.setenv("NOTIFY_SOCKET", address_of(manager))
    watch = ServiceWatch(FakeWorker(), None, lease_seconds=60.0)  # type: ignore[arg-type]
    with contextlib.suppress(ValueError), watch.reloading():
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        raise ValueError
    assert manager.recv(1000) == b"READY=1"
    watch.note_stop()
    assert watch.status() == "stopping"


def test_a_daemon_notifies_its_manager(
    sqlite_database: Database,
    manager: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """READY once it accepts tasks, then pings, and STOPPING at the signal."""
    monkeypatch.setattr(daemon, "_exit_after", lambda _: None)
    monkeypatch.setattr(audit, "configure", lambda *_, **__: None)
    monkeypatch.setattr(file_descriptors, "raise_limit", file_descriptors.limit)
    monkeypatch.setattr(bootstrap, "collect_garbage_seldom", lambda: None)
    monkeypatch.setenv("NOTIFY_SOCKET", address_of(manager))
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    heard: list[str] = []

    def listen() -> None:
        heard.extend(manager.recv(1000).decode() for _ in range(3))
        os.kill(os.getpid(), signal.SIGTERM)
        while not heard[-1].startswith("STOPPING=1"):
            heard.append(manager.recv(1000).decode())

    thread = threading.Thread(target=listen)
    thread.start()
    settings = Settings(base=tmp_path, server=ServerSettings(enabled=False))
    asyncio.run(daemon.serve(settings, sqlite_database))
    thread.join(PATIENCE_SECONDS)
    assert heard[:3] == ["READY=1", "WATCHDOG=1\nSTATUS=0 attempts in flight", "WATCHDOG=1"]
    assert heard[-1] == "STOPPING=1\nSTATUS=stopping"
    assert "NOTIFY_SOCKET" not in os.environ
