"""Slow clients, and clients that never finish, do not block others."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.server.connections import header_limits
from agent.server.requests import request_guard
from agent.store.db.database import Database
from tests.support.sample_workflows import QUICK
from tests.support.server import Running, read_until_closed

HOOK = """\
name: hook
on: {webhook: {verify: token, secret: "env:PATH"}}
steps: {one: {wait: 1ms}}
"""
UNFINISHED = b"POST /hooks/hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


def test_incomplete_headers_are_cut_off_in_time(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without complete headers, also after a response, is closed in time."""
    # Long enough for a whole one, on a machine that is slow and busy.
    monkeypatch.setattr(header_limits, "FIRST_BYTE_SECONDS", 3.0)
    monkeypatch.setattr(header_limits, "HEAD_SECONDS", 3.0)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Running(sqlite_database, tmp_path) as running, ExitStack() as opened:
        waiting: list[tuple[bytes, socket.socket]] = []
        for sent in (b"", b"\r\n", b"GET /healthz HT", whole[:-2], whole + b"GET /"):
            client = opened.enter_context(running.connected())
            client.sendall(sent)
            waiting.append((sent, client))
        for sent, client in waiting:
            assert read_until_closed(client).count(b"200 OK") == sent.count(whole), sent


def test_endless_headers_are_refused(running: Running) -> None:
    """Endless headers are refused before they fill the memory."""
    with running.connected() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            for _ in range(1000):
                client.sendall(b"x" * 65_536)
    with running.connected() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        client.sendall(b"X: " + b"x" * header_limits.HEAD_BYTES)
        assert read_until_closed(client).startswith(b"HTTP/1.1 400")


def test_large_bodies_are_not_headers(running: Running) -> None:
    """A body may exceed the limit on headers, and the connection is reused after it."""
    document = b'{"input": {"word": "' + b"x" * 300_000 + b'"}}'
    start = (
        b"POST /api/v1/workflows/quick/tasks HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nAuthorization: Bearer "
        + running.token.encode()
        + f"\r\nContent-Length: {len(document)}\r\n\r\n".encode()
    )
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with running.connected() as client:
        client.sendall(start + document + last)
        heard = read_until_closed(client)
    assert heard.startswith(b"HTTP/1.1 201")
    assert b"HTTP/1.1 200" in heard


def test_a_missing_body_times_out(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets 408, and no longer counts as in progress."""
    monkeypatch.setattr(request_guard, "TOKENLESS_BODY_SECONDS", 0.3)
    with Running(sqlite_database, tmp_path) as running:
        running.add_workflow(HOOK)
        with running.connected() as client:
            client.sendall(UNFINISHED)
            heard = b""
            while b"urn:agent:problem:too-slow" not in heard and (piece := client.recv(65_536)):
                heard += piece
        assert heard.startswith(b"HTTP/1.1 408")
        assert b"urn:agent:problem:too-slow" in heard


def test_requests_without_a_token_get_a_share_of_the_capacity(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """With many incomplete webhooks, a complete one is still answered, and so is the owner."""
    with (
        Running(sqlite_database, tmp_path, max_requests=8) as running,
        running.client() as owner,
        running.client("") as stranger,
        ExitStack() as opened,
    ):
        for text in (HOOK, QUICK):
            running.add_workflow(text)
        for _ in range(20):
            opened.enter_context(running.connected()).sendall(UNFINISHED)
        # A webhook that comes whole takes the place of the oldest that does not.
        for _ in range(3):
            response = stranger.post("/hooks/hook", content=b"{}")
            assert response.status_code == 401, response.text
        assert owner.post("/api/v1/workflows/quick/tasks").status_code == 201
