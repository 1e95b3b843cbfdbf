"""Responses while the workflow files, the database or the store of large values is unavailable."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.config.execution import EngineSettings
from agent.server import task_submitter
from agent.server.monitoring.readiness import Readiness
from agent.store.artifacts import bounded_calls
from agent.store.artifacts.blobs import BlobStores
from agent.store.db import sqlite, sqlite_driver
from agent.store.db.database import Database
from tests.support import faulty_store
from tests.support.server import Running, wait_for

QUICK = "name: quick\nsteps: {one: {wait: 1ms}}\n"
HOOK = """\
name: hook
on: {webhook: {verify: token, secret: "env:PATH"}}
steps: {one: {wait: 1ms}}
"""
LARGE = """\
name: large
steps: {one: {shell: {script: "head -c 200000 /dev/zero | tr '\\\\0' x", effect: none}}}
"""


def test_the_disk_decides_too(running: Running) -> None:
    """Low space degrades the agent; with hardly any left it is not ready."""
    health = running.worker.health
    with running.client() as client:
        try:
            health.report("disk", "400 MB are free")
            low = client.get("/readyz")
            assert (low.status_code, low.json()) == (
                200,
                {"status": "degraded", "because": ["disk"]},
            )
            health.report("disk", "10 MB are free", is_certain=True)
            full = client.get("/readyz")
            assert (full.status_code, full.json()["because"]) == (503, ["disk"])
        finally:
            health.resolve("disk")
        assert client.get("/readyz").json() == {"status": "ok"}


def test_a_workflow_may_still_be_in_a_file(running: Running) -> None:
    """Until the files are recorded, an unknown workflow is 503, not 404."""
    startup = running.server.startup
    with running.client() as client:
        running.add_workflow(QUICK)
        requests: list[Callable[[str], httpx.Response]] = [
            lambda name: client.post(f"/api/v1/workflows/{name}/tasks", json={}),
            lambda name: client.get(f"/api/v1/workflows/{name}"),
            lambda name: client.get(f"/api/v1/workflows/{name}/versions/latest"),
            lambda name: client.post(f"/hooks/{name}", content=b"{}"),
        ]
        startup.has_workflows = False
        try:
            for ask in requests:
                refused = ask("not-read-yet")
                assert refused.status_code == 503, refused.text
                assert int(refused.headers["retry-after"]) >= 1
            assert client.post("/api/v1/workflows/quick/tasks", json={}).status_code == 201
            assert client.get("/readyz").json() == {"status": "starting"}
            assert client.get("/readyz").status_code == 503
        finally:
            startup.has_workflows = True
        # Whether a workflow takes webhooks is not told to who has no signature.
        assert [ask("not-read-yet").status_code for ask in requests] == [404, 404, 404, 401]
        assert client.get("/readyz").json() == {"status": "ok"}


@pytest.fixture
def without_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Make SQLite report a full disk while the list holds True."""
    is_full = [False]
    execute = sqlite.SqliteConnection._begin
    full = sqlite_driver.driver().module.OperationalError("database or disk is full")
    full.sqlite_errorcode = 13

    def begin(connection: sqlite.SqliteConnection) -> None:
        if is_full[0]:
            connection._fail(full)
        execute(connection)

    monkeypatch.setattr(sqlite.SqliteConnection, "_begin", begin)
    yield is_full
    is_full[0] = False


def test_a_full_disk_refuses_in_time(
    sqlite_database: Database,
    tmp_path: Path,
    without_room: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Submissions get 503 in time; one with a key can be repeated once there is space."""
    with Running(sqlite_database, tmp_path) as running, running.client() as client:
        running.add_workflow(QUICK)
        path, key = "/api/v1/workflows/quick/tasks", {"Idempotency-Key": "the-same"}
        assert client.post(path, json={}).status_code == 201
        without_room[0] = True
        with monkeypatch.context() as patch:
            patch.setattr(task_submitter, "COMMIT_TIMEOUT_SECONDS", 2.0)
            for headers in ({}, key, {}):
                began = time.monotonic()
                refused = client.post(path, json={}, headers=headers)
                assert time.monotonic() - began < task_submitter.COMMIT_TIMEOUT_SECONDS + 5
                assert refused.status_code == 503, refused.text
                assert refused.headers["content-type"] == "application/problem+json"
                assert refused.headers["retry-after"]
        readiness: Any = wait_for(
            lambda: (answer := client.get("/readyz")).status_code == 503 and answer.json()
        )
        assert readiness == {"status": "unavailable", "because": ["database"]}
        without_room[0] = False
        wait_for(lambda: client.get("/readyz").json() == {"status": "ok"})
        created = [client.post(path, json={}, headers=key).json()["id"] for _ in range(2)]
        assert created[0] == created[1]
        running.wait_for_task(client, created[0], "succeeded")
        # What was refused was withdrawn: it does not come into being later.
        assert len(client.get("/api/v1/tasks").json()["tasks"]) == 2


@pytest.mark.parametrize("command", ["key", "retry"])
def test_a_refused_write_shows_at_once(
    sqlite_database: Database, tmp_path: Path, without_room: list[bool], command: str
) -> None:
    """`/readyz` reports a refused write before the idle worker has seen the full disk."""
    with Running(sqlite_database, tmp_path) as running, running.client() as client:
        running.add_workflow(QUICK)
        path = "/api/v1/workflows/quick/tasks"
        task_id = client.post(path, json={}).json()["id"]
        running.wait_for_task(client, task_id, "succeeded")
        wait_for(lambda: client.get("/readyz").json() == {"status": "ok"})
        without_room[0] = True
        if command == "key":
            refused = client.post(path, json={}, headers={"Idempotency-Key": "the-same"})
        else:
            refused = client.post(f"/api/v1/tasks/{task_id}/retry")
        ready = client.get("/readyz")
        assert refused.status_code == 503, refused.text
        assert ready.json() == {"status": "unavailable", "because": ["database"]}
        without_room[0] = False
        wait_for(lambda: client.get("/readyz").json() == {"status": "ok"})


def test_an_unreachable_store_is_reported(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent accepts tasks and reports `degraded`, then `ok` again."""
    monkeypatch.setattr(bounded_calls, "LONGEST_DELAY_SECONDS", 0.2)
    sqlite_database.blob_stores = BlobStores(faulty_store.URL, timeout_seconds=0.3)
    running = Running(sqlite_database, tmp_path)
    artifacts = running.settings.artifacts.model_copy(update={"url": faulty_store.URL})
    running.settings = running.settings.model_copy(
        update={"artifacts": artifacts, "engine": EngineSettings(poll_seconds=0.2)}
    )
    with faulty_store.broken("hangs"), running, running.client() as client:
        running.add_workflow(QUICK)
        running.add_workflow(LARGE)
        stuck = client.post("/api/v1/workflows/large/tasks", json={}).json()["id"]
        wait_for(lambda: client.get("/readyz").json()["status"] == "degraded")
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["because"]) == (200, ["artifacts"])
        began = time.monotonic()
        other = client.post("/api/v1/workflows/quick/tasks", json={})
        assert other.status_code == 201
        running.wait_for_task(client, other.json()["id"], "succeeded")
        assert time.monotonic() - began < 20
        (step,) = client.get(f"/api/v1/tasks/{stuck}").json()["steps"]
        assert step["delay"]["store"] == "faulty://bucket"
        faulty_store.recover()
        running.wait_for_task(client, stuck, "succeeded")
        wait_for(lambda: client.get("/readyz").json() == {"status": "ok"})


def test_health_checks_use_no_capacity(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database hangs, waiting health checks use no capacity of other requests."""
    waiting = 0

    async def hang(_: Readiness) -> None:
        nonlocal waiting
        waiting += 1
        await asyncio.sleep(60)

    monkeypatch.setattr(Readiness, "check", hang)
    request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        running = stack.enter_context(Running(sqlite_database, tmp_path, max_requests=4))
        for _ in range(10):
            stack.enter_context(running.connected()).sendall(request)
        wait_for(lambda: waiting == 10)
        with running.client() as client:
            assert client.get("/api/v1/tasks").status_code == 200
