"""One IMAP connection, of a mail watcher or a `mail` step: checked address, verified TLS, timeouts.

imap-tools speaks the protocol; this module opens the socket, so that the address policy of the `http`
step applies to mail servers too, and turns every failure into a `MailboxError` for a person. All of it
blocks and runs in a thread. `abort` may be called from any thread: it ends the thread's wait.
"""

import imaplib
import importlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from agent.core.redaction import everywhere
from agent.steps.attempt.secrets import Secrets
from agent.steps.http.address_policy import AddressPolicy
from agent.steps.mail.server_addresses import (
    ServerAddressError,
    UnresolvedServerError,
    checked_addresses,
    tls_context,
)
from agent.steps.types.errors import DefiniteFailure

Result = TypeVar("Result")

MOST_ANSWER_BYTES: Final = 16_777_216
"""Of all answers to one command; a server that sends more is cut off: it was asked for less."""
_PART_BYTES: Final = 100
"""What a line or a value takes in memory beyond its own bytes."""
_PORTS: Final = {"implicit": 993, "starttls": 143, "none": 143}
_OPERATION_SECONDS: Final = 30.0
_REFUSED_SECONDS: Final = 300.0
"""Servers lock accounts after a number of wrong passwords."""
_TEXT_LENGTH: Final = 300
_FOLDERS_SHOWN: Final = 30


class MailboxError(Exception):
    """A mailbox cannot be used; the message is for a person, and names no secret."""

    def __init__(
        self, message: str, *, retry_seconds: float | None = None, is_final: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds
        """How long to wait before the next try."""
        self.is_final = is_final
        """A retry would find the same: a login, a folder or a certificate that was refused."""


def require_imap_tools() -> Any:
    """Import the library that speaks IMAP; name its package if it is missing."""
    try:
        return importlib.import_module("imap_tools")
    except ImportError:
        raise MailboxError(
            "mailboxes need the package imap-tools, which is not installed:"
            " `python -m pip install imap-tools`"
        ) from None


@dataclass(frozen=True, slots=True)
class Folder:
    """The server's answer when the folder was opened."""

    uidvalidity: int
    uidnext: int
    """No message that arrives later has a lower UID."""
    message_count: int


class ImapConnection:
    """A connection that is logged in, with its folder open for reading only.

    `keys` are those of a `mail` watcher: host, port, tls, user, password and folder. Without a folder
    none is open.
    """

    def __init__(
        self, keys: dict[str, Any], allow_private: Iterable[str], timeout_seconds: float
    ) -> None:
        self._keys = keys
        self.host: str = keys["host"]
        self._port: int = keys.get("port") or _PORTS[keys["tls"]]
        self._policy = AddressPolicy(allow_private)
        self._timeout_seconds = min(timeout_seconds, _OPERATION_SECONDS)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_aborted = False
        self.mailbox: Any = None
        self.folder: Folder

    def abort(self) -> None:
        """End the connection, from any thread; waits for the server fail."""
        with self._lock:
            self._is_aborted = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def has_capability(self, name: str) -> bool:
        """Whether the server has a capability, such as IDLE; many announce it after the login."""
        _, lines = self.mailbox.client.capability()
        return name in (lines[-1] or b"").decode("ascii", "replace").upper().split()

    def session(self, function: Callable[[], Result]) -> Result:
        """Open the connection, call a function, and close it; raise `MailboxError` for failures."""
        imap_tools = require_imap_tools()
        with _explained(self.host, imap_tools):
            try:
                self._open(imap_tools)
                return function()
            finally:
                self._close()

    def _open(self, imap_tools: Any) -> None:
        user, password = self._keys["user"], self._password()
        self.mailbox = _mailbox_class(imap_tools)(self)
        try:
            # Before the certificate is verified, no password leaves this machine.
            if (user + password).isascii():
                self.mailbox.login(user, password, initial_folder=None)
            else:
                self.mailbox.login_utf8(user, password, initial_folder=None)
        except (imap_tools.MailboxLoginError, imaplib.IMAP4.error) as error:
            raise self._login_problem(error) from None
        if self._keys["folder"]:
            self.folder = self.open_folder(self._keys["folder"])

    def _password(self) -> str:
        try:
            password: str = Secrets().resolve(self._keys["password"], frozenset({()}))
        except DefiniteFailure as error:
            text = f"the password for {self.host}: {error}"
            raise MailboxError(text, is_final=not error.may_retry) from None
        if re.search(r"[\r\n\0]", password + self._keys["user"]):
            raise MailboxError(
                f"user or password for {self.host} has a line break, which IMAP cannot send"
            )
        return password

    def _login_problem(self, error: Exception) -> Exception:
        text = server_text(error)
        if isinstance(error, imaplib.IMAP4.abort) or "[UNAVAILABLE]" in text.upper():
            return error
        return MailboxError(
            f"{self.host} refused the login of {self._keys['user']}: {text}; check user and"
            " password (many providers need an app password for IMAP)",
            retry_seconds=_REFUSED_SECONDS,
            is_final=True,
        )

    def open_folder(self, name: str, *, readonly: bool = True) -> Folder:
        """Open a folder; only inside a session."""
        imap_tools, client = require_imap_tools(), self.mailbox.client
        try:
            selected = self.mailbox.folder.set(name, readonly=readonly)
        except imap_tools.MailboxFolderSelectError as error:
            raise MailboxError(
                f"the folder {name!r} of {self._keys['user']} at {self.host} cannot be opened:"
                f" {server_text(error)}; there are {self.folder_names()}",
                is_final=True,
            ) from None
        uidvalidity, uidnext = _number(client, "UIDVALIDITY"), _number(client, "UIDNEXT")
        if uidvalidity is None:
            raise MailboxError(
                f"{self.host} gives no UIDVALIDITY for the folder {name!r}: its messages have no"
                " lasting identity, so they cannot be watched"
            )
        message_count = int(selected[1][0] or 0)
        if uidnext is None:
            uids = self.mailbox.uids("UID *", charset=None) if message_count else []
            uidnext = max(map(int, uids), default=0) + 1
        return Folder(uidvalidity, uidnext, message_count)

    def folder_names(self) -> str:
        """Return the names of the folders, for a message to a person."""
        names = [repr(folder.name) for folder in self.mailbox.folder.list()]
        more = "" if len(names) <= _FOLDERS_SHOWN else f" and {len(names) - _FOLDERS_SHOWN} more"
        return ", ".join(names[:_FOLDERS_SHOWN]) + more

    def _close(self) -> None:
        if self.mailbox is None:
            return
        client = self.mailbox.client
        with suppress(OSError, imaplib.IMAP4.error):
            if not self._is_aborted:
                client.logout()
        with suppress(OSError):
            client.shutdown()

    def new_client(self) -> imaplib.IMAP4:
        """Return a client whose connection is encrypted as `tls` says."""
        client = _Client(self, self.host, self._port, self._timeout_seconds)
        if self._keys["tls"] == "starttls":
            try:
                if "STARTTLS" not in client.capabilities:
                    raise MailboxError(f"{self.host} has no STARTTLS; try `tls: implicit`")
                client.starttls(tls_context())
                self._hold(client.sock)
            except BaseException:
                with suppress(OSError):
                    client.shutdown()
                raise
        return client

    def connect(self) -> socket.socket:
        """Open the socket, to the first checked address that accepts it."""
        problem: OSError | None = None
        for address in self._addresses():
            try:
                raw = socket.create_connection((address, self._port), self._timeout_seconds)
            except OSError as error:
                problem = error
                continue
            return self._encrypted(raw) if self._keys["tls"] == "implicit" else self._hold(raw)
        assert problem is not None
        raise problem

    def _encrypted(self, raw: socket.socket) -> socket.socket:
        encrypted = tls_context().wrap_socket(
            raw, server_hostname=self.host, do_handshake_on_connect=False
        )
        try:
            self._hold(encrypted)
            encrypted.do_handshake()
        except BaseException:
            encrypted.close()
            raise
        return encrypted

    def _hold(self, opened: socket.socket) -> socket.socket:
        with self._lock:
            self._socket = opened
            if self._is_aborted:
                opened.close()
                raise ConnectionAbortedError("the connection was aborted")
        return opened

    def _addresses(self) -> list[str]:
        try:
            return checked_addresses(self.host, self._port, self._keys["tls"], self._policy)
        except ServerAddressError as error:
            is_final = not isinstance(error, UnresolvedServerError)
            raise MailboxError(str(error), is_final=is_final) from None


class _Client(imaplib.IMAP4):
    """The standard client, over a socket that the connection opens."""

    def __init__(self, connection: ImapConnection, host: str, port: int, seconds: float) -> None:
        self._connection = connection
        self._answer_bytes = 0
        super().__init__(host, port, seconds)

    def _create_socket(self, _timeout: float | None) -> socket.socket:
        return self._connection.connect()

    def _command(self, name: str, *args: Any) -> bytes:
        # Answers that nothing asked for would otherwise stay until the end of the session.
        self._answer_bytes = 0
        self.untagged_responses = {}
        tag: bytes = super()._command(name, *args)  # type: ignore[misc]
        return tag

    def read(self, size: int) -> bytes:
        self._count(size)
        return super().read(size)

    def readline(self) -> bytes:
        line = super().readline()
        self._count(len(line))
        return line

    def _count(self, size: int) -> None:
        self._answer_bytes += size + _PART_BYTES
        if self._answer_bytes > MOST_ANSWER_BYTES:
            # Saying goodbye would read on.
            self._connection.abort()
            raise self.abort(f"the server sent more than {MOST_ANSWER_BYTES:,} bytes as one answer")


def _mailbox_class(imap_tools: Any) -> Any:
    class MailBox(imap_tools.BaseMailBox):  # type: ignore[misc]
        """imap-tools' own mailbox, over a client of ours."""

        def __init__(self, connection: ImapConnection) -> None:
            self._connection = connection
            super().__init__()

        def _get_mailbox_client(self) -> imaplib.IMAP4:
            return self._connection.new_client()

    return MailBox


@contextmanager
def _explained(host: str, imap_tools: Any) -> Iterator[None]:
    """Turn the failures of a session into errors for a person."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise MailboxError(
            f"the certificate of {host} is not valid: {error.verify_message}; for a server with"
            " a certificate authority of its own, set SSL_CERT_FILE",
            is_final=True,
        ) from None
    except ssl.SSLError as error:
        reason = error.reason or error
        raise MailboxError(f"TLS with {host} failed: {reason}; check `port` and `tls`") from None
    except imap_tools.ImapToolsError as error:
        raise MailboxError(f"{host} refused a command: {server_text(error)}") from None
    except imaplib.IMAP4.abort as error:
        raise MailboxError(f"{host} closed the connection: {server_text(error)}") from None
    except imaplib.IMAP4.error as error:
        raise MailboxError(f"{host} refused a command: {server_text(error)}") from None
    except TimeoutError:
        raise MailboxError(f"{host} did not answer in time") from None
    except ValueError as error:
        raise MailboxError(
            f"{host} sent an answer that is not IMAP: {server_text(error)}"
        ) from None
    except OSError as error:
        raise MailboxError(f"the connection to {host} failed: {server_text(error)}") from None


def server_text(error: Exception) -> str:
    """Return a server's answer in one bounded line without secrets."""
    result = getattr(error, "command_result", None)
    answer = result[1] if result is not None else error.args[-1] if error.args else error
    if isinstance(answer, list):
        answer = next((line for line in answer if line), b"")
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
    line = " ".join(re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", everywhere.redact(text)).split())
    return line[:_TEXT_LENGTH] or type(error).__name__


def _number(client: imaplib.IMAP4, name: str) -> int | None:
    """Return a number that the server gave when the folder was opened."""
    values = client.untagged_responses.get(name) or [b""]
    value = values[-1]
    return int(value) if isinstance(value, bytes) and value.isdigit() else None
