"""Requests to the agent's HTTP API by the standard library alone: a worker sends many small ones.

Every request of a worker may be repeated: claims carry a token of the client's choice, everything else
the id of a lease. So a request whose answer was lost is simply sent again.
"""

import http.client
import ipaddress
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from agent.core.backoff import Backoff
from agent.core.failure_causes import is_bad_certificate
from agent.core.ids import random_fraction
from agent.queue.errors import LeaseLostError, QueueError, UnavailableError

ANSWER_SECONDS: Final = 20.0
"""How long an answer may take, beyond the wait of a long poll."""
_UNAUTHORIZED: Final = 401
_GONE: Final = 410
_TOO_MANY: Final = 429
_FIRST_RETRY_SECONDS: Final = 0.1
_LONGEST_RETRY_SECONDS: Final = 10.0
_MAX_IDLE: Final = 32


class Connection:
    """The API of one agent, for any number of threads."""

    def __init__(self, server: str | None = None, token: str | None = None) -> None:
        self.url = _base_url(server or os.environ.get("AGENT_SERVER") or "")
        parts = urlsplit(self.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._is_tls = parts.scheme == "https"
        self._prefix = f"{parts.path}/api/v1/"
        self._headers = {
            "Authorization": f"Bearer {_token(token)}",
            "Content-Type": "application/json",
            "User-Agent": "agent-queue",
        }
        self._proxy = _proxy_for(parts.scheme, self._host, parts.netloc)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._busy: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def post(
        self, path: str, document: Any = None, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Any:
        """Send a document once and return the answer.

        Raises `UnavailableError` if it may be sent again, `LeaseLostError` on 410, `QueueError` else.
        """
        body = _encoded(document)
        return self.send(path, body, self._headers, timeout_seconds=timeout_seconds)

    def get(self, path: str, **query: str | int | None) -> Any:
        """Read something once; members that are None are left out. Raises as `post`."""
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        return self.send(target, None, self._headers, method="GET")

    def send(
        self,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        method: str = "POST",
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Send a request; one that a kept connection did not carry is sent again on a new one."""
        while True:
            connection, is_kept = self._open(timeout_seconds)
            try:
                connection.request(method, self._target(path), body, headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._discard(connection)
                if is_bad_certificate(error):
                    raise QueueError(
                        f"the certificate of the agent at {self.url} is not valid: {error}"
                    ) from None
                if is_kept and not isinstance(error, TimeoutError):
                    continue
                reason = str(error) or type(error).__name__
                raise UnavailableError(
                    f"the agent at {self.url} does not answer: {reason}"
                ) from None
            except BaseException:
                self._discard(connection)
                raise
            self._keep(connection, is_closed=response.will_close)
            return self._answer(response, text)

    def repeat(
        self,
        send: Callable[[], Any],
        *,
        wait: Callable[[float], bool],
        notify: Callable[[UnavailableError, int], None] = lambda *_: None,
    ) -> Any:
        """Send until an answer comes; `wait` sleeps, and returns True to give up.

        `notify` gets each failure, with their number in a row.
        """
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while True:
            try:
                return send()
            except UnavailableError as error:
                # Many workers lose their agent at the same moment.
                delay = backoff.next_seconds() * (0.5 + random_fraction() / 2)
                notify(error, backoff.failures)
                if wait(max(delay, error.after_seconds)):
                    raise

    def interrupt(self) -> None:
        """End requests that wait for an answer: they raise `UnavailableError`."""
        with self._lock:
            busy = list(self._busy)
        for connection in busy:
            sock = connection.sock
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = list(self._idle), deque()
        for connection in idle:
            connection.close()

    def _open(self, timeout_seconds: float) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            kept = self._idle.pop() if self._idle else None
            connection = kept or self._new()
            self._busy.add(connection)
        connection.timeout = timeout_seconds
        if connection.sock is not None:
            connection.sock.settimeout(timeout_seconds)
        return connection, kept is not None

    def _new(self) -> http.client.HTTPConnection:
        make = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        if self._proxy is None:
            return make(self._host, self._port)
        connection = make(self._proxy[0], self._proxy[1])
        if self._is_tls:
            connection.set_tunnel(self._host, self._port)
        return connection

    def _target(self, path: str) -> str:
        """Return the target of the request line: a proxy of plain HTTP needs the whole address."""
        if self._proxy is not None and not self._is_tls:
            return f"{self.url}/api/v1/{path}"
        return self._prefix + path

    def _keep(self, connection: http.client.HTTPConnection, *, is_closed: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not is_closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def _answer(self, response: http.client.HTTPResponse, text: bytes) -> Any:
        status = response.status
        if 200 <= status < 300:
            return json.loads(text) if text else None
        detail = _detail(response, text)
        if status == _TOO_MANY or status >= 500:
            after = _seconds(response.headers.get("retry-after"))
            raise UnavailableError(detail, after_seconds=after, status=status)
        if status == _GONE:
            raise LeaseLostError(detail, status=status)
        if status == _UNAUTHORIZED:
            detail = f"the agent at {self.url} does not accept this token"
        raise QueueError(detail, status=status)


def _encoded(document: Any) -> bytes:
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise QueueError(f"not a JSON value: {error}") from None


def _detail(response: http.client.HTTPResponse, text: bytes) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status} {response.reason}"


def _seconds(text: str | None) -> float:
    try:
        return min(float(text or 0), _LONGEST_RETRY_SECONDS)
    except ValueError:
        return 0.0


def _base_url(server: str) -> str:
    if not server:
        raise QueueError(
            "no agent: name its address, as in Worker(server='http://127.0.0.1:8420'), or set"
            " AGENT_SERVER"
        )
    parts = urlsplit(server if "//" in server else f"http://{server}")
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment or parts.username is not None:
        raise QueueError(
            f"{server!r} is not the address of an agent: write it as http://127.0.0.1:8420"
        )
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _token(token: str | None) -> str:
    value = token or os.environ.get("AGENT_TOKEN", "")
    file = os.environ.get("AGENT_TOKEN_FILE")
    if not value and file:
        try:
            value = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise QueueError(f"AGENT_TOKEN_FILE: {error}") from None
    value = value.strip()
    if not value or not value.isascii() or not value.isprintable():
        raise QueueError(
            "no token: give Worker(token=...), or set AGENT_TOKEN, or AGENT_TOKEN_FILE to the file"
            " that holds it; `agent token create NAME --scope work:QUEUE` makes one"
        )
    return value


def _proxy_for(scheme: str, host: str, netloc: str) -> tuple[str, int | None] | None:
    """Return the proxy that the environment names for an address; loopback needs none."""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if is_here:
        return None
    from urllib.request import getproxies, proxy_bypass

    address = None if proxy_bypass(netloc) else getproxies().get(scheme)
    if not address:
        return None
    parts = urlsplit(address if "//" in address else f"http://{address}")
    return (parts.hostname, parts.port) if parts.hostname else None
