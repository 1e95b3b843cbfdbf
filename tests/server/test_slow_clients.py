"""Clients that take their time, or never end: they hold nothing that others need."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.server import header_limits, request_guard
from agent.store.db.database import Database
from tests.server.conftest import QUICK
from tests.support.server import Running

HOOK = """\
name: hook
on: {webhook: {verify: token, secret: "env:PATH"}}
steps: {one: {wait: 1ms}}
"""
UNFINISHED = b"POST /hooks/hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


def _rest(client: socket.socket) -> bytes:
    """Read until the other side closes."""
    found = b""
    try:
        while piece := client.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def test_a_head_that_does_not_end_is_cut_off_in_time(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who says nothing, or half of it, or nothing more after an answer, is hung up on."""
    # Long enough for a whole one, on a machine that is slow and busy.
    monkeypatch.setattr(header_limits, "FIRST_BYTE_SECONDS", 3.0)
    monkeypatch.setattr(header_limits, "HEAD_SECONDS", 3.0)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Running(sqlite_database, tmp_path) as running, ExitStack() as opened:
        waiting: list[tuple[bytes, socket.socket]] = []
        for said in (b"", b"\r\n", b"GET /healthz HT", whole[:-2], whole + b"GET /"):
            client = opened.enter_context(running.connected())
            client.sendall(said)
            waiting.append((said, client))
        for said, client in waiting:
            assert _rest(client).count(b"200 OK") == said.count(whole), said


def test_a_head_without_end_is_not_kept(running: Running) -> None:
    """Headers that go on and on are refused before they fill the memory."""
    with running.connected() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            for _ in range(1000):
                client.sendall(b"x" * 65_536)
    with running.connected() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        client.sendall(b"X: " + b"x" * header_limits.HEAD_BYTES)
        assert _rest(client).startswith(b"HTTP/1.1 400")


def test_large_bodies_are_no_heads(running: Running) -> None:
    """A body larger than a head may be is taken, and the connection is used again after it."""
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
        heard = _rest(client)
    assert heard.startswith(b"HTTP/1.1 201")
    assert b"HTTP/1.1 200" in heard


def test_a_body_that_does_not_come_is_not_waited_for(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets 408, and its place is free again."""
    monkeypatch.setattr(request_guard, "UNPROVEN_BODY_SECONDS", 0.3)
    with Running(sqlite_database, tmp_path) as running:
        running.add_workflow(HOOK)
        with running.connected() as client:
            client.sendall(UNFINISHED)
            heard = b""
            while b"urn:agent:problem:too-slow" not in heard and (piece := client.recv(65_536)):
                heard += piece
        assert heard.startswith(b"HTTP/1.1 408")
        assert b"urn:agent:problem:too-slow" in heard


def test_who_has_proved_nothing_takes_a_part_of_the_places(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """However many webhooks never end, one that is whole is answered, and so is the owner."""
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
            found = stranger.post("/hooks/hook", content=b"{}")
            assert found.status_code == 401, found.text
        assert owner.post("/api/v1/workflows/quick/tasks").status_code == 201
