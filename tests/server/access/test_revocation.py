"""A revoked token reaches the requests of it that wait, and those whose body has not arrived."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.server import Running, read_until_closed, wait_for

WORKED = """
name: worked
steps:
  review:
    worker: {queue: revoked}
"""


@pytest.fixture(scope="module", autouse=True)
def workflows(running: Running) -> None:
    """Put a workflow on record that offers work."""
    running.add_workflow(WORKED)


@contextmanager
def _waiting(
    running: Running, token: str, method: str, path: str, **options: object
) -> Iterator[list[httpx.Response]]:
    """Send a request that waits; yield the list to which its answer is added."""
    answers: list[httpx.Response] = []

    def ask() -> None:
        with running.client(token) as client:
            answers.append(client.request(method, path, **options))  # type: ignore[arg-type]

    thread = threading.Thread(target=ask)
    thread.start()
    yield answers
    thread.join(60)


def test_a_revoked_token_gets_no_more_work(running: Running, client: httpx.Client) -> None:
    """Its waiting claim ends with 401, and work that comes later stays in the queue."""
    token = running.token_with("work:revoked")
    body = {"queues": ["revoked"], "worker": "one", "wait": 30}
    waiters = running.worker.external_workers._waiters
    with _waiting(running, token, "POST", "/api/v1/work/claim", json=body) as answers:
        wait_for(lambda: waiters)
        began = time.monotonic()
        running.server.tokens.revoke("work:revoked")
        wait_for(lambda: answers)
        assert time.monotonic() - began < 20
    assert answers[0].status_code == 401
    wait_for(lambda: not waiters)
    task_id = client.post("/api/v1/workflows/worked/tasks").json()["id"]
    queue = wait_for(
        lambda: next(
            (
                each
                for each in client.get("/api/v1/work/queues").json()["queues"]
                if each["queue"] == "revoked"
            ),
            None,
        )
    )
    assert (queue["queued"], queue["running"]) == (1, 0)
    client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_a_revoked_token_gets_no_result(running: Running, client: httpx.Client) -> None:
    """A request that waits for a result ends with 401."""
    task_id = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
    context = running.server._context
    assert context is not None
    path = f"/api/v1/tasks/{task_id}/result?wait=60&until=end"
    with _waiting(running, running.token_with("read"), "GET", path) as answers:
        wait_for(lambda: context.waiting_results.has_any)
        running.server.tokens.revoke("read")
        wait_for(lambda: answers)
    assert answers[0].status_code == 401
    assert not context.waiting_results.has_any


def test_a_revoked_token_changes_nothing_with_a_late_body(running: Running) -> None:
    """A command whose body arrives after its token was revoked is refused."""
    token = running.token_with("operate")
    head = (
        "POST /api/v1/workflows/quick/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
    )
    guarded = running.server._context
    assert guarded is not None
    with running.connected() as client:
        client.sendall(head.encode())
        grant = wait_for(lambda: guarded.tokens.grant_of(token))
        assert running.server._uvicorn is not None
        connections = running.server._uvicorn.server_state.connections
        wait_for(lambda: any(connection._is_known for connection in connections))  # type: ignore[union-attr]
        running.server.tokens.revoke("operate")
        wait_for(lambda: not guarded.tokens.still_holds(grant))
        client.sendall(b"{}")
        assert read_until_closed(client).startswith(b"HTTP/1.1 401")
