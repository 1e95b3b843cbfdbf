"""Every tool, driven by the SDK's own client over both transports."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.mcp.tool_catalog import CATALOG, START, WAIT
from tests.support.mcp_client import McpClient, over_stdio
from tests.support.server import Running


class Story:
    """Uses every tool once or more, and notes which."""

    def __init__(self, client: McpClient) -> None:
        self._client = client
        self.used: set[str] = set()

    def call(self, name: str, /, **arguments: Any) -> Any:
        self.used.add(name)
        return self._client.call(name, **arguments)

    def refused(self, name: str, /, **arguments: Any) -> str:
        self.used.add(name)
        return self._client.refused(name, **arguments)

    def run(self, workflow: str, seconds: float = 30) -> Any:
        return self.call("start_workflow", name=workflow, wait_seconds=seconds)

    def workflows(self) -> None:
        listed = self.call("list_workflows")["workflows"]
        tools = {entry["name"]: entry["tool"] for entry in listed}
        assert tools["offered"] == "workflow_offered"
        assert tools["quick"] is None
        assert self.call("get_workflow", name="quick")["graph"]["name"] == "quick"
        bad = self.call("validate_workflow", source="name: x\nstpes: {}\n")
        assert not bad["valid"]
        assert bad["problems"][0]["line"] >= 1
        good = self.call("validate_workflow", source="name: x\nsteps: {rest: {wait: 1s}}\n")
        assert good["workflow"] == "x"

    def reads(self) -> None:
        task = self.run("quick")
        assert task["status"] == "succeeded"
        assert task["output"] == "hello"
        assert task["is_over"]
        task_id = task["id"]
        assert self.call("list_tasks", workflow="quick", status=["succeeded"], limit=5)["tasks"]
        assert self.call("get_task", task_id=task_id)["status"] == "succeeded"
        steps = self.call("list_steps", task_id=task_id)["steps"]
        assert [step["name"] for step in steps] == ["one", "two"]
        assert self.call("get_step", task_id=task_id, name="one")["attempts"]
        assert "hello" in str(self.call("read_task_logs", task_id=task_id))
        assert "hello" in str(self.call("read_step_logs", task_id=task_id, name="one"))
        assert self.call("list_task_calls", task_id=task_id)["calls"] == []
        page = self.call("list_events", task=task_id, limit=2)
        assert len(page["events"]) == 2
        rest = self.call("list_events", task=task_id, after=page["cursor"])["events"]
        assert rest[-1]["type"] == "task.succeeded"
        self.call("get_task_budget", task_id=task_id)
        self.call("get_day_budget")

    def control(self) -> None:
        task_id = self.run("signalled", 0)["id"]
        waiting = self.call("wait_for_task", task_id=task_id, wait_seconds=30)
        assert [need["what"] for need in waiting["needs"]] == ["signal"]
        assert "signal_task" in waiting["message"]
        assert self.call("pause_task", task_id=task_id, reason="later")["changed"]
        assert self.call("resume_task", task_id=task_id)["changed"]
        assert self.call("signal_task", task_id=task_id, name="go", value={"n": 5})["changed"]
        done = self.call("wait_for_task", task_id=task_id, wait_seconds=30, until="end")
        assert done["output"] == {"n": 5}
        assert "task succeeded" in self.refused("cancel_task", task_id=task_id)
        failed = self.run("failing")
        assert failed["status"] == "failed"
        retried = self.call("retry_task", task_id=failed["id"])
        assert retried["task_id"] != failed["id"]
        forked = self.call(
            "fork_task", task_id=failed["id"], from_step="bad", idempotency_key=failed["id"]
        )
        again = self.call(
            "fork_task", task_id=failed["id"], from_step="bad", idempotency_key=failed["id"]
        )
        assert forked["task_id"] == again["task_id"]
        refused = self.refused("resolve_step", task_id=failed["id"], name="bad", verdict="done")
        assert "resolve" in refused

    def approvals(self) -> None:
        task = self.run("gated")
        assert task["needs"][0]["what"] == "answer"
        approval_id = task["needs"][0]["approval"]
        listed = self.call("list_approvals", task=task["id"])["approvals"]
        assert [each["id"] for each in listed] == [approval_id]
        assert self.call("get_approval", approval_id=approval_id)["status"] == "pending"
        self.call("defer", approval_id=approval_id, seconds=3600)
        self.call("approve", approval_id=approval_id, edits={"argv": ["echo", "edited"]})
        assert self.call("wait_for_task", task_id=task["id"])["output"] == "edited"
        decision = self.call("get_approval", approval_id=approval_id)["decision"]
        assert decision["channel"] == "mcp"
        denied = self.run("gated")
        self.call("deny", approval_id=denied["needs"][0]["approval"], reason="not today")
        assert self.call("wait_for_task", task_id=denied["id"])["status"] == "failed"
        asked = self.run("asking")
        self.call("answer", approval_id=asked["needs"][0]["approval"], value="blue")
        assert self.call("wait_for_task", task_id=asked["id"])["output"] == "blue"

    def triggers(self) -> None:
        kinds = {each["kind"]: each["id"] for each in self.call("list_triggers")["triggers"]}
        schedule, watcher = kinds["schedule"], kinds["watch"]
        assert self.call("get_trigger", trigger_id=schedule)["id"] == schedule
        self.call("pause_trigger", trigger_id=schedule, until="1h")
        self.call("resume_trigger", trigger_id=schedule)
        started = self.call("run_trigger", trigger_id=schedule)
        assert started["changed"]
        self.call("skip_trigger", trigger_id=schedule)
        days = {"from": "2026-01-01", "to": "2026-01-03"}
        instants = self.call("backfill_trigger", trigger_id=schedule, dry_run=True, **days)
        assert len(instants["instants"]) == 3
        assert self.call("list_firings", trigger_id=schedule)["firings"]
        assert self.call("check_trigger", trigger_id=watcher)
        self.call("reset_trigger", trigger_id=watcher)

    def state(self) -> None:
        place = {"scope": "workflow:quick", "name": "seen"}
        self.call("set_state", value=[1, "two"], **place)
        assert self.call("get_state", **place)["value"] == [1, "two"]
        assert self.call("list_state", workflow="quick")["state"]
        assert "version" in self.refused("set_state", value=3, if_version=99, **place)
        self.call("delete_state", **place)

    def offered(self) -> None:
        task = self.call("workflow_offered", word="ha", wait_seconds=30)
        assert task["output"] == {"said": "haha"}
        assert "word" in self.refused("workflow_offered", wait_seconds=1)
        at_once = self.call("workflow_offered", word="x")
        assert not at_once["is_over"] or at_once["output"]


@pytest.fixture(scope="module", params=["http", "stdio"])
def client(
    request: pytest.FixtureRequest, running: Running, owner: McpClient
) -> Iterator[McpClient]:
    """Return a client of the same tasks: of the daemon, and of a program on its database."""
    if request.param == "http":
        yield owner
        return
    database = f"database.url={running.database.url}"
    connect = over_stdio(running.settings.base, "-c", database, "mcp", "--allow-answers")
    with McpClient(connect) as started:
        yield started


def test_every_tool_works_over_both_transports(client: McpClient) -> None:
    """Each tool does what its route does, and returns what its output schema says."""
    story = Story(client)
    story.workflows()
    story.reads()
    story.control()
    story.approvals()
    story.triggers()
    story.state()
    story.offered()
    assert story.used == client.tools().keys()


def test_every_tool_is_described(owner: McpClient) -> None:
    """Each tool has a title, a description, both schemas and hints."""
    tools = owner.tools()
    expected = {entry.name for entry in CATALOG} | {START, WAIT, "workflow_offered"}
    assert tools.keys() == expected
    for tool in tools.values():
        assert tool.title
        assert tool.description
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema["type"] == "object"
        hints = tool.annotations
        assert None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint)
    assert tools["get_task"].annotations.read_only_hint
    assert tools["cancel_task"].annotations.destructive_hint
    offered = tools["workflow_offered"]
    assert offered.description == "Says a word twice."
    assert offered.input_schema["required"] == ["word"]
    assert offered.input_schema["properties"]["times"] == {"type": "integer", "default": 2}


def test_resources_are_tasks_and_open_questions(owner: McpClient) -> None:
    """A task and the list of questions can be read by their addresses."""
    task = owner.call("start_workflow", name="gated", wait_seconds=30)
    listed = owner.run(lambda client: client.list_resources()).resources
    addresses = {resource.uri for resource in listed}
    assert {"agent://approvals", f"agent://tasks/{task['id']}"} <= addresses
    templates = owner.run(lambda client: client.list_resource_templates()).resource_templates
    assert [each.uri_template for each in templates] == ["agent://tasks/{id}"]
    questions = _document(owner, "agent://approvals")["approvals"]
    assert task["needs"][0]["approval"] in {each["id"] for each in questions}
    assert _document(owner, f"agent://tasks/{task['id']}")["activity"] == "waiting"
    for address in ("agent://tasks/nothing", "agent://tasks/", "agent://else"):
        with pytest.raises(Exception, match="there is no"):
            _document(owner, address)


def _document(client: McpClient, address: str) -> Any:
    read = client.run(lambda each: each.read_resource(address))
    return json.loads(read.contents[0].text)  # type: ignore[union-attr]
