"""Large values of external workers go where `[artifacts]` says, and wait for a store that does not answer."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.support.faulty_store import URL, FaultyStore
from tests.support.server import Running, wait_for

LARGE = "x" * 100_000
FLOW = """
name: large-values
steps:
  work: {worker: {queue: large}}
output: "{{ steps.work.output }}"
"""


@pytest.fixture
def started(running: Running, client: httpx.Client) -> str:
    """Return the id of a task whose only step waits for a worker."""
    running.add_workflow(FLOW)
    return str(client.post("/api/v1/workflows/large-values/tasks", json={"input": {}}).json()["id"])


@pytest.fixture
def faulty_store() -> Iterator[type[FaultyStore]]:
    """Return a store that can fail; it is well again afterwards."""
    yield FaultyStore
    FaultyStore.problem = None


def keep_at(url: str, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agent keep large values at an address, as `[artifacts] url` does."""
    services = running.worker.services
    monkeypatch.setattr(services, "limits", replace(services.limits, artifacts_url=url))


def lease(client: httpx.Client) -> str:
    """Claim the work of the task; return the lease."""
    claim = {"queues": ["large"], "worker": "host:1", "wait": 30, "start": True}
    (work,) = client.post("/api/v1/work/claim", json=claim).json()["work"]
    return str(work["lease_id"])


def test_large_values_are_kept_in_the_configured_store(
    running: Running,
    client: httpx.Client,
    started: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An output and an artifact are files there, and are read from there."""
    keep_at(str(tmp_path / "kept"), running, monkeypatch)
    held = f"/api/v1/work/{lease(client)}"
    artifact = client.post(f"{held}/artifact", json={"name": "rows", "value": [LARGE]}).json()
    assert client.post(f"{held}/complete", json={"output": LARGE}).status_code == 200
    assert running.wait_for_task(client, started, "succeeded")["output"] == LARGE
    assert client.get(f"/api/v1/artifacts/{artifact['hash']}").json() == [LARGE]
    kept = {path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert len(kept) == 2 and artifact["hash"] in kept


def test_a_result_waits_for_a_store_that_does_not_answer(
    running: Running,
    client: httpx.Client,
    started: str,
    faulty_store: type[FaultyStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call is to be repeated and changes nothing meanwhile; the lease stays."""
    keep_at(URL, running, monkeypatch)
    held = f"/api/v1/work/{lease(client)}"
    faulty_store.problem = OSError("no route")
    refused = client.post(f"{held}/complete", json={"output": LARGE})
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    assert client.post(f"{held}/heartbeat", json={}).json()["action"] == "continue"
    faulty_store.problem = None

    def is_done() -> bool:
        return client.post(f"{held}/complete", json={"output": LARGE}).status_code == 200

    wait_for(is_done)
    assert running.wait_for_task(client, started, "succeeded")["output"] == LARGE
