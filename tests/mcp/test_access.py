"""Who may use which tool: default deny, by the scopes of the token."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from mcp_types import CallToolRequestParams

from agent.cli.commands import mcp as command
from agent.cli.errors import CommandError
from agent.mcp import http_endpoint, sdk
from agent.mcp.http_endpoint import HttpEndpoint
from agent.mcp.tool_catalog import CATALOG, START, WAIT
from agent.steps.process.processes import STEP
from tests.support.cli import ROOT
from tests.support.effort import short_or_full
from tests.support.mcp_client import McpClient, over_http
from tests.support.server import Running, wait_for

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}
OPEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture(scope="module", params=["read", "operate", "approve", "work:review"])
def scoped(request: pytest.FixtureRequest, running: Running) -> Iterator[tuple[str, McpClient]]:
    """Return a scope, and a client whose token has just that."""
    token = running.token_with(request.param)
    with McpClient(over_http(running.server.url, token)) as client:
        yield request.param, client


def test_every_tool_is_documented() -> None:
    """The page lists each tool, and no other."""
    assert documented_scopes().keys() == {entry.name for entry in CATALOG} | {START, WAIT}


def test_a_tool_without_its_scope_is_neither_listed_nor_run(
    scoped: tuple[str, McpClient],
) -> None:
    """Each tool is refused to a token without its scope, before its arguments are looked at."""
    scope, client = scoped
    needs = {**documented_scopes(), "workflow_offered": "operate"}
    allowed = {"work"} if scope == "work:review" else {"read", scope}
    assert client.tools().keys() == {name for name, needed in needs.items() if needed in allowed}
    for name, needed in needs.items():
        if needed not in allowed:
            words = (
                "needs a scope of a queue" if needed == "work" else f"needs the scope {needed!r}"
            )
            assert words in client.refused(name, anything=1), name


def documented_scopes() -> dict[str, str]:
    """Return the scope of each tool, as the page says."""
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    return dict(
        re.findall(
            r"^\| `(\w+)` \| .* \| (read|operate|approve|admin|work) \|$", page, re.MULTILINE
        )
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
    ],
)
def test_foreign_hosts_origins_and_tokens_are_refused(
    running: Running, headers: dict[str, str], status: int
) -> None:
    """The request guard stands before the endpoint, for every method."""
    with running.client(**ACCEPT) as client:
        for method in ("POST", "GET", "DELETE"):
            response = client.request(method, "/mcp", json=LIST, headers=headers)
            assert response.status_code == status, (method, response.text)


def test_a_request_without_a_token_is_refused(running: Running) -> None:
    """No tool is shown to a caller that is not known."""
    with running.client("", **ACCEPT) as client:
        assert client.post("/mcp", json=LIST).status_code == 401


def test_a_session_belongs_to_the_token_that_opened_it(running: Running) -> None:
    """Another token gets the answer for a session that does not exist."""
    with running.client(**ACCEPT) as client:
        opened = client.post("/mcp", json=OPEN)
        assert opened.status_code == 200, opened.text
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert client.post("/mcp", json=LIST, headers=session).status_code == 200
    with running.client(running.token_with("read"), **ACCEPT) as other:
        assert other.post("/mcp", json=LIST, headers=session).status_code == 404


def _opened(client: httpx.Client) -> dict[str, str]:
    response = client.post("/mcp", json=OPEN)
    assert response.status_code == 200, response.text
    return {"Mcp-Session-Id": response.headers["mcp-session-id"]}


def test_one_token_cannot_take_the_sessions_of_others(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above its limit a token's own longest idle session ends, and above the limit of all the longest idle."""
    monkeypatch.setattr(http_endpoint, "_MAX_SESSIONS_OF_ONE", 3)
    with (
        running.client(**ACCEPT) as owner,
        running.client(running.token_with("read"), **ACCEPT) as reader,
    ):

        def is_open(client: httpx.Client, session: dict[str, str]) -> bool:
            return client.post("/mcp", json=LIST, headers=session).status_code == 200

        kept = _opened(owner)
        first = _opened(reader)
        many = [_opened(reader) for _ in range(2)]
        assert is_open(reader, first), "used last"
        many += [_opened(reader) for _ in range(2)]
        assert [is_open(reader, each) for each in many] == [False, False, True, True]
        assert is_open(reader, first)
        monkeypatch.setattr(http_endpoint, "_MAX_SESSIONS", 1)
        later = _opened(owner)
        assert is_open(owner, later)
        assert not is_open(owner, kept) or not is_open(reader, many[2])


def test_a_revoked_token_ends_its_calls_and_streams(running: Running, owner: McpClient) -> None:
    """A tool that waits for a task, and a stream of notices, end soon after their token is revoked."""
    task = owner.call("start_workflow", name="signalled")
    token = running.token_with("read")
    waiting = {
        "name": WAIT,
        "arguments": {"task_id": task["id"], "wait_seconds": 60, "until": "end"},
    }
    with running.client(token, **ACCEPT) as client, ThreadPoolExecutor(1) as thread:
        session = _opened(client)
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": waiting}
        with client.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200
            answer = thread.submit(client.post, "/mcp", json=call, headers=session)
            context = running.server._context
            assert context is not None
            wait_for(lambda: context.waiting_results.has_any)
            running.server.tokens.revoke("read")
            assert not any("result" in line for line in stream.iter_lines())
        assert '"is_over"' not in answer.result(30).text


def test_a_body_over_the_limit_is_refused(running: Running) -> None:
    """The bound of the HTTP API holds here too."""
    text = "x" * (running.settings.server.max_body_bytes + 1)
    with running.client(**ACCEPT) as client:
        assert client.post("/mcp", json={**LIST, "params": {"a": text}}).status_code == 413


def test_a_missing_library_is_named(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the daemon serves everything else, and the command says what to install."""

    def missing() -> None:
        raise sdk.MissingSdkError

    endpoint = running.server._endpoints["/mcp"]
    assert isinstance(endpoint, HttpEndpoint)
    monkeypatch.setattr(sdk, "load", missing)
    monkeypatch.setattr(endpoint, "_starting", None)
    with running.client(**ACCEPT) as client:
        refused = client.post("/mcp", json=LIST)
        assert refused.status_code == 501
        assert "python -m pip install mcp" in refused.json()["detail"]
        assert client.get("/api/v1/tasks").status_code == 200
    with pytest.raises(CommandError, match="python -m pip install mcp"):
        command.mcp()


def test_an_unknown_scope_is_refused() -> None:
    """A scope that no tool has is a mistake."""
    with pytest.raises(CommandError, match="choose read, operate, approve, admin or work:QUEUE"):
        command.mcp(["everything"])


def test_a_program_of_a_step_gets_no_right_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An `agent mcp` that a model's step has started cannot answer questions."""
    monkeypatch.setenv(STEP, "1")
    for arguments in ({"allow_answers": True}, {"scope": ["approve"]}, {"scope": ["admin"]}):
        with pytest.raises(CommandError, match="a person does that"):
            command.mcp(**arguments)


BAD: list[dict[str, Any]] = [
    {"surprise": 1},
    {"task_id": 7},
    {"task_id": "../../status"},
    {"task_id": "a/b%2Fc?x=1#y"},
    {"task_id": "\0\ud800".encode("utf-8", "replace").decode()},
    {"task_id": "é" * 101, "limit": -1},
    {"name": "x" * 5000, "value": {"deep": [[[[[]]]]]}},
    {"limit": 10**40, "after": "no cursor", "approval_id": "", "trigger_id": "/"},
    {"scope": "everything", "name": "..", "value": None, "input": [], "from_step": None},
]


def test_bad_arguments_are_refused_in_words(owner: McpClient) -> None:
    """Whatever a tool is given, its answer is a result, or a text that says what is wrong."""
    schemas = {name: tool.input_schema for name, tool in owner.tools().items()}
    count = short_or_full(2, len(BAD))
    for number, (name, schema) in enumerate(schemas.items()):
        for arguments in [BAD[(number + offset) % len(BAD)] for offset in range(count)]:
            known = {key: value for key, value in arguments.items() if key in schema["properties"]}
            for given in [arguments, known] if known else [arguments]:
                result = owner.result(name, given)
                text = result.content[0].text  # type: ignore[union-attr]
                assert text, name
                assert "internal" not in text.lower(), (name, given, text)
                assert "log says more" not in text, (name, given, text)
                if given is arguments:
                    assert result.is_error, (name, given)


@pytest.mark.parametrize("name", [".", ".."])
def test_an_id_that_an_address_leaves_out_is_refused(owner: McpClient, name: str) -> None:
    """A dot as an id would lead to the list above, or beside it."""
    assert "nothing is called" in owner.refused("get_task", task_id=name)
    assert "nothing is called" in owner.refused(WAIT, task_id=name)


def test_a_wrong_choice_is_refused_with_the_choices(owner: McpClient) -> None:
    """Also where the argument may be left out, and where it is a list."""
    for name, arguments in (
        ("list_tasks", {"status": ["bogus"]}),
        ("list_tasks", {"status": "bogus"}),
        ("list_triggers", {"status": "bogus"}),
        ("resolve_step", {"task_id": "t", "name": "s", "verdict": "bogus"}),
    ):
        refused = owner.refused(name, **arguments)
        word = {"list_tasks": "succeeded", "list_triggers": "broken"}.get(name, "retry")
        assert f'"{word}"' in refused and "any of the schemas" not in refused


def test_an_unknown_tool_is_an_error_of_the_protocol(owner: McpClient) -> None:
    """A name that was never listed is no result."""
    for name in ("nothing", "workflow_quick", "workflow_", "create_task"):
        with pytest.raises(Exception, match="there is no tool"):
            owner.result(name, {})


def test_a_repeated_call_cannot_answer_without_the_scope(running: Running) -> None:
    """Answers that come with a repeated call need the scope as well: the state in it is the caller's."""
    with McpClient(over_http(running.server.url, running.token_with("operate"))) as client:
        task = client.call("start_workflow", name="gated", wait_seconds=30)
        approval_id = task["needs"][0]["approval"]
        answer = {"action": "accept", "content": {"decision": "approve"}}

        async def repeat(each: Any) -> Any:
            params = CallToolRequestParams.model_validate(
                {
                    "name": WAIT,
                    "arguments": {"task_id": task["id"], "wait_seconds": 0},
                    "inputResponses": {approval_id: answer},
                    "requestState": task["id"],
                }
            )
            return await each.session.call_tool(
                WAIT,
                params.arguments,
                input_responses=params.input_responses,
                request_state=params.request_state,
            )

        result = client.run(repeat)
        assert result.is_error
        assert "'approve'" in json.dumps(result.content[0].text)
        assert client.call("get_approval", approval_id=approval_id)["status"] == "pending"
