"""One SMTP session that sends one message: connect, TLS, login, envelope, DATA.

aiosmtplib speaks the protocol. This module opens the socket, so that the address policy of the `http`
step applies, and writes the end of DATA apart from the message: until that moment a broken session
has sent nothing, and after it only the server's reply says what happened.
"""

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from agent.config.mail import MailSettings
from agent.steps.http.address_policy import AddressPolicy
from agent.steps.mail import smtp_errors
from agent.steps.mail.server_addresses import (
    ServerAddressError,
    UnresolvedServerError,
    checked_addresses,
    tls_context,
)
from agent.steps.types.errors import DefiniteFailure

if TYPE_CHECKING:
    import aiosmtplib
    from aiosmtplib.protocol import SMTPProtocol

PORTS: Final = {"implicit": 465, "starttls": 587, "none": 25}
_COMMAND_SECONDS: Final = 30.0
_LOCAL_NAME: Final = "[127.0.0.1]"
"""The name that EHLO gives. The machine's own name concerns no server of others."""
_METHODS: Final = ("plain", "login", "cram-md5")
"""One of them is used, once: servers lock accounts after a number of wrong passwords."""
_END: Final = b".\r\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """Whom a message is from and goes to, as the server gets it."""

    sender: str
    recipients: list[str]
    is_international: bool
    """Whether an address needs SMTPUTF8."""


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials of the session."""

    user: str
    password: str


@dataclass(slots=True)
class Delivery:
    """The server's replies about the recipients, and about the message."""

    accepted: list[str] = field(default_factory=list)
    refused: list[tuple[str, int, str]] = field(default_factory=list)
    """Address, status and text of each refusal."""
    reply: str = ""


MayGoOn = Callable[[Delivery], None]
"""Decides, before DATA, whether a mail is sent to those that were accepted; raises if not."""


class SmtpSession:
    """Sends one message; `is_sent` says whether the last byte of it was written."""

    def __init__(
        self, account: str, settings: MailSettings, allow_private: tuple[str, ...]
    ) -> None:
        self._account = account
        self._settings = settings
        self._host = settings.host
        self._port = settings.port or PORTS[settings.tls]
        self._policy = AddressPolicy(allow_private)
        self._phase = smtp_errors.CONNECTING
        self._may_quit = True
        """Whether the server expects a command now."""
        self._writer: asyncio.StreamWriter | None = None
        """Kept, because a writer closes its connection when it is collected."""
        self.is_sent = False

    async def send(
        self,
        login: Login | None,
        envelope: Envelope,
        message: bytes,
        may_go_on: MayGoOn,
        timeout_seconds: float,
    ) -> Delivery:
        """Send a message; raise `DefiniteFailure` or `UnknownOutcomeError`.

        The last part of the time is left for the reply to the end of DATA, so that a slow server
        before it is a definite failure.
        """
        library = _require()
        client: aiosmtplib.SMTP | None = None
        try:
            async with asyncio.timeout(timeout_seconds - min(30.0, timeout_seconds / 3)):
                client = await self._connect(library)
                await self._log_in(client, login)
                delivery = await self._envelope(library, client, envelope, message)
                may_go_on(delivery)
                protocol = await self._write(client, message)
            code, text = await self._end(protocol)
            delivery.reply = smtp_errors.reply_text(code, text)
            return delivery
        except (DefiniteFailure, asyncio.CancelledError):
            raise
        except Exception as error:
            raise smtp_errors.failure(
                error, self._host, self._phase, is_sent=self.is_sent
            ) from error
        finally:
            if client is not None:
                self._close(client)

    async def _connect(self, library: Any) -> "aiosmtplib.SMTP":
        tls = self._settings.tls
        opened = await self._socket()
        client: aiosmtplib.SMTP = library.SMTP(
            hostname=self._host,
            sock=opened,
            local_hostname=_LOCAL_NAME,
            timeout=_COMMAND_SECONDS,
            use_tls=tls == "implicit",
            start_tls=False,
            tls_context=None if tls == "none" else await asyncio.to_thread(tls_context),
        )
        try:
            await client.connect()
            await self._hello(client)
            if tls == "starttls":
                self._phase = "STARTTLS"
                if not client.supports_extension("starttls"):
                    self._refuse("mail_tls", 'has no STARTTLS; try `tls = "implicit"`')
                await client.starttls()
                await self._hello(client)
        except BaseException:
            client.close()
            opened.close()
            raise
        return client

    async def _hello(self, client: "aiosmtplib.SMTP") -> None:
        self._phase = "the greeting"
        if client.is_ehlo_or_helo_needed:
            await client.ehlo()

    async def _socket(self) -> socket.socket:
        """Return a connected socket, to the first checked address that accepts it."""
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for address in await self._addresses():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            opened = socket.socket(family, socket.SOCK_STREAM)
            opened.setblocking(False)
            try:
                async with asyncio.timeout(_COMMAND_SECONDS):
                    await loop.sock_connect(opened, (address, self._port))
                return opened
            except OSError as error:
                opened.close()
                problem = error
            except BaseException:
                opened.close()
                raise
        assert problem is not None
        raise problem

    async def _addresses(self) -> list[str]:
        try:
            return await asyncio.to_thread(
                checked_addresses,
                self._host,
                self._port,
                self._settings.tls,
                self._policy,
                may_be_plain_in_private=True,
            )
        except UnresolvedServerError as error:
            raise DefiniteFailure(str(error), code="dns", kind="transport") from None
        except ServerAddressError as error:
            raise DefiniteFailure(
                str(error), code="address_refused", kind="denied", may_retry=False
            ) from None

    async def _log_in(self, client: "aiosmtplib.SMTP", login: Login | None) -> None:
        if login is None:
            return
        self._phase = "the login"
        offered = [name for name in _METHODS if name in client.supported_auth_methods]
        if not offered:
            self._refuse(
                "mail_login",
                f"offers no login that is known here ({', '.join(_METHODS)}); an account without"
                " user and password sends without one",
            )
        method = {
            "plain": client.auth_plain,
            "login": client.auth_login,
            "cram-md5": client.auth_crammd5,
        }[offered[0]]
        library = _require()
        try:
            await method(login.user, login.password)
        except library.SMTPAuthenticationError as error:
            raise smtp_errors.login_refusal(
                self._host, self._account, error.code, error.message
            ) from None

    async def _envelope(
        self, library: Any, client: "aiosmtplib.SMTP", envelope: Envelope, message: bytes
    ) -> Delivery:
        self._phase = "the sender"
        options = self._options(client, envelope, message)
        encoding = "utf-8" if envelope.is_international else "ascii"
        await client.mail(envelope.sender, options=options, encoding=encoding)
        self._phase = "the recipients"
        delivery = Delivery()
        for recipient in envelope.recipients:
            try:
                await client.rcpt(recipient, encoding=encoding)
                delivery.accepted.append(recipient)
            except library.SMTPRecipientRefused as error:
                if error.code in (421, -1):
                    raise
                delivery.refused.append((recipient, error.code, error.message))
        return delivery

    def _options(self, client: "aiosmtplib.SMTP", envelope: Envelope, message: bytes) -> list[str]:
        options = []
        if client.supports_extension("size"):
            limit = client.esmtp_extensions.get("size", "").strip()
            if limit.isdigit() and 0 < int(limit) < len(message):
                raise DefiniteFailure(
                    f"the mail has {len(message):,} bytes, and {self._host} takes at most"
                    f" {int(limit):,}",
                    code="mail_too_large",
                    kind="limit",
                    may_retry=False,
                )
            options.append(f"SIZE={len(message)}")
        if envelope.is_international:
            if not client.supports_extension("smtputf8"):
                self._refuse("mail_international", "takes no international addresses (SMTPUTF8)")
            options.append("SMTPUTF8")
        return options

    async def _write(self, client: "aiosmtplib.SMTP", message: bytes) -> "SMTPProtocol":
        """Write the message up to the end of DATA; return once the system has all of it."""
        self._phase = "DATA"
        reply = await client.execute_command(b"DATA")
        if reply.code != 354:
            raise smtp_errors.refusal(self._host, "DATA", reply.code, reply.message)
        self._phase = "the message"
        self._may_quit = False
        protocol, transport = client.protocol, client.transport
        if protocol is None or transport is None:
            raise ConnectionError("the connection was lost")
        # With this limit `drain` waits until nothing is left to be written.
        writable = cast("asyncio.WriteTransport", transport)
        writable.set_write_buffer_limits(high=0)
        self._writer = asyncio.StreamWriter(writable, protocol, None, asyncio.get_running_loop())
        self._writer.write(re.sub(rb"(?m)^\.", b"..", message))
        await self._writer.drain()
        return protocol

    async def _end(self, protocol: "SMTPProtocol") -> tuple[int, str]:
        """Write the end of DATA, and return the reply that accepts the message."""
        protocol.write(_END)
        self.is_sent = True
        # The call's own timeout ends this: the outcome is unknown then.
        reply = await protocol.read_response(timeout=None)
        self._may_quit = True
        if 200 <= reply.code < 300:
            return reply.code, reply.message
        if 400 <= reply.code < 600:
            raise smtp_errors.refusal(self._host, "the mail", reply.code, reply.message)
        raise ConnectionError(f"an answer that is not a reply: {reply.code}")

    def _close(self, client: "aiosmtplib.SMTP") -> None:
        """End the session without waiting: the result of the call is to be recorded first."""
        with suppress(Exception):
            if self._may_quit and client.protocol is not None:
                client.protocol.write(b"QUIT\r\n")
        client.close()

    def _refuse(self, code: str, message: str) -> NoReturn:
        raise DefiniteFailure(f"{self._host} {message}", code=code, may_retry=False)


def _require() -> Any:
    """Import the library; name its package if it is missing."""
    try:
        import aiosmtplib
    except ImportError:
        raise DefiniteFailure(
            "mail steps need the package aiosmtplib, which is not installed:"
            " `python -m pip install aiosmtplib`",
            code="library_missing",
            kind="input",
            may_retry=False,
        ) from None
    return aiosmtplib
