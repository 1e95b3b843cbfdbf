"""Workflows over HTTP: those in files can be read, those given here can be changed."""

import httpx

from agent.server.schemas.workflows import WorkflowDocument, WorkflowList
from tests.support.server import Running

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
