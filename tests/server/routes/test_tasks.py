"""Tasks over HTTP: started, followed, steered, and refused with a problem document."""

from typing import Any

import httpx
import pytest

from agent.server.schemas.steps import LogPage, StepList
from agent.server.schemas.tasks import CommandAnswer, CreatedTask, TaskDocument, TaskPage
from agent.tasks.read_models import task_documents
from tests.support.server import Running, wait_for


def _start(client: httpx.Client, workflow: str, **body: Any) -> str:
    created = client.post(f"/api/v1/workflows/{workflow}/tasks", json=body)
    assert created.status_code == 201, created.text
    return str(created.json()["id"])


def _exactly(shape: Any, document: Any) -> None:
    """Check that a document has exactly the members in the API's description."""
    shape.model_validate(document)
    assert set(document) <= set(shape.model_fields) | {"waits"}, set(document)


def test_a_task_from_start_to_end(running: Running, client: httpx.Client) -> None:
    """The response has the task's address; its document equals the command line's."""
    created = client.post("/api/v1/workflows/quick/tasks", json={"input": {"word": "ho"}})
    assert created.status_code == 201
    _exactly(CreatedTask, created.json())
    assert created.headers["location"] == created.json()["url"]
    task_id = created.json()["id"]
    task = running.wait_for_task(client, task_id, "succeeded")
    assert task["output"] == "ho"
    assert task["trigger"] == {"kind": "api", "by": "owner"}
    _exactly(TaskDocument, task)
    with running.database.connect("reader") as connection:
        assert task == task_documents.task_document(connection, task_id)
    steps = client.get(f"/api/v1/tasks/{task_id}/steps").json()
    _exactly(StepList, steps)
    assert steps["steps"] == task["steps"]


def test_a_body_is_optional(running: Running, client: httpx.Client) -> None:
    """A workflow whose inputs have defaults starts without any body."""
    created = client.post("/api/v1/workflows/quick/tasks")
    assert created.status_code == 201
    task = running.wait_for_task(client, created.json()["id"], "succeeded")
    assert task["output"] == "hello"


def test_logs_of_a_step(running: Running, client: httpx.Client) -> None:
    """A step's log comes in pages, the oldest first."""
    task_id = _start(client, "quick", input={"word": "said"})
    running.wait_for_task(client, task_id, "succeeded")
    address = f"/api/v1/tasks/{task_id}/steps/one/logs"
    page = wait_for(lambda: (page := client.get(address).json())["logs"] and page)
    _exactly(LogPage, page)
    assert "said" in page["logs"][0]["text"]
    rest = client.get(address, params={"after": page["next"]}).json()
    assert rest == {"logs": [], "next": page["next"]}
    for wrong in (f"/api/v1/tasks/{task_id}/steps/none/logs", "/api/v1/tasks/none/steps/one/logs"):
        assert client.get(wrong).status_code == 404


def test_logs_of_a_task(running: Running, client: httpx.Client) -> None:
    """The logs of all steps come in one list, in the order they were written."""
    running.add_workflow(
        "name: talks\nsteps:\n  one: {shell: {argv: [echo, first], effect: none}}\n"
        "  two: {depends_on: [one], shell: {argv: [echo, second], effect: none}}\n"
    )
    task_id = _start(client, "talks")
    running.wait_for_task(client, task_id, "succeeded")
    page = client.get(f"/api/v1/tasks/{task_id}/logs").json()
    _exactly(LogPage, page)
    assert [(piece["step"], piece["text"].strip()) for piece in page["logs"]] == [
        ("one", "first"),
        ("two", "second"),
    ]
    rest = client.get(f"/api/v1/tasks/{task_id}/logs", params={"after": page["logs"][0]["id"]})
    assert [piece["step"] for piece in rest.json()["logs"]] == ["two"]
    assert client.get("/api/v1/tasks/none/logs").status_code == 404


def test_pages_of_tasks(running: Running, client: httpx.Client) -> None:
    """Following `next` returns every task once, the newest first, also while tasks are created."""
    running.add_workflow("name: paged\nsteps: {one: {wait: {signal: never}}}\n")
    made = [_start(client, "paged") for _ in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"workflow": "paged", "limit": "3", **({"cursor": cursor} if cursor else {})}
        page = client.get("/api/v1/tasks", params=params).json()
        _exactly(TaskPage, page)
        seen += [task["id"] for task in page["tasks"]]
        cursor = page["next"]
        if cursor is None:
            break
        _start(client, "paged")
    assert seen == made[::-1]


def test_filters_of_tasks(running: Running, client: httpx.Client) -> None:
    """Tasks are listed by status and by workflow; an unknown status is refused, not ignored."""
    task_id = _start(client, "quick")
    running.wait_for_task(client, task_id, "succeeded")
    listed = client.get("/api/v1/tasks", params={"status": "succeeded", "workflow": "quick"}).json()
    assert task_id in {task["id"] for task in listed["tasks"]}
    assert {task["status"] for task in listed["tasks"]} == {"succeeded"}
    assert client.get("/api/v1/tasks", params={"workflow": "none"}).json()["tasks"] == []
    assert client.get("/api/v1/tasks", params={"status": "done"}).status_code == 422
    for part in (task_id[:20], task_id[-8:], task_id):
        listed = client.get("/api/v1/tasks", params={"id": part, "limit": 500}).json()["tasks"]
        assert task_id in {task["id"] for task in listed}
    assert [task["id"] for task in listed] == [task_id]
    for wrong in ("ab", "%%%", "x" * 8):
        assert client.get("/api/v1/tasks", params={"id": wrong}).status_code == 422


def test_activity_is_shown_and_filtered(running: Running, client: httpx.Client) -> None:
    """A task that only waits is `waiting`; its stored status is `running`."""
    task_id = _start(client, "signalled")
    found = wait_for(
        lambda: (
            (found := client.get(f"/api/v1/tasks/{task_id}").json())["activity"] == "waiting"
            and found
        )
    )
    assert (found["status"], found["waiting_on"]) == ("running", [{"step": "ask", "signal": "go"}])
    for given, is_listed in (
        ({"activity": "waiting"}, True),
        ({"activity": "waiting", "status": "running"}, True),
        ({"activity": "running"}, False),
        ({"status": "running"}, True),
        ({"activity": "waiting", "status": "paused"}, False),
    ):
        listed = client.get("/api/v1/tasks", params={**given, "workflow": "signalled"}).json()
        assert (task_id in {task["id"] for task in listed["tasks"]}) is is_listed, given
        assert {task["activity"] for task in listed["tasks"]} <= {given.get("activity", "waiting")}
    assert client.get("/api/v1/tasks", params={"activity": "idle"}).status_code == 422
    client.post(f"/api/v1/tasks/{task_id}/signals/go", json=1)
    running.wait_for_task(client, task_id, "succeeded")


def test_pause_resume_signal(running: Running, client: httpx.Client) -> None:
    """Commands report their result; a signal's value reaches the step that waits for it."""
    task_id = _start(client, "signalled")
    address = f"/api/v1/tasks/{task_id}"
    paused = client.post(f"{address}/pause", json={"reason": "lunch"})
    assert paused.status_code == 200
    _exactly(CommandAnswer, paused.json())
    assert paused.json()["changed"] is True
    task = client.get(address).json()
    assert (task["status"], task["pause_reason"]) == ("paused", "lunch")
    assert client.post(f"{address}/pause").json()["changed"] is False
    assert client.post(f"{address}/resume").json()["changed"] is True
    assert client.post(f"{address}/signals/go", json={"word": ["ho", 1]}).status_code == 200
    done = running.wait_for_task(client, task_id, "succeeded")
    assert done["output"] == {"word": ["ho", 1]}
    refused = client.post(f"{address}/signals/go", json=None)
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:agent:problem:refused"


def test_cancel(running: Running, client: httpx.Client) -> None:
    """A task is cancelled at once and stays cancelled."""
    task_id = _start(client, "signalled")
    address = f"/api/v1/tasks/{task_id}"
    assert client.post(f"{address}/cancel", json={"reason": "no"}).json()["changed"] is True
    assert client.get(address).json()["status"] == "canceled"
    assert client.post(f"{address}/cancel").json()["changed"] is False
    assert client.post(f"{address}/pause").status_code == 409


def test_retry_and_fork(running: Running, client: httpx.Client) -> None:
    """A repeated retry returns the same new task; a fork takes edited input."""
    failed = _start(client, "failing")
    running.wait_for_task(client, failed, "failed")
    first = client.post(f"/api/v1/tasks/{failed}/retry").json()
    again = client.post(f"/api/v1/tasks/{failed}/retry").json()
    assert first["changed"] is True
    assert again == {**again, "changed": False, "task_id": first["task_id"]}
    assert client.get(f"/api/v1/tasks/{first['task_id']}").json()["retry_of"] == failed

    old = _start(client, "quick", input={"word": "old"})
    running.wait_for_task(client, old, "succeeded")
    forked = client.post(
        f"/api/v1/tasks/{old}/fork", json={"from_step": "one", "input": {"word": "new"}}
    )
    assert forked.status_code == 200
    done = running.wait_for_task(client, forked.json()["task_id"], "succeeded")
    assert (done["output"], done["forked_from"]) == ("new", old)
    wrong = client.post(f"/api/v1/tasks/{old}/fork", json={"from_step": "none"})
    assert wrong.status_code == 404


def test_the_newest_version_is_taken_where_it_is_asked_for(
    running: Running, client: httpx.Client
) -> None:
    """With `latest` a retry and a fork go on with the newest version; without it, with their own."""
    text = "name: mended\nsteps:\n  one: {wait: 1ms}\n  two: {depends_on: [one], shell: {argv: [COMMAND]}}\n"
    yaml = {"Content-Type": "application/yaml"}
    client.post("/api/v1/workflows", content=text.replace("COMMAND", "false"), headers=yaml)
    failed = _start(client, "mended")
    running.wait_for_task(client, failed, "failed")
    client.post("/api/v1/workflows", content=text.replace("COMMAND", "true"), headers=yaml)
    assert client.get(f"/api/v1/tasks/{failed}").json()["latest_version"] == 2

    old = client.post(f"/api/v1/tasks/{failed}/fork", json={"from_step": "two"}).json()
    assert running.wait_for_task(client, old["task_id"], "failed")["version"] == 1
    fork = {"from_step": "two", "latest": True}
    new = client.post(f"/api/v1/tasks/{failed}/fork", json=fork).json()
    assert running.wait_for_task(client, new["task_id"], "succeeded")["version"] == 2
    retried = client.post(f"/api/v1/tasks/{failed}/retry", json={"latest": True}).json()
    assert running.wait_for_task(client, retried["task_id"], "succeeded")["version"] == 2


def test_resolve_is_refused_where_nothing_is_unknown(client: httpx.Client) -> None:
    """A verdict is refused unless the step waits on an unknown effect."""
    task_id = _start(client, "signalled")
    address = f"/api/v1/tasks/{task_id}/steps/ask/resolve"
    assert client.post(address, json={"verdict": "done"}).status_code == 409
    assert client.post(address, json={"verdict": "maybe"}).status_code == 422
    none = f"/api/v1/tasks/{task_id}/steps/none/resolve"
    assert client.post(none, json={"verdict": "done"}).status_code == 404


@pytest.mark.parametrize("path", ["", "/steps", "/pause", "/resume", "/cancel", "/retry"])
def test_an_unknown_task(client: httpx.Client, path: str) -> None:
    """Every request for a missing task is 404 and names it."""
    method = "GET" if path in ("", "/steps") else "POST"
    response = client.request(method, f"/api/v1/tasks/nothing{path}")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == 404
    assert "nothing" in document["detail"]


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b'{"input": {"wrod": "x"}}', 422, "did you mean 'word'"),
        (b'{"input": {"word": 7}}', 422, "must be text"),
        (b'{"input": {"word": "a\\u0000b"}}', 422, "input.word"),
        (b'{"input": {"word": "\\ud800"}}', 422, "input.word"),
        (b'{"input": {"word": NaN}}', 422, "word"),
        (b'{"input": []}', 422, "input"),
        (b'{"inputs": {}}', 422, "inputs"),
        (b'{"priority": "urgent"}', 422, "priority"),
        (b"{", 422, ""),
        (b"[" * 100_000, 400, ""),
    ],
)
def test_bad_requests(client: httpx.Client, body: bytes, code: int, says: str) -> None:
    """Every problem of a request is reported, and nothing is created."""
    response = client.post(
        "/api/v1/workflows/quick/tasks", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == code, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert says in response.json()["detail"]


def test_a_form_is_not_json(client: httpx.Client) -> None:
    """A content type that web pages can send across origins is not read as JSON."""
    for media in ("text/plain", "application/x-www-form-urlencoded", ""):
        for content in (b"{}", iter([b"{}"])):
            response = client.post(
                "/api/v1/workflows/quick/tasks", content=content, headers={"Content-Type": media}
            )
            assert response.status_code == 415
            assert response.json()["type"] == "urn:agent:problem:unsupported"


def test_unknown_workflows_and_methods(client: httpx.Client) -> None:
    """An unknown workflow is 404, a wrong method 405, both as problem documents."""
    assert client.post("/api/v1/workflows/none/tasks").status_code == 404
    wrong = client.put("/api/v1/tasks")
    assert wrong.status_code == 405
    assert wrong.json()["type"] == "urn:agent:problem:not-allowed"
    assert client.put("/api/v1/workflows").headers["allow"] == "GET, POST"
    assert client.get("/api/v1/tasks/").status_code == 404


def test_calls_of_a_step(running: Running, client: httpx.Client) -> None:
    """The full requests and responses of a step's calls; a missing step is 404."""
    asks = "name: asks\nsteps:\n  it: {llm: {model: echo, prompt: good day}}\n"
    headers = {"content-type": "application/yaml"}
    assert client.post("/api/v1/workflows", content=asks, headers=headers).status_code == 201
    task_id = client.post("/api/v1/workflows/asks/tasks", json={}).json()["id"]
    address = f"/api/v1/tasks/{task_id}/steps"
    running.wait_for_task(client, task_id, "succeeded")
    transcript = client.get(f"{address}/it/calls").json()
    (call,) = transcript["calls"]
    assert call["request"]["prompt"] == "good day"
    assert call["response"]["text"] == "[echo] good day"
    assert transcript["usage"]["turns"] == 1
    assert client.get(f"{address}/nothing/calls").status_code == 404


def test_a_list_is_filtered_and_searched(running: Running, client: httpx.Client) -> None:
    """Filters may be repeated, a search says how far it looked, and bad ones are refused."""
    task_id = _start(client, "quick", input={"word": "needle-in-hay"})
    running.wait_for_task(client, task_id, "succeeded")
    found = client.get(
        "/api/v1/tasks",
        params={"search": "NEEDLE-in", "since": "1h", "status": ["succeeded", "failed"]},
    ).json()
    _exactly(TaskPage, found)
    (task,) = found["tasks"]
    assert (task["id"], task["input_preview"]) == (task_id, "word=needle-in-hay")
    assert task["trigger"] == {"kind": "api", "id": None}
    assert found["searched"]["tasks"] >= 1
    nothing = client.get("/api/v1/tasks", params={"status": ["failed"], "search": "needle-in"})
    assert nothing.json()["tasks"] == []
    counted = client.get("/api/v1/tasks", params={"total": True, "limit": 1}).json()
    assert counted["total"] >= 1
    for wrong in ({"since": "soon"}, {"status": ["failed", "lost"]}, {"search": ""}):
        refused = client.get("/api/v1/tasks", params=wrong)
        assert refused.status_code == 422, wrong
