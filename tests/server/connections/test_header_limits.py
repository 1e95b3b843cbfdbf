"""Limits on connections: their number, headers and trailers, unread responses, and how they close."""

import resource
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from agent.config.execution import EngineSettings
from agent.config.settings import ServerSettings, Settings
from agent.core.files import file_descriptors
from agent.server import server_thread
from agent.server.connections import header_limits
from agent.server.pages.framework import assets
from agent.server.server_thread import max_connections
from agent.store.db.database import Database
from tests.support.server import Running, read_until_closed, wait_for

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = b"POST /hooks/none HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
FEW_BYTES = 4096
"""The size of a buffer of the operating system, so that little is written beyond what a client reads."""


def _is_closed(client: socket.socket) -> bool:
    client.settimeout(0.0)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_the_longest_idle_connection_is_closed(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit the longest idle connection is closed, and the new one is served."""
    monkeypatch.setattr(server_thread, "max_connections", lambda _: 10)
    with Running(sqlite_database, tmp_path) as server, ExitStack() as opened:
        idle = [opened.enter_context(server.connected()) for _ in range(30)]
        with server.client() as client:
            assert client.get("/api/v1/tasks").status_code == 200
            wait_for(lambda: sum(map(_is_closed, idle)) >= 20)
            assert not _is_closed(idle[-1])
            assert client.get("/api/v1/tasks").status_code == 200


def test_a_silent_connection_is_closed_soon(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a first byte is closed sooner than one with incomplete headers."""
    monkeypatch.setattr(header_limits, "FIRST_BYTE_SECONDS", 0.2)
    with (
        Running(sqlite_database, tmp_path) as server,
        server.connected() as slow,
        server.connected() as silent,
    ):
        slow.sendall(HEAD[:10])
        assert read_until_closed(silent) == b""
        slow.sendall(HEAD[10:] + b"\r\n")
        assert read_until_closed(slow).startswith(b"HTTP/1.1 200")


def test_unread_pipelines_of_strangers_do_not_keep_out_the_owner(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections than allowed, each with many requests whose responses are never read."""
    monkeypatch.setattr(server_thread, "max_connections", lambda _: 40)
    with Running(sqlite_database, tmp_path) as server, ExitStack() as opened:
        strangers = [opened.enter_context(server.connected()) for _ in range(60)]
        for stranger in strangers:
            with suppress(ConnectionError):
                stranger.sendall(HEALTH * 130)
        with server.client() as client:
            for path in ("/healthz", "/api/v1/tasks"):
                assert client.get(path).status_code == 200


def test_a_client_may_pipeline_one_request(running: Running) -> None:
    """Of many requests sent at once two get their responses; the second one closes the connection."""
    with running.connected() as client:
        client.sendall(HEALTH * 500)
        first, second = read_until_closed(client).split(b"HTTP/1.1 200")[1:]
    assert b"connection: close" not in first
    assert b"connection: close" in second


def test_a_broken_request_does_not_break_the_response_before_it(running: Running) -> None:
    """A request in progress gets its whole response, and nothing after it."""
    with running.connected() as client:
        client.sendall(HEALTH + b"NONSENSE\r\n\r\n")
        received = read_until_closed(client)
    assert received.count(b"HTTP/1.1") == 1
    assert received.endswith(b'{"status":"ok"}')


def _reading_little(server: Running) -> socket.socket:
    """Return a connection that asks for more than the buffers between server and client hold."""
    host, port = server.server.url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW_BYTES)
    client.settimeout(60.0)
    client.connect((host, int(port)))
    client.sendall(
        f"GET {assets.url_of('page.css')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 2
    )
    return client


def _blocked(server: Running) -> int:
    assert server.server._uvicorn is not None
    connections = server.server._uvicorn.server_state.connections
    return sum(connection._write_timer is not None for connection in connections)  # type: ignore[union-attr]


def test_a_client_that_does_not_read_is_cut_off(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection ends when its client reads nothing for a while; a slow reader gets everything."""
    monkeypatch.setattr(header_limits, "WRITE_SECONDS", 1.0)
    whole = 2 * len(assets.all_assets()[assets.url_of("page.css").removeprefix("/assets/")].content)
    with Running(sqlite_database, tmp_path) as server:
        server.server._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FEW_BYTES)
        with _reading_little(server) as slow, _reading_little(server) as deaf:
            wait_for(lambda: _blocked(server) == 2)
            received = 0
            while received < whole and (piece := slow.recv(1024)):
                received += len(piece)
                time.sleep(0.04)
            assert received >= whole
            wait_for(lambda: _blocked(server) == 0)
            assert len(read_until_closed(deaf)) < whole


def test_a_blocked_connection_without_a_token_is_closed_first(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit, connections that only wait for a request stay open while a stranger's is blocked."""
    monkeypatch.setattr(server_thread, "max_connections", lambda _: 10)
    with Running(sqlite_database, tmp_path) as server, ExitStack() as opened:
        server.server._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FEW_BYTES)
        idle = [opened.enter_context(server.connected()) for _ in range(4)]
        for _ in range(6):
            opened.enter_context(_reading_little(server))
        wait_for(lambda: _blocked(server) == 6)
        with server.client() as client:
            assert client.get("/healthz").status_code == 200
            assert _blocked(server) == 5
        assert not any(map(_is_closed, idle))


@pytest.mark.parametrize(
    ("limit", "slots", "expected"),
    [(1024, 50, 596), (256, 50, 128), (65_536, 50, 900), (20, 50, 16), (4096, 5000, 900)],
)
def test_descriptors_are_left_for_the_steps(
    limit: int, slots: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit follows from the limit on file descriptors and the number of slots."""
    monkeypatch.setattr(file_descriptors, "limit", lambda: limit)
    settings = Settings(engine=EngineSettings(slots=slots), server=ServerSettings())
    assert max_connections(settings) == expected


def _head_of(size: int) -> bytes:
    """Return headers of this size."""
    fixed = header_limits._LINE_BYTES + len("/healthz")
    fixed += len("hostlocalhost") + 4 + len("connectionclose") + 4 + len("x") + 4
    return HEAD + b"X: " + b"x" * (size - fixed) + b"\r\n\r\n"


@pytest.mark.parametrize("is_slow", [False, True])
def test_the_limit_on_headers_is_exact(running: Running, *, is_slow: bool) -> None:
    """One byte above the limit is refused, sent at once or byte by byte; larger headers too."""
    for excess, status in ((0, b"200"), (1, b"400"), (5000, b"400"), (200_000, b"400")):
        head = _head_of(header_limits.HEAD_BYTES + excess)
        with running.connected() as client:
            pieces = [head[at : at + 30_000] for at in range(0, len(head), 30_000)]
            for piece in pieces if is_slow else [head]:
                client.sendall(piece)
            assert read_until_closed(client)[9:12] == status, excess


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("field", [b"X: y\r\n" * 10_000, b"x" * 60_000], ids=["many", "one"])
def test_trailers_count_as_headers(running: Running, field: bytes) -> None:
    """Endless trailers are refused soon, and use no memory."""
    before = _memory_bytes()
    sent = 0
    with running.connected() as client:
        client.sendall(CHUNKED + b"1\r\nx\r\n0\r\n")
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            while sent < 100_000_000:
                client.sendall(field)
                sent += len(field)
    assert sent < 10_000_000
    assert _memory_bytes() - before < 30_000_000


def test_trailers_are_not_headers(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trailer cannot authenticate a request: it is dropped."""
    monkeypatch.setenv("HOOK_SECRET", "a-secret-of-some-length")
    running.add_workflow(
        'name: trailed\non: {webhook: {verify: token, secret: "env:HOOK_SECRET"}}\n'
        "steps: {one: {wait: 1ms}}\n"
    )
    start = CHUNKED.replace(b"none", b"trailed").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n")
    proof = b"X-Webhook-Token: a-secret-of-some-length\r\n"
    for head, status in (
        (start + b"\r\n2\r\n{}\r\n0\r\n" + proof, b"401"),
        (start + proof + b"\r\n2\r\n{}\r\n0\r\n", b"202"),
    ):
        with running.connected() as client:
            client.sendall(head + b"\r\n")
            assert read_until_closed(client)[9:12] == status


def test_a_refused_upload_gets_its_response_and_a_closed_connection(running: Running) -> None:
    """A request without a token gets its response and a closed connection, however large its body."""
    start = b"POST /api/v1/workflows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
    with running.connected() as client:
        client.sendall(start + b"x" * 500_000)
        heard = read_until_closed(client)
    assert heard.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in heard.lower()
    with running.client("") as stranger:
        refused = stranger.post("/api/v1/workflows", content=b"x" * 900_000)
        assert refused.status_code == 401


def test_a_complete_request_keeps_its_connection(running: Running) -> None:
    """The refusal of a complete request leaves the connection open."""
    start = b"POST /api/v1/workflows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    with running.connected() as client:
        client.sendall(start)
        assert client.recv(12) == b"HTTP/1.1 401"
        client.sendall(HEAD + b"\r\n")
        assert b"HTTP/1.1 200" in read_until_closed(client)


def test_a_pipelined_request_keeps_its_connection(running: Running) -> None:
    """The first request is answered while the next one's body is incomplete."""
    body = b'{"reason": "none"}'
    head = (
        "POST /api/v1/tasks/nothing/pause HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {running.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with running.connected() as client:
        client.sendall(head + body + head)
        answers = b""
        while answers.count(b"urn:agent:problem:not-found") < 1:
            answers += client.recv(65_536)
        assert b"connection: close" not in answers
        client.sendall(body)
        while answers.count(b"urn:agent:problem:not-found") < 2:
            received = client.recv(65_536)
            assert received
            answers += received
