"""Workflows over HTTP: those in files can be read, those given here can be changed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.server.routes import workflows
from agent.server.schemas.workflows import WorkflowDocument, WorkflowList
from agent.store.db.database import Database
from tests.support.server import Running, wait_for

POSTED = "name: given\nsteps: {one: {wait: 1ms}}\n"
YAML = {"Content-Type": "application/yaml"}


def test_the_life_of_a_workflow(running: Running, client: httpx.Client) -> None:
    """Create, repeat, change to a new version, start, remove."""
    made = client.post("/api/v1/workflows", content=POSTED, headers=YAML)
    assert made.status_code == 201, made.text
    WorkflowDocument.model_validate(made.json())
    assert (made.json()["version"], made.json()["source"]) == (1, POSTED)
    assert client.post("/api/v1/workflows", content=POSTED, headers=YAML).status_code == 200
    changed = client.post("/api/v1/workflows", content=POSTED.replace("1ms", "2ms"), headers=YAML)
    assert (changed.status_code, changed.json()["version"]) == (201, 2)
    task_id = client.post("/api/v1/workflows/given/tasks").json()["id"]
    running.wait_for_task(client, task_id, "succeeded")
    document = client.get("/api/v1/workflows/given").json()
    assert [version["tasks"] for version in document["versions"]] == [1, 0]
    assert client.delete("/api/v1/workflows/given").status_code == 204
    assert client.delete("/api/v1/workflows/given").status_code == 404
    assert client.get("/api/v1/workflows/given").status_code == 404
    assert client.post("/api/v1/workflows/given/tasks").status_code == 404
    assert client.get(f"/api/v1/tasks/{task_id}").status_code == 200
    # Its tasks go on, so what they run can still be seen.
    for version, source in ((1, POSTED), (2, POSTED.replace("1ms", "2ms")), ("latest", None)):
        document = client.get(f"/api/v1/workflows/given/versions/{version}").json()
        assert document["removed_at"] is not None
        assert source in (None, document["source"])
    assert client.get("/api/v1/workflows/given/versions/3").status_code == 404
    assert client.get("/api/v1/workflows/given/versions/x").status_code == 422


def test_the_list(client: httpx.Client) -> None:
    """Every workflow that can be started is listed, with its file."""
    listed = client.get("/api/v1/workflows").json()
    WorkflowList.model_validate(listed)
    workflows = {workflow["name"]: workflow for workflow in listed["workflows"]}
    assert workflows["quick"]["description"] == "Two steps that end at once."
    assert workflows["quick"]["file"] is None
    assert workflows["filed"]["file"] == "/somewhere/filed.yaml"


def test_files_are_read_only(client: httpx.Client) -> None:
    """A workflow that a file defines cannot be changed over the API."""
    text = POSTED.replace("given", "filed")
    for refused in (
        client.post("/api/v1/workflows", content=text, headers=YAML),
        client.delete("/api/v1/workflows/filed"),
    ):
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:agent:problem:read-only"


def test_one_workflow_takes_free_text(client: httpx.Client) -> None:
    """A second one is refused until the first is removed; the first may be changed."""
    text = "name: NAME\non: {chat: {text: true}}\nsteps: {one: {wait: 1ms}}\n"
    first, second = text.replace("NAME", "butler"), text.replace("NAME", "clerk")
    assert client.post("/api/v1/workflows", content=first, headers=YAML).status_code == 201
    refused = client.post("/api/v1/workflows", content=second, headers=YAML)
    assert (refused.status_code, "'butler' takes free text" in refused.json()["detail"]) == (
        409,
        True,
    )
    changed = first.replace("1ms", "2ms")
    assert client.post("/api/v1/workflows", content=changed, headers=YAML).status_code == 201
    assert client.delete("/api/v1/workflows/butler").status_code == 204
    assert client.post("/api/v1/workflows", content=second, headers=YAML).status_code == 201
    assert client.delete("/api/v1/workflows/clerk").status_code == 204


def test_json_is_the_same_language(client: httpx.Client) -> None:
    """A workflow can be posted as JSON."""
    document = {"name": "as-json", "steps": {"one": {"wait": "1ms"}}}
    assert client.post("/api/v1/workflows", json=document).status_code == 201
    assert client.get("/api/v1/workflows/as-json").json()["graph"]["steps"][0]["name"] == "one"


def test_all_problems_are_reported_at_once(client: httpx.Client) -> None:
    """An invalid workflow is refused with every problem, its line and its key."""
    text = "name: wrong\nsteps:\n  one: {shel: {argv: [a]}}\n  two: {depends_on: [on], wait: 1s}\n"
    refused = client.post("/api/v1/workflows", content=text, headers=YAML)
    assert refused.status_code == 422
    assert {problem["line"] for problem in refused.json()["errors"]} == {3, 4}
    for content in (b"", b"\xff\xfe", b"[", b"a: &a [*a]"):
        bad = client.post("/api/v1/workflows", content=content, headers=YAML)
        assert bad.status_code == 422
    form = client.post("/api/v1/workflows", content=POSTED, headers={"Content-Type": "text/plain"})
    assert form.status_code == 415


def test_a_check_that_takes_too_long_is_given_up(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the processor is bounded; the answer says so, and holds no workflow."""
    monkeypatch.setattr(workflows, "CHECK_SECONDS", 0.2)
    source = "name: long\nsteps:\n" + "".join(f"  s{n}: {{wait: 1ms}}\n" for n in range(40_000))
    answered = client.post("/api/v1/validate", json={"source": source}).json()
    assert (answered["valid"], answered["workflow"]) == (False, None)
    assert "takes more than 0.2 seconds" in answered["problems"][0]["message"]


def test_checks_of_one_token_block_neither_reads_nor_all_checks(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a thread of their own, and a token leaves room for another's."""
    may_end = threading.Event()
    validate = workflows._validate

    def wait(source: str) -> dict[str, Any]:
        assert may_end.wait(60)
        return validate(source)

    monkeypatch.setattr(workflows, "_validate", wait)
    body = {"source": POSTED}
    with (
        Running(sqlite_database, tmp_path, database_threads=1) as running,
        running.client() as owner,
        running.client(running.token_with("read")) as reader,
        ThreadPoolExecutor(4) as threads,
    ):
        checks = [threads.submit(reader.post, "/api/v1/validate", json=body) for _ in range(3)]
        context = running.server._context
        assert context is not None
        wait_for(lambda: context.check_thread.pending == 3)
        assert reader.post("/api/v1/validate", json=body).status_code == 503
        assert owner.get("/api/v1/tasks").status_code == 200
        checks.append(threads.submit(owner.post, "/api/v1/validate", json=body))
        wait_for(lambda: context.check_thread.pending == 4)
        may_end.set()
        assert [check.result().json()["valid"] for check in checks] == [True] * 4
        assert not context.checks.has_any
