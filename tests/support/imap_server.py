"""A real IMAP server on loopback, in memory: pymap, in a thread of its own."""

import asyncio
import socket
import ssl
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import Any
from weakref import WeakSet

from imap_tools import MailBoxUnencrypted
from proxyprotocol.reader import ProxyProtocolReader
from pymap.backend.dict import DictBackend
from pymap.imap import IMAPServer as PymapServer
from pysasl.hashing import BuiltinHash

USER, PASSWORD = "ann@example.org", "correct horse battery"


def mail_keys(port: int, folder: str = "INBOX", **changed: Any) -> dict[str, Any]:
    """Return a compiled `mail` block; the password is expected in `MAIL_PASSWORD`."""
    return {
        "host": "127.0.0.1",
        "port": port,
        "user": USER,
        "password": "env:MAIL_PASSWORD",
        "folder": folder,
        "tls": "none",
        "sender": None,
        "subject": None,
        "idle": True,
        **changed,
    }


def message(subject: str, sender: str = "Bob <bob@example.org>", text: str = "Hello.\n") -> bytes:
    """Return a message as it is delivered."""
    written = EmailMessage()
    written["Subject"], written["From"], written["To"] = subject, sender, USER
    written.set_content(text)
    return bytes(written)


class ImapServer:
    """One account; each connection is counted."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def account(self) -> Iterator[MailBoxUnencrypted]:
        """Log in as the account's owner, to deliver messages and to change folders."""
        # The server misses a message that arrives right after a folder was opened: open none.
        box = MailBoxUnencrypted("127.0.0.1", self.port, timeout=10)
        with box.login(USER, PASSWORD, initial_folder=None):
            # A message is sent in two parts; the second must not wait for an acknowledgement.
            box.client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield box

    def deliver(self, *messages: bytes, folder: str = "INBOX") -> None:
        """Put messages into a folder."""
        with self.account() as box:
            for message in messages:
                box.append(message, folder)

    def drop_connections(self) -> None:
        """Close every connection, as a server that restarts does."""

        def drop() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(drop)

    def run(
        self,
        started: Callable[[], None],
        starttls: ssl.SSLContext | None,
        implicit_tls: ssl.SSLContext | None,
        options: dict[str, Any],
    ) -> None:
        """Serve until `stop`; the body of the thread."""
        asyncio.set_event_loop(self._loop)
        self._loop.set_task_factory(self._kept_task)
        try:
            self._loop.run_until_complete(self._serve(started, starttls, implicit_tls, options))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _kept_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **details: Any
    ) -> asyncio.Task[Any]:
        """Make a task with a reference to it: pymap keeps none, and Python 3.13 then collects it."""
        task = asyncio.Task(coroutine, loop=loop, **details)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self) -> None:
        """End the server."""
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(
        self,
        started: Callable[[], None],
        starttls: ssl.SSLContext | None,
        implicit_tls: ssl.SSLContext | None,
        options: dict[str, Any],
    ) -> None:
        arguments = Namespace(
            host=None,
            port=0,
            debug=False,
            cert=None,
            key=None,
            tls=starttls is not None,
            proxy_protocol=None,
            passlib_cfg=None,
            demo_data=False,
            demo_user=USER,
            demo_password=PASSWORD,
        )
        backend, config = await DictBackend.init(
            arguments,
            ssl_context=starttls,
            invalid_user_sleep=0.0,
            # The usual number of rounds would take most of a test's time.
            hash_context=BuiltinHash(rounds=1),
            **options,
        )
        config.apply_context()
        serve = ProxyProtocolReader(config.proxy_protocol).get_callback(
            PymapServer(backend.login, config)
        )

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            self._writers.add(writer)
            await serve(reader, writer)

        server = await asyncio.start_server(count, "127.0.0.1", 0, ssl=implicit_tls)
        self.port = server.sockets[0].getsockname()[1]
        started()
        async with server:
            await self._stop.wait()
            # From Python 3.12 on, the end of this block waits for every connection to close.
            for writer in list(self._writers):
                writer.transport.abort()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        # A transport closes its socket in a later round of the loop.
        await asyncio.sleep(0.01)


@contextmanager
def imap_server(
    starttls: ssl.SSLContext | None = None,
    implicit_tls: ssl.SSLContext | None = None,
    **options: Any,
) -> Iterator[ImapServer]:
    """Run a server for as long as the block lasts."""
    server = ImapServer()
    started = threading.Event()
    thread = threading.Thread(
        target=server.run, args=(started.set, starttls, implicit_tls, options), daemon=True
    )
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)
