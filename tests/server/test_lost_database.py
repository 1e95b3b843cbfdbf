"""Requests in flight when the agent ends: its database is gone, or the grace of a stop is over."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent.server.application import _ResponseHeaders
from agent.server.monitoring.metrics import ServerMetrics
from agent.store.db.database import Database
from tests.support.engine import eventually
from tests.support.server import PATIENCE_SECONDS, Running

WORKFLOW = "name: hello\nsteps: {one: {wait: {signal: go}}}\n"
CLAIM = {"queues": ["desk"], "worker": "w", "wait": 30}


def test_requests_in_flight_get_a_problem_document(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """A claim that waits for work, and a task whose commit is under way: 503, not a bare 500."""
    assert sqlite_database.path is not None
    may_commit = threading.Event()
    with Running(sqlite_database, tmp_path) as running, ThreadPoolExecutor(2) as threads:
        running.add_workflow(WORKFLOW)
        worker, loop = running.worker, running._loop
        assert loop is not None
        with running.client() as client:
            claiming = threads.submit(client.post, "/api/v1/work/claim", json=CLAIM)
            eventually(lambda: worker.external_workers._waiters)
            blocked = worker.database_thread.run(lambda: may_commit.wait(PATIENCE_SECONDS))
            asyncio.run_coroutine_threadsafe(blocked, loop)
            creating = threads.submit(client.post, "/api/v1/workflows/hello/tasks", json={})
            eventually(lambda: worker.submitters._waiting)
            sqlite_database.path.unlink()
            may_commit.set()
            for request in (claiming, creating):
                response = request.result(PATIENCE_SECONDS)
                assert response.status_code == 503
                assert response.json()["type"] == "urn:agent:problem:unavailable"


def test_a_request_that_a_stop_cuts_off_gets_a_problem_document(running: Running) -> None:
    """The server cancels it when the grace is over; once its response has begun, the connection ends."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def cut_off(*_: Any) -> None:
        raise asyncio.CancelledError

    app = _ResponseHeaders(cut_off, ServerMetrics(running.worker))
    asyncio.run(app({"type": "http", "headers": []}, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 503
    assert b"urn:agent:problem:stopping" in sent[1]["body"]
