"""The removal of old tasks over HTTP."""

import json
from pathlib import Path

import httpx
import pytest

from agent.core.logs import audit
from agent.server.routes import pruning
from agent.store.db.database import Database
from tests.support.sample_workflows import QUICK
from tests.support.server import Running


def start(running: Running, client: httpx.Client) -> str:
    """Run a task to its end."""
    created = client.post("/api/v1/workflows/quick/tasks", json={})
    assert created.status_code == 201, created.text
    task = str(created.json()["id"])
    running.wait_for_task(client, task, "succeeded")
    return task


def test_old_tasks_are_counted_and_then_removed(database: Database, tmp_path: Path) -> None:
    """Without arguments nothing is removed; what was counted is what goes, on each database."""
    audit.configure(tmp_path)
    with Running(database, tmp_path) as running, running.client() as client:
        running.add_workflow(QUICK)
        task = start(running, client)
        counted = client.post("/api/v1/prune").json()
        assert (counted["dry_run"], counted["days"], counted["is_complete"]) == (True, 30, True)
        assert counted["counts"]["tasks"] == 0, "it is younger than engine.retention_days"
        would = client.post("/api/v1/prune", json={"days": 0}).json()
        assert (would["dry_run"], would["counts"]["tasks"]) == (True, 1)
        assert client.get(f"/api/v1/tasks/{task}").status_code == 200
        done = client.post("/api/v1/prune", json={"days": 0, "dry_run": False}).json()
        assert (done["dry_run"], done["counts"]) == (False, would["counts"])
        assert done["kept"] == {"tasks": 0, "artifacts": 0, "artifact_bytes": 0}
        assert (done["bytes_freed"] is not None) == database.is_sqlite
        assert client.get(f"/api/v1/tasks/{task}").status_code == 404
        assert start(running, client), "the agent goes on"
    entries = [json.loads(line) for line in (tmp_path / audit.NAME).read_text().splitlines()]
    pruned = [entry for entry in entries if entry["what"] == "prune tasks"]
    assert [entry["dry_run"] for entry in pruned] == [True, True, False]
    assert pruned[-1]["removed"]["tasks"] == 1 and "removed" not in pruned[0]


def test_one_request_removes_for_a_bounded_time(
    running: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over it says that there is more; the next request goes on."""
    start(running, client)
    remove = {"days": 0, "dry_run": False}
    monkeypatch.setattr(pruning, "MOST_SECONDS", 0.0)
    first = client.post("/api/v1/prune", json=remove).json()
    assert (first["is_complete"], first["kept"]) == (False, None)
    monkeypatch.setattr(pruning, "MOST_SECONDS", 60.0)
    assert client.post("/api/v1/prune", json=remove).json()["is_complete"]


def test_only_an_admin_prunes(running: Running) -> None:
    """Not even a dry run is for others; a wrong age is refused."""
    for scope in ("read", "operate", "approve", "work:*"):
        with running.client(running.token_with(scope)) as client:
            assert client.post("/api/v1/prune").status_code == 403
    with running.client(running.token_with("admin")) as client:
        for body in ({"days": -1}, {"days": 1e9}, {"days": "30d"}, {"dry_run": 1}, {"older": 1}):
            assert client.post("/api/v1/prune", json=body).status_code == 422, body
        assert client.post("/api/v1/prune").status_code == 200
