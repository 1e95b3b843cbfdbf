"""Every way in which a step goes on that waits for a person, by scope and by who may answer."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import httpx
import pytest

from tests.server.routes.test_work import call, claim, start
from tests.support import page_forms
from tests.support.browser import sign_in
from tests.support.mcp_client import McpClient, over_http
from tests.support.server import Running, wait_for

WORKED = """
name: decided
steps:
  review:
    worker: {queue: decided}
"""
APPROVED = """
name: NAME
steps:
  review:
    approval: {message: Really?, who: WHO}
"""
SCOPES: Final = ("read", "operate", "work:*", "approve", "admin")
WHO: Final[tuple[list[str], ...]] = ([], ["api"], ["terminal"], ["api:admin"], ["mcp"])
WAYS: Final[dict[str, tuple[str, dict[str, Any] | None]]] = {
    "answer": ("/approvals/{asked}/answer", {"value": "a"}),
    "deny": ("/approvals/{asked}/deny", None),
    "defer": ("/approvals/{asked}/defer", {"seconds": 60}),
    "resume": ("/work/items/{work}/resume", {"value": "a"}),
    "resume without a value": ("/work/items/{work}/resume", None),
    "approve": ("/approvals/{gate}/approve", None),
    "deny an approval": ("/approvals/{gate}/deny", None),
}
"""The doors of the API: the path, and a body that fits the question."""
TOOLS: Final[dict[str, dict[str, Any]]] = {
    "answer": {"approval_id": "{asked}", "value": "a"},
    "deny": {"approval_id": "{gate}"},
    "defer": {"approval_id": "{asked}", "seconds": 60},
    "approve": {"approval_id": "{gate}"},
    "resume_work": {"work_id": "{work}", "value": "a"},
}
"""The doors of MCP: the tools that decide, and their arguments."""
FORMS: Final[dict[str, dict[str, str]]] = {
    "/questions/{asked}/answer": {"decision": "answer", "choice": "0"},
    "/questions/{gate}/answer": {"decision": "approve"},
    "/questions/{gate}/defer": {"seconds": "3600"},
}
"""The doors of the pages: the address, and the fields."""


@pytest.fixture(scope="module")
def clients(running: Running) -> Iterator[dict[str, httpx.Client]]:
    """Return a client for each scope; the token has the scope's name."""
    with ExitStack() as stack:
        yield {
            scope: stack.enter_context(running.client(running.token_with(scope)))
            for scope in SCOPES
        }


def _is_allowed(scope: str, who: list[str], channel: str = "api") -> bool:
    may_approve = scope in ("approve", "admin")
    return may_approve and (not who or bool({channel, f"{channel}:{scope}"} & set(who)))


def _filled(arguments: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    return {
        name: value.format(**ids) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


def _asked(
    running: Running, clients: dict[str, httpx.Client], who: list[str], choices: list[str] | None
) -> dict[str, str]:
    """Let a worker ask, and an approval wait; return the ids of both and of the work."""
    owner = clients["admin"]
    running.add_workflow(WORKED)
    start(owner, "decided")
    work = claim(clients["work:*"], "decided")
    body = {"question": "which?", "who": who, "choices": choices}
    asked = call(clients["work:*"], work, "ask", **body).json()["approval"]
    name = f"approved-{len(who)}-{'-'.join(who).replace(':', '-')}"
    running.add_workflow(APPROVED.replace("NAME", name).replace("WHO", str(who)))
    task = start(owner, name)

    def open_questions() -> Any:
        return owner.get("/api/v1/approvals", params={"task": task}).json()["approvals"]

    (gate,) = wait_for(open_questions)
    return {"asked": asked, "work": work["id"], "gate": gate["id"]}


def _are_open(clients: dict[str, httpx.Client], ids: dict[str, str]) -> bool:
    asked, gate = (
        clients["read"].get(f"/api/v1/approvals/{ids[name]}").json() for name in ("asked", "gate")
    )
    return bool(asked["status"] == gate["status"] == "pending")


@pytest.mark.parametrize("who", WHO, ids=str)
def test_only_who_may_answer_lets_a_step_go_on(
    running: Running, clients: dict[str, httpx.Client], who: list[str]
) -> None:
    """Each door refuses every caller without the scope, or not on the question's list; nothing changes."""
    ids = _asked(running, clients, who, ["a", "b"])
    refused = 0
    for scope, (path, body) in itertools.product(SCOPES, WAYS.values()):
        if not _is_allowed(scope, who):
            answered = clients[scope].post("/api/v1" + path.format(**ids), json=body)
            assert answered.status_code == 403, (scope, path, answered.text)
            refused += 1
    assert _are_open(clients, ids)
    allowed = [scope for scope in SCOPES if _is_allowed(scope, who)]
    assert refused == (len(SCOPES) - len(allowed)) * len(WAYS)
    for scope in allowed[:1]:
        address = f"/api/v1/work/items/{ids['work']}/resume"
        for body in (None, {"value": "c"}):
            assert clients[scope].post(address, json=body).status_code == 422, "it has choices"
        assert clients[scope].post(address, json={"value": "b"}).status_code == 200
        decision = clients["read"].get(f"/api/v1/approvals/{ids['asked']}").json()["decision"]
        assert (decision["by"], decision["channel"], decision["value"]) == (scope, "api", "b")
        assert clients[scope].post(address, json={"value": "b"}).status_code == 409
        assert claim(clients["work:*"], "decided")["answer"]["by"] == scope


@pytest.mark.parametrize("who", WHO, ids=str)
def test_mcp_has_no_other_door(
    running: Running, clients: dict[str, httpx.Client], who: list[str]
) -> None:
    """Each tool that decides refuses the same callers as the API; an answer is recorded as one of MCP."""
    ids = _asked(running, clients, who, ["a", "b"])
    for scope in sorted(SCOPES, key=lambda scope: _is_allowed(scope, who, "mcp")):
        token = clients[scope].headers["Authorization"].removeprefix("Bearer ")
        with McpClient(over_http(running.server.url, token)) as client:
            if not _is_allowed(scope, who, "mcp"):
                for tool, arguments in TOOLS.items():
                    refusal = client.refused(tool, **_filled(arguments, ids))
                    assert "scope" in refusal or "may not answer" in refusal, (scope, refusal)
                assert _are_open(clients, ids), scope
                continue
            assert "one of a, b" in client.refused("resume_work", work_id=ids["work"], value="c")
            client.call("resume_work", **_filled(TOOLS["resume_work"], ids))
            decision = clients["read"].get(f"/api/v1/approvals/{ids['asked']}").json()["decision"]
            assert (decision["by"], decision["channel"]) == (scope, "mcp")
            break


@pytest.mark.parametrize("who", [*WHO, ["page"]], ids=str)
def test_pages_have_no_other_door(
    running: Running, clients: dict[str, httpx.Client], who: list[str]
) -> None:
    """Each form that decides refuses the same callers as the API, with the session of a browser."""
    ids = _asked(running, clients, who, ["a", "b"])
    scopes = set(SCOPES) - {"work:*"}
    for scope in sorted(scopes, key=lambda scope: _is_allowed(scope, who, "page")):
        with running.client("") as visitor:
            visitor.cookies.set(running.server.cookie, sign_in(running, scope))
            answers = [
                page_forms.send(visitor, address.format(**ids), **fields).status_code
                for address, fields in FORMS.items()
            ]
            if _is_allowed(scope, who, "page"):
                asked = clients["read"].get(f"/api/v1/approvals/{ids['asked']}").json()
                assert asked["decision"]["channel"] == "page"
                break
            assert answers == [403] * len(FORMS), scope
            assert _are_open(clients, ids), scope


def test_work_goes_on_without_an_answer_where_the_question_takes_any_text(
    running: Running, clients: dict[str, httpx.Client]
) -> None:
    """The question is withdrawn, and the worker sees that no person answered."""
    ids = _asked(running, clients, [], None)
    address = f"/api/v1/work/items/{ids['work']}/resume"
    assert clients["operate"].post(address).status_code == 403
    assert clients["approve"].post(address, json={"reason": "not needed"}).status_code == 200
    given = claim(clients["work:*"], "decided")["answer"]
    assert (given["status"], given["by"], given["value"]) == ("resumed", "approve", None)
    asked = clients["read"].get(f"/api/v1/approvals/{ids['asked']}").json()
    assert asked["status"] == "withdrawn"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_verdict_needs_the_scope_of_an_answer(
    running: Running, clients: dict[str, httpx.Client], scope: str
) -> None:
    """Without it the caller does not even learn whether the step has an unknown effect."""
    running.add_workflow(APPROVED.replace("NAME", "verdict").replace("WHO", "[]"))
    task = start(clients["admin"], "verdict")
    path = f"/api/v1/tasks/{task}/steps/review/resolve"
    answered = clients[scope].post(path, json={"verdict": "done"})
    assert answered.status_code == (409 if scope in ("approve", "admin") else 403)
