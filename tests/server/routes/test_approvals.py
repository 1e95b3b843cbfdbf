"""Approvals over HTTP: seen in full, answered once, by whom the question allows."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from agent.server.schemas.approvals import ApprovalDocument
from tests.support.sample_workflows import ASKING, GATED
from tests.support.server import Running, wait_for

LISTED = """\
name: listed
steps:
  pay:
    approval: {message: "Pay?", who: ["api:phone"]}
    shell: {argv: [echo, paid], effect: none}
"""


@pytest.fixture
def approver(running: Running) -> Iterator[httpx.Client]:
    """Return a client with the scope `approve`, and add workflows with questions."""
    for text in (GATED, ASKING, LISTED):
        running.add_workflow(text)
    with running.client(running.token_with("approve")) as client:
        yield client


def _asked(client: httpx.Client, workflow: str) -> tuple[str, dict[str, Any]]:
    """Start a workflow and return its task and its question."""
    task_id = client.post(f"/api/v1/workflows/{workflow}/tasks").json()["id"]

    def look() -> Any:
        return client.get("/api/v1/approvals", params={"task": task_id}).json()["approvals"]

    (approval,) = wait_for(look)
    return task_id, approval


def test_concurrent_approvals_decide_once(
    running: Running, client: httpx.Client, approver: httpx.Client
) -> None:
    """Of many concurrent answers one decides; the others report the decision and its author."""
    task_id, question = _asked(client, "gated")
    ApprovalDocument.model_validate(question)
    assert question["request"]["config"]["argv"] == ["echo", "paid"]
    address = f"/api/v1/approvals/{question['id']}"
    with ThreadPoolExecutor(6) as threads:
        answers = list(
            threads.map(
                lambda number: approver.post(f"{address}/{('approve', 'deny')[number % 2]}"),
                range(12),
            )
        )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 11
    (first,) = [answer.json() for answer in answers if answer.status_code == 200]
    late = next(answer.json() for answer in answers if answer.status_code == 409)
    assert late["type"] == "urn:agent:problem:decided"
    assert late["decided"] == {"status": first["status"], "by": "approve", "channel": "api"}
    ending = {"approved": "succeeded", "denied": "failed"}[first["status"]]
    running.wait_for_task(client, task_id, ending)
    assert client.get(address).json()["decision"]["by"] == "approve"
    everything = client.get("/api/v1/approvals", params={"all": "true", "task": task_id}).json()
    assert [approval["status"] for approval in everything["approvals"]] == [first["status"]]


def test_an_approval_with_edits(
    running: Running, client: httpx.Client, approver: httpx.Client
) -> None:
    """Editable values can be changed; any other edit is refused and decides nothing."""
    task_id, question = _asked(client, "gated")
    address = f"/api/v1/approvals/{question['id']}/approve"
    assert approver.post(address, json={"edits": {"cwd": "/"}}).status_code == 422
    done = approver.post(address, json={"edits": {"argv": ["echo", "less"]}, "comment": "ok"})
    assert done.status_code == 200
    assert running.wait_for_task(client, task_id, "succeeded")["output"] == "less"


def test_a_value(running: Running, client: httpx.Client, approver: httpx.Client) -> None:
    """An invalid value is refused; a valid one reaches the step."""
    task_id, question = _asked(client, "asking")
    address = f"/api/v1/approvals/{question['id']}"
    assert approver.post(f"{address}/answer", json={"value": "green"}).status_code == 422
    assert approver.post(f"{address}/answer", json={}).status_code == 422
    deferred = approver.post(f"{address}/defer", json={"seconds": 60})
    assert (deferred.status_code, deferred.json()["status"]) == (200, "pending")
    assert approver.post(f"{address}/answer", json={"value": "blue"}).status_code == 200
    assert running.wait_for_task(client, task_id, "succeeded")["output"] == "blue"


def test_who_may_answer(client: httpx.Client, approver: httpx.Client) -> None:
    """A question's own list of people applies in addition to the token's scopes."""
    _, question = _asked(client, "listed")
    for asking in (client, approver):
        refused = asking.post(f"/api/v1/approvals/{question['id']}/approve")
        assert refused.status_code == 403
        assert "phone" in refused.json()["detail"]
    assert client.post("/api/v1/approvals/none/approve").status_code == 404
    assert client.get("/api/v1/approvals/none").status_code == 404


def test_pages_of_questions(client: httpx.Client, approver: httpx.Client) -> None:
    """Following `next` returns every question once: the open ones, or all."""
    made = [_asked(client, "asking")[1]["id"] for _ in range(3)]

    def every(**filters: str) -> list[str]:
        seen: list[str] = []
        cursor: str | None = None
        while True:
            at = {"cursor": cursor} if cursor else {}
            page = client.get("/api/v1/approvals", params={"limit": "2", **filters, **at}).json()
            seen += [approval["id"] for approval in page["approvals"]]
            if (cursor := page["next"]) is None:
                return [approval_id for approval_id in seen if approval_id in made]

    assert every() == made
    approver.post(f"/api/v1/approvals/{made[0]}/deny")
    assert every() == made[1:]
    assert every(all="true") == made[::-1]
    assert every(id=made[1][-12:]) == [made[1]]
