"""Events by cursor and as a stream: all of them, once each, in the order of their commits."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.server.schemas.events import EventPage
from agent.server.streams import event_stream
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from tests.support.sample_workflows import SIGNALLED
from tests.support.server import Running, wait_for

STREAM = "/api/v1/events/stream"


def _frames(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Read a stream's events, without its comments."""
    frame: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            frame[name] = value
        elif "data" in frame:
            event = json.loads(frame["data"])
            assert (frame["id"], frame["event"]) == (event["cursor"], event["type"])
            yield event
            frame = {}


def _start(client: httpx.Client, workflow: str) -> str:
    return str(client.post(f"/api/v1/workflows/{workflow}/tasks").json()["id"])


def test_pages_of_events(running: Running, client: httpx.Client) -> None:
    """Continuing from each page's cursor returns a task's events without a gap."""
    task_id = _start(client, "quick")
    running.wait_for_task(client, task_id, "succeeded")
    seen: list[int] = []
    after = None
    while True:
        params = {"task": task_id, "limit": "2", **({"after": after} if after else {})}
        page = client.get("/api/v1/events", params=params).json()
        EventPage.model_validate(page)
        if not page["events"]:
            assert page["cursor"] == after
            break
        seen += [event["seq"] for event in page["events"]]
        after = page["cursor"]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 6


@pytest.mark.parametrize("cursor", ["x", "1", "-1-2", "1-2-3", "9" * 30 + "-1"])
def test_invalid_cursors_are_refused(client: httpx.Client, cursor: str) -> None:
    """A malformed cursor is refused, in pages and in streams."""
    for path in ("/api/v1/events", STREAM):
        assert client.get(path, params={"after": cursor}).status_code == 422
    assert client.get(STREAM, headers={"Last-Event-ID": cursor}).status_code == 422


def test_a_stream_has_new_events(database: Database, tmp_path: Path) -> None:
    """A stream starts now, has the commits of every process, and resumes after its last event."""
    with Running(database, tmp_path) as running, running.client() as client:
        running.add_workflow(SIGNALLED)
        before = _start(client, "signalled")
        # On PostgreSQL a commit can be read a little later than it is acknowledged.
        wait_for(lambda: client.get("/api/v1/events", params={"task": before}).json()["events"])
        with client.stream("GET", STREAM, params={"task": before}) as old:
            assert old.headers["content-type"].startswith("text/event-stream")
            lines = old.iter_lines()
            assert next(lines).startswith(":")
            # As another process would.
            Operator(database, database.clock).signal(before, "go", 1)
            seen = []
            for event in _frames(lines):
                seen.append(event)
                if event["type"] == "step.woken":
                    break
        with client.stream(
            "GET",
            STREAM,
            params={"task": before},
            headers={"Last-Event-ID": seen[-1]["cursor"]},
        ) as new:
            for event in _frames(new.iter_lines()):
                seen.append(event)
                if event["type"] == "task.succeeded":
                    break
        numbers = [event["seq"] for event in seen]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        everything = client.get("/api/v1/events", params={"task": before, "limit": 1000}).json()
        assert everything["events"][-len(seen) :] == seen


def test_streams_end_with_the_server(sqlite_database: Database, tmp_path: Path) -> None:
    """An open stream does not delay the daemon's stop; its client sees an end, not an error."""
    is_open = threading.Event()
    ended = threading.Event()

    def read(running: Running) -> None:
        with running.client() as client, client.stream("GET", STREAM) as stream:
            for _ in stream.iter_lines():
                is_open.set()
        ended.set()

    with Running(sqlite_database, tmp_path) as running:
        reader = threading.Thread(target=read, args=(running,), daemon=True)
        reader.start()
        assert is_open.wait(60)
    assert ended.wait(60)


def test_streams_are_limited(sqlite_database: Database, tmp_path: Path) -> None:
    """A stream above the limit gets 503; a closed one frees a slot."""
    with (
        Running(sqlite_database, tmp_path, max_streams=1) as running,
        running.client() as client,
    ):
        with client.stream("GET", STREAM) as first:
            # Kept: a reader that is dropped ends the stream.
            lines = first.iter_lines()
            next(lines)
            with client.stream("GET", STREAM) as refused:
                assert refused.status_code == 503
                assert "retry-after" in refused.headers

        def is_free() -> bool:
            with client.stream("GET", STREAM) as again:
                return again.status_code == 200

        wait_for(is_free)


def test_a_quiet_stream_is_kept_alive(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without events a comment is sent now and then, to keep the connection alive."""
    monkeypatch.setattr(event_stream, "_KEEPALIVE_SECONDS", 0.1)
    monkeypatch.setattr(event_stream, "_POLL_SECONDS", 0.05)
    with (
        Running(sqlite_database, tmp_path) as running,
        running.client() as client,
        client.stream("GET", STREAM, params={"task": "none"}) as quiet,
    ):
        comments = [line for _, line in zip(range(6), quiet.iter_lines(), strict=False) if line]
        assert comments == [": events follow", ": still here", ": still here"]


def test_a_client_that_does_not_read_blocks_no_other(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """A client that does not read costs one page of memory, and its disconnect is noticed."""
    with (
        Running(sqlite_database, tmp_path, max_streams=1) as running,
        running.client() as client,
    ):
        running.add_workflow(SIGNALLED)
        task_id = _start(client, "signalled")
        host, _, port = running.server.url.removeprefix("http://").rpartition(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        slow.sendall(
            f"GET {STREAM}?after=0-0 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {running.token}\r\n\r\n".encode()
        )
        assert slow.recv(12) == b"HTTP/1.1 200"
        # Far more than the sockets between the two can hold.
        operator = Operator(sqlite_database, sqlite_database.clock)
        for _ in range(60):
            operator.pause(task_id, "x" * 200_000)
            operator.resume(task_id)
        page = client.get("/api/v1/events", params={"task": task_id, "limit": 1000})
        assert len(page.content) > 10_000_000
        with client.stream("GET", STREAM) as refused:
            assert refused.status_code == 503
        assert client.get(f"/api/v1/tasks/{task_id}").json()["status"] == "running"
        slow.close()

        def is_free() -> bool:
            with client.stream("GET", STREAM) as again:
                return again.status_code == 200

        wait_for(is_free)


def test_a_stream_ends_with_its_token(sqlite_database: Database, tmp_path: Path) -> None:
    """A client whose token is revoked gets no more events, also over an open stream."""
    with Running(sqlite_database, tmp_path) as running:
        with (
            running.client(running.token_with("read")) as reader,
            reader.stream("GET", STREAM) as response,
        ):
            lines = response.iter_lines()
            assert next(lines) == ": events follow"
            running.server.tokens.revoke("read")
            # It says nothing more, and ends by itself.
            assert [line for line in lines if line.startswith("data")] == []
        with running.client() as owner, owner.stream("GET", STREAM) as response:
            assert next(response.iter_lines()) == ": events follow"
