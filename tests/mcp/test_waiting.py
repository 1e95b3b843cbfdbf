"""A task that waits for a person: asked through the client where it can, a field where it cannot."""

import asyncio
from typing import Any

import pytest
from mcp.server.subscriptions import ResourceUpdated, ToolsListChanged
from mcp_types import ElicitResult

from agent.server.token_shares import TokenShares
from agent.store.db.database import Database
from agent.tasks.read_models import task_results
from tests.mcp.conftest import OFFERED, add_workflows
from tests.support.mcp_client import McpClient, over_http
from tests.support.server import Running, wait_for

TWICE = """\
name: twice
on: {mcp: true}
steps:
  first: {approval: {message: "First?"}}
  second: {depends_on: [first], input: {message: "How many?", schema: {type: integer}}}
output: "{{ steps.second.output.value }}"
"""


class Person:
    """Fills the client's forms in, and notes what was shown."""

    def __init__(self, *answers: ElicitResult) -> None:
        self._answers = list(answers)
        self.shown: list[Any] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.shown.append(params)
        return self._answers.pop(0)


def yes(**content: Any) -> ElicitResult:
    """Return a form that was filled in."""
    return ElicitResult(action="accept", content=content)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_questions_are_asked_through_the_client(running: Running, mode: str) -> None:
    """With the scope, the client's user answers each question, and the call goes on to the end."""
    running.add_workflow(TWICE)
    person = Person(yes(decision="approve", comment="fine"), yes(answer=7))
    connect = over_http(running.server.url, running.token, mode=mode, elicitation_callback=person)
    with McpClient(connect) as client:
        task = client.call("workflow_twice", wait_seconds=30)
        assert task["output"] == 7
        first, second = person.shown
        assert first.message.startswith("First?")
        assert first.requested_schema["properties"]["decision"]["enum"] == ["approve", "deny"]
        assert second.requested_schema["properties"]["answer"] == {"type": "integer"}
        decided = client.call("list_approvals", task=task["id"], all=True)["approvals"]
        assert {each["decision"]["channel"] for each in decided} == {"mcp"}
        tasks = client.call("list_tasks", workflow="twice", total=True)
        assert tasks["total"] == (1 if mode == "auto" else 2)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_declined_form_leaves_the_question_open(running: Running, mode: str) -> None:
    """The person does not answer now: nothing is decided, and the result says what is needed."""
    person = Person(ElicitResult(action="decline"))
    connect = over_http(running.server.url, running.token, mode=mode, elicitation_callback=person)
    with McpClient(connect) as client:
        task = client.call("start_workflow", name="gated", wait_seconds=30)
        assert len(person.shown) == 1
        assert task["needs"][0]["what"] == "answer"
        assert "a person must answer 'Pay?'" in task["message"]


def test_without_the_scope_nothing_is_asked_through_the_client(running: Running) -> None:
    """A client may fill its forms in by a model: a token without the scope gets no question."""
    person = Person()
    token = running.token_with("operate")
    connect = over_http(running.server.url, token, elicitation_callback=person)
    with McpClient(connect) as client:
        task = client.call("start_workflow", name="gated", wait_seconds=30)
        assert [need["what"] for need in task["needs"]] == ["answer"]
        assert person.shown == []


def test_a_wait_is_bounded_and_can_be_repeated(owner: McpClient) -> None:
    """A call that waits in vain returns the state of the task, which is a handle to wait on again."""
    task = owner.call("start_workflow", name="signalled")
    assert not task["is_over"]
    waiting = owner.call("wait_for_task", task_id=task["id"], wait_seconds=0.2, until="end")
    assert waiting["status"] == "running"
    assert not waiting["is_over"]
    assert "greater than the maximum" in owner.refused(
        "wait_for_task", task_id=task["id"], wait_seconds=301
    )


def test_many_waiting_callers_leave_room_for_others(
    running: Running, owner: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound a request does not wait; a call that waits polls instead, and not in a loop."""
    context = running.server._context
    assert context is not None
    task = owner.call("start_workflow", name="signalled", wait_seconds=30)
    monkeypatch.setattr(context, "waiting_results", TokenShares(0, "too many"))
    address = f"/api/v1/tasks/{task['id']}/result?wait=60&until=end"
    with running.client() as client:
        assert client.get(address, timeout=30).json()["status"] == "running"
    polls = 0
    read = task_results.result_document

    def counted(connection: Any, task_id: str) -> Any:
        nonlocal polls
        polls += 1
        return read(connection, task_id)

    monkeypatch.setattr(task_results, "result_document", counted)
    owner.call("wait_for_task", task_id=task["id"], wait_seconds=1.5, until="end")
    assert 1 <= polls <= 3


def test_a_start_is_not_repeated_under_its_key(owner: McpClient) -> None:
    """The same key starts one task; another request under it is refused."""
    first = owner.call("start_workflow", name="quick", idempotency_key="monday")
    again = owner.call("start_workflow", name="quick", idempotency_key="monday", wait_seconds=30)
    assert first["id"] == again["id"]
    other = owner.refused(
        "start_workflow", name="quick", input={"word": "x"}, idempotency_key="monday"
    )
    assert "another request" in other


def test_progress_is_reported_while_a_call_waits(owner: McpClient) -> None:
    """A client that asks for it sees what a long call waits for."""
    task = owner.call("start_workflow", name="signalled", wait_seconds=30)
    seen: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async def wait(client: Any) -> None:
        arguments = {"task_id": task["id"], "wait_seconds": 0.1, "until": "end"}
        await client.call_tool("wait_for_task", arguments, progress_callback=note)

    owner.run(wait)
    assert seen
    assert set(seen) == {"waiting: ask"}


def test_clients_are_told_when_tools_and_resources_change(
    running: Running, owner: McpClient
) -> None:
    """A new version of an offered workflow changes the list of tools; an event changes its task."""
    task = owner.call("start_workflow", name="signalled", wait_seconds=30)
    address = f"agent://tasks/{task['id']}"

    async def listen(client: Any) -> set[Any]:
        seen = set()
        async with client.listen(
            tools_list_changed=True, resource_subscriptions=[address]
        ) as stream:
            await asyncio.to_thread(
                running.add_workflow, OFFERED.replace("twice", "again and again")
            )
            await client.call_tool("cancel_task", {"task_id": task["id"]})
            async for event in stream:
                seen.add(event)
                if len(seen) == 2:
                    break
        return seen

    assert owner.run(listen) == {ToolsListChanged(), ResourceUpdated(address)}
    assert owner.tools()["workflow_offered"].description == "Says a word again and again."


def test_tools_work_on_postgresql(postgres_database: Database, tmp_path: Any) -> None:
    """The same tools on the other database."""
    with Running(postgres_database, tmp_path) as running:
        add_workflows(running)
        with McpClient(over_http(running.server.url, running.token)) as client:
            task = client.call("workflow_offered", word="ha", times=3, wait_seconds=30)
            assert task["output"] == {"said": "hahaha"}
            gated = client.call("start_workflow", name="gated", wait_seconds=30)
            client.call("approve", approval_id=gated["needs"][0]["approval"])
            assert client.call("wait_for_task", task_id=gated["id"])["status"] == "succeeded"
            # A transaction of another test on the same server may hold the log back.
            wait_for(lambda: client.call("list_events", task=gated["id"])["events"])
