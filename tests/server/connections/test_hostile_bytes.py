"""Bytes that no client should send: whatever a stranger sends, the log gets no traceback."""

import io
import logging
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import structlog

from agent.core.logs import logging as agent_logging
from agent.server.connections import header_limits
from agent.store.db.database import Database
from tests.support.effort import short_or_full
from tests.support.server import Running, wait_for

HOST = b"Host: localhost\r\n"
POST = b"POST /hooks/none HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HOSTILE = [
    b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET //..%00/%ff%fe/\xc3\xa4?%zz HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST,
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\nmore",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n" + CHUNKED + b"zz\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"Accept: text/html\r\nCookie: =;;\xff=\xff\r\n\r\n",
    b"GET /sign-in/%0d%0a HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /links/\xf0\x9f\x92\xa3 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"POST /answers HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}",
    b"POST /mcp HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    b"HEAD /readyz HTTP/0.9\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    POST + b"Content-Length: 5\r\n\r\n{",
    CHUNKED + b"1\r\nx\r\n0\r\n" + b"T: y\r\n" * 20_000,
    CHUNKED + b"1\r\nx\r\n0\r\nT: " + b"y" * 70_000,
    CHUNKED + b"not a size\r\n",
    CHUNKED + b"1\r\nx\r\n0\r\n\r\nNONSENSE",
]


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Return the log as the daemon writes it."""
    root = logging.getLogger()
    handlers, level, written = list(root.handlers), root.level, io.StringIO()
    agent_logging.configure("json", "info", written)
    yield written
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def _spoiled(random: random.Random) -> bytes:
    """Return hostile bytes, two after each other or with a piece removed, repeated or changed."""
    sent = bytearray(random.choice(HOSTILE))
    if random.random() < 0.5:
        sent += random.choice(HOSTILE)
    for _ in range(random.choice((0, 0, 1, 5))):
        at = random.randrange(len(sent))
        sent[at : at + random.choice((0, 1, 20))] = random.choice(
            (b"", b"\r\n", b"\0", b"%", b"\xff", b" ", sent[at : at + 50])
        )
    return bytes(sent)


def _send(client: socket.socket, sent: bytes, random: random.Random) -> None:
    """Send bytes in one piece or two, and read, stop sending, or disappear."""
    cut = random.choice((len(sent), random.randrange(len(sent) + 1)))
    client.settimeout(0.02)
    with suppress(OSError):
        client.sendall(sent[:cut])
        match random.randrange(4):
            case 0:
                client.recv(65_536)
            case 1:
                client.shutdown(socket.SHUT_WR)
            case 2:
                # Closing resets the connection.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
        client.sendall(sent[cut:])
        client.recv(65_536)


def test_no_bytes_of_a_stranger_make_a_traceback(
    sqlite_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: io.StringIO,
) -> None:
    """Connections that send anything and end in any way leave a few lines, and the server well."""
    monkeypatch.setattr(header_limits, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(header_limits, "LINGER_SECONDS", 0.2)
    chance = random.Random(1)
    with Running(sqlite_database, tmp_path) as server, ExitStack() as opened:
        for number in range(short_or_full(250, 5000)):
            sent = HOSTILE[number] if number < len(HOSTILE) else _spoiled(chance)
            with ExitStack() if chance.random() < 0.9 else opened as kept:
                _send(kept.enter_context(server.connected()), sent, chance)
        uvicorn = server.server._uvicorn
        assert uvicorn is not None
        opened.close()
        wait_for(lambda: not uvicorn.server_state.connections)
        with server.client() as owner:
            assert owner.get("/api/v1/tasks").status_code == 200
    lines = [line for line in log.getvalue().splitlines() if '"info"' not in line]
    assert "Traceback" not in log.getvalue(), log.getvalue()
    assert "api.defect" not in log.getvalue(), log.getvalue()
    assert "api.connection_failed" not in log.getvalue(), log.getvalue()
    assert len(lines) < 40, log.getvalue()


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "DELETE"])
def test_an_address_that_is_no_path_is_refused(running: Running, method: str) -> None:
    """`GET *` and its like get 400."""
    with running.connected() as client:
        client.sendall(f"{method} * HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 400"
