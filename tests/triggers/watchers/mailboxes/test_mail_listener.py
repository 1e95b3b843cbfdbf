import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pymap.backend.dict import Config
from pymap.config import BackendCapability

from agent.core import backoff
from agent.triggers.watchers.mailboxes import mail
from agent.triggers.watchers.mailboxes.mail import MailListener
from tests.support.imap_server import PASSWORD, ImapServer, imap_server, mail_keys, message
from tests.support.watching import poll_context


@pytest.fixture(scope="module")
def server() -> Iterator[ImapServer]:
    """Run one server for all tests here."""
    with imap_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "delay_seconds", lambda *_, **__: 0.01)


class Wakes:
    """Counts the wakes of a listener."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """What a listener calls, in the loop."""
        self.count += 1
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_for(self, count: int) -> None:
        """Wait until the listener has called this often."""
        async with asyncio.timeout(15), self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


async def _end(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_a_new_message_wakes(server: ImapServer) -> None:
    """A listener wakes once it listens, and for each delivery."""

    async def story() -> None:
        wakes = Wakes()
        listener = mail.open_listener(mail_keys(server.port))
        assert listener is not None
        listening = asyncio.create_task(listener.listen(poll_context(), wakes.wake))
        await wakes.wait_for(1)
        await asyncio.to_thread(server.deliver, message("one"))
        await wakes.wait_for(2)
        await asyncio.to_thread(server.deliver, message("two"))
        await wakes.wait_for(3)
        await _end(listening)

    _run(story)


def test_a_renewed_idle_still_listens(server: ImapServer) -> None:
    """IDLE is renewed on the same connection, without a wake."""

    async def story() -> None:
        wakes = Wakes()
        listener = MailListener(mail_keys(server.port), renew_seconds=0.05)
        before = server.connections
        listening = asyncio.create_task(listener.listen(poll_context(), wakes.wake))
        await wakes.wait_for(1)
        await asyncio.sleep(0.3)
        assert wakes.count == 1
        assert server.connections == before + 1
        await asyncio.to_thread(server.deliver, message("one"))
        await wakes.wait_for(2)
        await _end(listening)

    _run(story)


def test_a_lost_connection_is_opened_again(server: ImapServer) -> None:
    """After a reconnect the listener wakes: a message may have come in between."""

    async def story() -> None:
        wakes = Wakes()
        listener = MailListener(mail_keys(server.port))
        listening = asyncio.create_task(listener.listen(poll_context(), wakes.wake))
        await wakes.wait_for(1)
        server.drop_connections()
        await wakes.wait_for(2)
        await asyncio.to_thread(server.deliver, message("one"))
        await wakes.wait_for(3)
        await _end(listening)

    _run(story)


def test_one_connection_serves_an_account() -> None:
    """Two watchers of a folder share a connection; when one ends, the other takes over."""

    async def story(server: ImapServer) -> None:
        one, two = Wakes(), Wakes()
        context = poll_context()
        first = asyncio.create_task(MailListener(mail_keys(server.port)).listen(context, one.wake))
        await one.wait_for(1)
        second = asyncio.create_task(
            MailListener(mail_keys(server.port, subject="x")).listen(context, two.wake)
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(server.deliver, message("one"))
        await one.wait_for(2)
        await two.wait_for(1)
        # The delivery has a connection of its own.
        assert server.connections == 2
        await _end(first)
        await two.wait_for(2)
        await asyncio.to_thread(server.deliver, message("two"))
        await two.wait_for(3)
        await _end(second)

    # A server of its own: a listener of another test may still be connecting to the shared one.
    with imap_server() as server:
        _run(lambda: story(server))


def test_a_server_without_idle_has_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener ends, and polling alone finds the messages."""
    without = BackendCapability(idle=False, object_id=True, multi_append=True)
    monkeypatch.setattr(Config, "backend_capability", without)

    async def story() -> None:
        wakes = Wakes()
        with imap_server() as server:
            async with asyncio.timeout(15):
                await MailListener(mail_keys(server.port)).listen(poll_context(), wakes.wake)
        assert wakes.count == 0

    _run(story)


def test_idle_can_be_refused(server: ImapServer) -> None:
    """`idle: false` leaves a watcher without a listener."""
    assert mail.open_listener(mail_keys(server.port, idle=False)) is None


def test_a_refused_login_is_not_repeated_soon(
    server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password is tried once in five minutes, so that the server does not lock the account."""
    monkeypatch.setenv("MAIL_PASSWORD", "not the password")
    delays: list[float] = []
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        waiting.set()
        await asyncio.Event().wait()

    async def story() -> None:
        listener = MailListener(mail_keys(server.port))
        monkeypatch.setattr("agent.triggers.watchers.mailboxes.mail.asyncio.sleep", sleep)
        listening = asyncio.create_task(listener.listen(poll_context(), lambda: None))
        async with asyncio.timeout(15):
            await waiting.wait()
        await _end(listening)

    _run(story)
    assert delays == [300.0]


def test_what_listeners_share_can_be_closed(server: ImapServer) -> None:
    """A daemon that ends closes all that polls and listeners share."""

    async def story() -> None:
        wakes = Wakes()
        context = poll_context()
        listener = MailListener(mail_keys(server.port))
        listening = asyncio.create_task(listener.listen(context, wakes.wake))
        await wakes.wait_for(1)
        await _end(listening)
        assert context.resources
        for resource in context.resources.values():
            await resource.aclose()

    _run(story)
