"""Every tool, driven by the SDK's own client over both transports."""

import json
from typing import Any

import pytest

from agent.config import discovery, loader
from agent.daemon.instance_file import InstanceFile
from agent.mcp.tool_catalog import CATALOG, START, WAIT
from tests.support.cli import Cli
from tests.support.mcp_client import McpClient, over_stdio, text_of
from tests.support.server import Running


class Story:
    """Uses every tool once or more, and notes which."""

    def __init__(self, client: McpClient, channel: str = "mcp") -> None:
        self._client = client
        self._channel = channel
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
        assert decision["channel"] == self._channel
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

    def claim(self, **more: Any) -> Any:
        claim = {"queues": ["review"], "worker": "tests", "wait": 20, **more}
        [work] = self.call("claim_work", **claim)["work"]
        return work

    def work(self) -> None:
        """Do the work of a task as an external worker does, with every call that it has."""
        task_id = self.run("worked", 0)["id"]
        work = self.claim(client_token=task_id)
        assert self.claim(client_token=task_id)["lease_id"] == work["lease_id"]
        assert work["input"] == {"text": "hello"}
        lease = {"lease_id": work["lease_id"]}
        assert self.call("start_work", **lease)["action"] == "continue"
        assert self.call("heartbeat", **lease)["action"] == "continue"
        self.call("save_checkpoint", value={"page": 2}, **lease)
        self.call("write_log", text="half done\n", **lease)
        assert self.call("add_artifact", name="notes", value=[1, 2], **lease)["hash"]
        new = {"value": {"plan": 1}, "label": "plan", "client_token": "t", **lease}
        assert self.call("add_snapshot", **new) == self.call("add_snapshot", **new)
        [snapshot] = self.call("read_snapshots", **lease)["snapshots"]
        assert self.call("read_latest_snapshot", **lease) == snapshot
        assert self.call("list_queues")["queues"]
        assert self.call("expire_leases") == {"expired": [], "kept": [], "has_more": False}
        asked = self.call("ask_person", question="Which one?", choices=["a", "b"], **lease)
        assert "stop this work" in self.refused("heartbeat", **lease)
        self.call("answer", approval_id=asked["approval"], value="b")
        work = self.claim()
        assert work["answer"]["value"] == "b"
        assert work["checkpoint"] == {"page": 2}
        lease = {"lease_id": work["lease_id"]}
        self.call("release_work", reason="not mine", **lease)
        lease = {"lease_id": self.claim()["lease_id"]}
        self.call("block_work", reason="no access", **lease)
        self.call("resume_work", work_id=work["id"], value="go on")
        lease = {"lease_id": self.claim(start=True)["lease_id"]}
        self.call("complete_work", output={"found": 1}, **lease)
        done = self.call("wait_for_task", task_id=task_id, wait_seconds=30)
        assert done["output"] == {"found": 1}
        assert self.call("list_snapshots", task_id=task_id)["snapshots"][0]["label"] == "plan"
        self.dead_letters()

    def dead_letters(self) -> None:
        task_id = self.run("worked", 0)["id"]
        new = {"task_id": task_id, "value": {"mine": 1}, "label": "note", "client_token": "t"}
        appended = self.call("append_snapshot", **new)
        assert self.call("append_snapshot", **new) == appended
        assert self.call("get_latest_snapshot", task_id=task_id)["id"] == appended["id"]
        lease = {"lease_id": self.claim(start=True)["lease_id"]}
        self.call("fail_work", message="it cannot be done", retryable=False, **lease)
        assert self.call("wait_for_task", task_id=task_id, wait_seconds=30)["status"] == "failed"
        [dead] = [
            each for each in self.call("list_dead_letters")["dead"] if each["task"] == task_id
        ]
        again = self.call("requeue_dead_letter", work_id=dead["id"], reason="try again")
        lease = {"lease_id": self.claim(start=True)["lease_id"]}
        self.call("complete_work", output="well", **lease)
        done = self.call("wait_for_task", task_id=again["task_id"], wait_seconds=30)
        assert done["output"] == "well"

    def pruning(self) -> None:
        """Only count without arguments; remove what is asked for; nothing here is a year old."""
        counted = self.call("prune_tasks")
        assert (counted["dry_run"], counted["days"], counted["counts"]["tasks"]) == (True, 30, 0)
        assert self.call("prune_tasks", days=0)["counts"]["tasks"] > 0
        removed = self.call("prune_tasks", days=365, dry_run=False)
        assert (removed["dry_run"], removed["counts"]["tasks"]) == (False, 0)
        assert "minimum" in self.refused("prune_tasks", days=-1)

    def offered(self) -> None:
        task = self.call("workflow_offered", word="ha", wait_seconds=30)
        assert task["output"] == {"said": "haha"}
        assert "word" in self.refused("workflow_offered", wait_seconds=1)
        at_once = self.call("workflow_offered", word="x")
        assert not at_once["is_over"] or at_once["output"]


def test_every_tool_works_over_http(owner: McpClient) -> None:
    """Each tool does what its route does, and returns what its output schema says."""
    _use_every_tool(owner, "mcp")


def test_every_tool_works_over_standard_input(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tools from a program of the client's own, which calls the daemon."""
    options = ["--scope", "admin"]
    token = {"AGENT_TOKEN": running.token}
    connect = over_stdio(
        running.settings.base, "--server", running.server.url, "mcp", *options, env=token
    )
    with McpClient(connect) as client:
        _use_every_tool(client, "api")


def _use_every_tool(client: McpClient, channel: str) -> None:
    story = Story(client, channel)
    story.workflows()
    story.reads()
    story.control()
    story.approvals()
    story.triggers()
    story.state()
    story.work()
    story.offered()
    story.pruning()
    assert story.used == client.tools().keys()


def test_tools_work_on_a_database_of_this_machine(running: Running) -> None:
    """Without a server the program changes the database itself; the worker runs what it starts."""
    database = f"database.url={running.database.url}"
    connect = over_stdio(running.settings.base, "-c", database, "mcp", "--allow-answers")
    with McpClient(connect) as client:
        story = Story(client)
        story.workflows()
        story.approvals()
        story.offered()
        open_task = client.call("start_workflow", name="signalled", wait_seconds=20)
        assert "no agent is running" in open_task["message"]
        assert "claim_work" not in client.tools()
        assert "'work:QUEUE'" in client.refused("claim_work")
        assert "ask the running agent" in client.refused("expire_leases")
        assert "needs the scope 'admin'" in client.refused("prune_tasks")


def test_work_is_claimed_from_the_agent_that_runs_here(running: Running) -> None:
    """With a scope of a queue the tools are those of the running agent; without one it is an error."""
    queue = ["mcp", "--scope", "work:review"]
    cli = Cli(running.settings.base)
    refused = cli(*queue, code=5)
    assert "no agent runs here" in refused.err and "--server" in refused.err
    configuration = loader.read(discovery.find(None, {}), {})
    instance = InstanceFile(running.home, configuration, "2026-01-05T08:00:00Z")
    instance.write(running.server.url)
    try:
        with McpClient(over_stdio(running.settings.base, *queue)) as client:
            assert client.call("claim_work", queues=["review"], worker="local") == {"work": []}
            assert "get_task" not in client.tools()
    finally:
        instance.remove()


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


def test_texts_hide_nothing(owner: McpClient) -> None:
    """What a client shows has escapes for characters without a look, and reads back as the document."""
    word = "pay\u202e me\u200b"
    task = owner.call("workflow_offered", word=word, wait_seconds=30)
    result = owner.result("get_task", {"task_id": task["id"]})
    refusal = owner.refused("get_task", task_id=word)
    read = owner.run(lambda client: client.read_resource(f"agent://tasks/{task['id']}"))
    texts = [text_of(result), read.contents[0].text]  # type: ignore[union-attr]
    assert result.structured_content is not None
    assert result.structured_content["input"]["word"] == word
    assert [json.loads(text)["input"]["word"] for text in texts] == [word, word]
    assert not any(char in text for text in [*texts, refusal] for char in "\u202e\u200b")


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
