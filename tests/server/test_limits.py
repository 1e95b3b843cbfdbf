"""Limits: large bodies, overload, a missing database, health and metrics."""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.config.settings import ServerSettings
from agent.server.connections.bind import UnsafeBindError, check_bind, is_loopback, listen
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.sqlite import SqliteConnection
from agent.tasks.operator.operator import Operator
from tests.support.sample_workflows import QUICK, SIGNALLED
from tests.support.server import Running, wait_for


def test_large_bodies(sqlite_database: Database, tmp_path: Path) -> None:
    """A body over the limit is refused, with or without Content-Length, with a token or a webhook."""
    with (
        Running(sqlite_database, tmp_path, max_body_bytes=2048) as running,
        running.client() as client,
    ):
        running.add_workflow(QUICK)
        running.add_workflow(
            'name: hook\non: {webhook: {verify: token, secret: "env:PATH"}}\n'
            "steps: {one: {wait: 1ms}}\n"
        )

        def pieces() -> Iterator[bytes]:
            yield b'{"input": {"word": "'
            for _ in range(8):
                yield b"x" * 500
            yield b'"}}'

        for path in ("/api/v1/workflows/quick/tasks", "/api/v1/workflows", "/hooks/hook"):
            for content in (b"x" * 4096, pieces()):
                refused = client.post(
                    path, content=content, headers={"Content-Type": "application/json"}
                )
                assert refused.status_code == 413, (path, refused.text)
                assert refused.json()["type"] == "urn:agent:problem:too-large"
        small = client.post("/api/v1/workflows/quick/tasks", json={"input": {"word": "x" * 1500}})
        assert small.status_code == 201


def test_overload_is_reported_and_loses_nothing(sqlite_database: Database, tmp_path: Path) -> None:
    """Above its limits the server returns 429 or 503; every 201 is a task, and there are no others."""
    with (
        Running(sqlite_database, tmp_path, max_requests=2, database_threads=1) as running,
        running.client() as client,
    ):
        running.add_workflow("name: plain\nsteps: {one: {wait: {signal: never}}}\n")

        def create(number: int) -> httpx.Response:
            return client.post(
                "/api/v1/workflows/plain/tasks", headers={"Idempotency-Key": f"key-{number}"}
            )

        with ThreadPoolExecutor(24) as threads:
            answers = list(threads.map(create, range(120)))
        codes = {answer.status_code for answer in answers}
        assert codes <= {201, 429, 503}
        assert 201 in codes
        for answer in answers:
            if answer.status_code != 201:
                assert int(answer.headers["retry-after"]) >= 1
        created = {answer.json()["id"] for answer in answers if answer.status_code == 201}
        listed = wait_for(
            lambda: client.get("/api/v1/tasks", params={"limit": 500}).json().get("tasks")
        )
        assert {task["id"] for task in listed} == created


def test_health_needs_no_token(running: Running) -> None:
    """A health check works without a token and under any host name."""
    with running.client("", Host="10.0.0.7:8420") as prober:
        assert prober.get("/healthz").json() == {"status": "ok"}
        assert prober.get("/readyz").json() == {"status": "ok"}


def test_not_ready_without_a_database(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/healthz` is ok, `/readyz` and requests are 503, and no response shows a path."""
    with Running(sqlite_database, tmp_path) as running, running.client() as client:

        def fail(*_: object) -> None:
            raise StoreError(Fault.LOST, f"cannot open {sqlite_database.path}")

        with monkeypatch.context() as patched:
            patched.setattr(SqliteConnection, "_begin_snapshot", fail)
            assert client.get("/healthz").status_code == 200
            refused = client.get("/readyz")
            assert refused.status_code == 503
            assert refused.json() == {"status": "unavailable", "because": ["database"]}
            assert str(tmp_path) not in refused.text
            assert client.get("/api/v1/tasks").status_code == 503
        wait_for(lambda: client.get("/readyz").status_code == 200)


def test_metrics(running: Running, client: httpx.Client) -> None:
    """Every line of /metrics is valid for Prometheus, and the values are right."""
    task_id = client.post("/api/v1/workflows/quick/tasks").json()["id"]
    running.wait_for_task(client, task_id, "succeeded")
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: dict[str, float] = {}
    for line in response.text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) agent_[a-z_]+ .+", line)
            continue
        sample = re.fullmatch(r'(agent_[a-z_]+(?:\{[a-z]+="[^"]+"\})?) ([0-9.e+-]+)', line)
        assert sample, line
        samples[sample[1]] = float(sample[2])
    assert samples['agent_tasks{status="succeeded"}'] >= 1
    assert samples["agent_workers"] == 1
    assert samples["agent_attempts_total"] >= 2
    assert (
        samples["agent_commit_duration_seconds_count"]
        == samples['agent_commit_duration_seconds_bucket{le="+Inf"}']
        > 0
    )
    assert samples['agent_events_total{type="task.succeeded"}'] >= 1
    assert {
        "agent_queue_age_seconds",
        "agent_unknown_effects",
        "agent_approvals_waiting",
        "agent_spend_usd_today",
        "agent_model_seconds_today",
        "agent_schedule_lag_seconds",
        'agent_firings_total{status="started"}',
        'agent_firings{status="missed"}',
    } <= set(samples)


def _event_counts(client: httpx.Client) -> dict[str, int]:
    counts = re.findall(
        r'agent_events_total\{type="([^"]+)"\} ([0-9]+)', client.get("/metrics").text
    )
    return {name: int(count) for name, count in counts}


def test_metrics_count_what_any_process_commits(database: Database, tmp_path: Path) -> None:
    """Commands over the API and by another process count once each in agent_events_total."""
    with Running(database, tmp_path) as running, running.client() as client:
        running.add_workflow(SIGNALLED)
        task_id = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
        client.post(f"/api/v1/tasks/{task_id}/pause").raise_for_status()
        client.post(f"/api/v1/tasks/{task_id}/resume").raise_for_status()
        operator = Operator(database, database.clock)
        operator.pause(task_id)
        operator.cancel(task_id)
        wait_for(lambda: _event_counts(client).get("task.canceled") == 1)

        def is_equal() -> bool:
            # Without what belongs to no task: the worker may have started before counting began.
            counts = _event_counts(client)
            page = client.get("/api/v1/events", params={"task": task_id, "limit": 1000}).json()
            logged = Counter(event["type"] for event in page["events"])
            return {name: counts.get(name, 0) for name in logged} == logged

        wait_for(is_equal)
        assert _event_counts(client)["task.paused"] == 2


@pytest.mark.parametrize(
    ("host", "is_safe"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.com", False),
    ],
)
def test_remote_addresses_need_a_setting(host: str, *, is_safe: bool) -> None:
    """An address that other machines can reach needs `allow_remote`."""
    assert is_loopback(host) is is_safe
    check_bind(ServerSettings(host=host, allow_remote=True))
    check_bind(ServerSettings(host=host, enabled=False))
    if is_safe:
        check_bind(ServerSettings(host=host))
        return
    with pytest.raises(UnsafeBindError, match="allow_remote"):
        check_bind(ServerSettings(host=host))


def test_a_slow_client_delays_no_other(running: Running, client: httpx.Client) -> None:
    """A request that never ends delays only its own connection."""
    port = int(running.server.url.rpartition(":")[2])
    slow: list[Any] = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    try:
        for connection in slow:
            connection.sendall(b"POST /api/v1/workflows HTTP/1.1\r\nHost: localhost\r\n")
        assert client.get("/api/v1/tasks").status_code == 200
    finally:
        for connection in slow:
            connection.close()


async def _first_connection(listening: socket.socket) -> Any:
    """Return the server's socket of the first connection."""
    connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, w: connected.set_result(w), sock=listening)
    async with server:
        _, writer = await asyncio.open_connection(*listening.getsockname())
        accepted = await connected
        try:
            return accepted.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY
            )
        finally:
            for stream in (writer, accepted):
                stream.close()
                await stream.wait_closed()


def test_small_responses_are_sent_at_once() -> None:
    """TCP_NODELAY is set: no response waits 40 ms for an acknowledgement."""
    assert asyncio.run(_first_connection(listen(ServerSettings(port=0))))
