"""A real SMTP server on loopback: aiosmtpd, in a thread of its own, which misbehaves on demand."""

import asyncio
import gc
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as modern
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from agent.config.mail import MailSettings

USER, PASSWORD = "ann@example.org", "correct horse battery"
TLS_DIRECTORY = Path(__file__).parent / "tls"


@dataclass
class Received:
    """One message that the server accepted."""

    sender: str
    recipients: list[str]
    raw: bytes
    options: list[str]

    @property
    def message(self) -> EmailMessage:
        """The message, parsed as a mail program does."""
        parsed = message_from_bytes(self.raw, policy=modern)
        assert isinstance(parsed, EmailMessage)
        return parsed


@dataclass
class Behaviour:
    """How the server answers; a test changes it."""

    recipients: dict[str, str] = field(default_factory=dict)
    """The reply to each address that is refused."""
    data: list[str] = field(default_factory=list)
    """Replies to the end of DATA, used up one by one; then messages are accepted."""
    sender: str | None = None
    disconnect: str | None = None
    """`mail`: at MAIL. `before`: after DATA's 354, before the message was read. `after`: once the
    message was accepted, instead of the reply. `silent`: then it never replies."""
    is_kept_when_broken: bool = True
    """Whether a message whose reply is lost was accepted."""
    login: str | None = None


class SmtpServer:
    """Counts what arrived, and answers by its `behaviour`."""

    def __init__(self) -> None:
        self.port = 0
        self.behaviour = Behaviour()
        self.received: list[Received] = []
        self.on_received: Callable[[Received], None] | None = None
        """Called for each message before it is acknowledged, as a provider that files sent mail."""
        self.logins: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    def reset(self) -> None:
        """Forget what arrived, and behave well again."""
        self.behaviour = Behaviour()
        self.received.clear()
        self.logins.clear()
        self.on_received = None

    @property
    def ids(self) -> list[str]:
        """The `Message-ID` of each message that arrived."""
        return [each.message["Message-ID"] for each in self.received]

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        """Check a login."""
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login.decode())
        if self.behaviour.login is not None:
            return AuthResult(success=False, handled=False, message=self.behaviour.login)
        is_right = (data.login.decode(), data.password.decode()) == (USER, PASSWORD)
        return AuthResult(success=is_right, handled=False)

    async def handle_MAIL(  # noqa: N802 - aiosmtpd's own name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Answer MAIL."""
        if self.behaviour.disconnect == "mail":
            _abort(server)
        if self.behaviour.sender is not None:
            return self.behaviour.sender
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Answer RCPT."""
        if address in self.behaviour.recipients:
            return self.behaviour.recipients[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Answer the end of DATA."""
        if self.behaviour.data:
            return self.behaviour.data.pop(0)
        broken = self.behaviour.disconnect
        if broken is None or self.behaviour.is_kept_when_broken:
            content = envelope.content
            assert isinstance(content, bytes)
            received = Received(
                envelope.mail_from or "", list(envelope.rcpt_tos), content, envelope.mail_options
            )
            self.received.append(received)
            if self.on_received is not None:
                await asyncio.to_thread(self.on_received, received)
        if broken == "after":
            _abort(server)
        if broken == "silent":
            await asyncio.Event().wait()
        return "250 2.0.0 queued as 1"

    def run(self, started: Callable[[], None], tls: ssl.SSLContext | None, options: Any) -> None:
        """Serve until `stop`; the body of the thread."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(started, tls, options))
        finally:
            self._loop.close()

    def stop(self) -> None:
        """End the server."""
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(
        self, started: Callable[[], None], tls: ssl.SSLContext | None, options: Any
    ) -> None:
        transports: list[Any] = []

        def protocol() -> SMTP:
            made = _BreakingSmtp(
                self,
                self,
                authenticator=self.authenticate,
                auth_require_tls=False,
                loop=self._loop,
                hostname="mail.example.org",
                **{"enable_SMTPUTF8": True, **options},
            )
            transports.append(made)
            return made

        server = await self._loop.create_server(protocol, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        started()
        await self._stop.wait()
        server.close()
        for made in transports:
            _abort(made)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)


def _abort(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.Transport):
        server.transport.abort()


class _BreakingSmtp(SMTP):
    """aiosmtpd's protocol, which may end the connection in the middle of DATA."""

    def __init__(self, owner: SmtpServer, *arguments: Any, **options: Any) -> None:
        self._owner = owner
        super().__init__(*arguments, **options)

    async def push(self, status: Any) -> None:
        await super().push(status)
        if str(status).startswith("354") and self._owner.behaviour.disconnect == "before":
            _abort(self)


@contextmanager
def smtp_server(implicit_tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[SmtpServer]:
    """Run a server for as long as the block lasts; `options` are aiosmtpd's own."""
    server = SmtpServer()
    started = threading.Event()
    thread = threading.Thread(
        target=server.run, args=(started.set, implicit_tls, dict(options)), daemon=True
    )
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)
        # aiosmtpd leaves connections open whose TLS handshake failed: they are closed here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def server_certificate() -> ssl.SSLContext:
    """Return the context of a server with a certificate for `localhost`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS_DIRECTORY / "server.pem")
    return context


def account(port: int, **changed: Any) -> MailSettings:
    """Return an account of the server; the password is expected in `MAIL_PASSWORD`."""
    return MailSettings.model_validate(
        {
            "host": "127.0.0.1",
            "port": port,
            "tls": "none",
            "user": USER,
            "password": "env:MAIL_PASSWORD",
            "from": "Ann <ann@example.org>",
            **changed,
        }
    )
