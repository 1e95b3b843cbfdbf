"""`agent --server URL`: the same commands on a remote agent, with the same output and exit codes."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.cli.client import remote, transport
from agent.cli.errors import CommandError
from agent.cli.main import main
from agent.cli.output import terminal
from agent.workflows.compile.compiler import compile_text
from tests.support.conversations import said_before
from tests.support.recorded_triggers import record_workflow
from tests.support.sample_workflows import ASKING, GATED
from tests.support.server import Running, wait_for


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)


Command = Callable[..., Result]


@pytest.fixture
def command(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Command:
    """Return a function that runs a command in this process, with the token in the environment."""
    for text in (GATED, ASKING):
        running.add_workflow(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_TOKEN", running.token)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str, code: int = 0) -> Result:
        monkeypatch.setattr(sys, "argv", ["agent", *arguments])
        terminal.console.cache_clear()
        capsys.readouterr()
        ended = 0
        try:
            main()
        except SystemExit as left:
            ended = int(left.code or 0)
        terminal.console.cache_clear()
        captured = capsys.readouterr()
        result = Result(ended, captured.out, captured.err)
        assert result.code == code, result
        return result

    return run


@pytest.fixture
def there(running: Running, command: Command) -> Command:
    """Return a function that runs a command on the agent by its address."""
    return lambda *arguments, **options: command(
        "--server", running.server.url, *arguments, **options
    )


@pytest.fixture
def here(running: Running, command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs a command on the same agent by its database."""
    assert running.database.path is not None
    monkeypatch.setenv("AGENT_DATABASE__URL", f"sqlite:///{running.database.path}")
    return command


def _asked(there: Command, workflow: str) -> tuple[str, str]:
    """Start a workflow with a question; return the task and the question."""
    done = there("run", workflow, "--wait", "--json", code=4)
    (on,) = done.json["waiting_on"]
    return done.json["id"], on["approval"]


def test_reads_are_the_same(there: Command, here: Command) -> None:
    """Commands that read print the same over HTTP and from the database, as text and as JSON."""
    task_id, approval = _asked(there, "gated")
    done = there("run", "quick", "-i", "word=said", "--wait", "--json").json["id"]
    for arguments in (
        ["tasks", "--limit", "3"],
        ["tasks", "--status", "running", "--workflow", "gated", "--limit", "2"],
        ["tasks", "--activity", "waiting", "--workflow", "gated", "--limit", "2"],
        ["show", done],
        ["show", task_id[-8:]],
        ["show", done, "one"],
        ["logs", done],
        ["logs", done, "one"],
        ["events", done],
        ["events", "--limit", "7"],
        ["watch", done],
        ["approvals", approval],
        ["approvals", "--all", "--limit", "2"],
        ["budget", done],
        ["workflows", "show", "quick"],
        ["workflows", "compare", "quick", "1", "1"],
    ):
        for more in ([], ["--json"]):
            far, near = there(*arguments, *more), here(*arguments, *more)
            # How long ago something was, and how to say the next command, may differ.
            if more:
                assert far.json == near.json, arguments
            elif not any(word in near.out for word in ("ago", "just now", "agent ")):
                assert far.out == near.out, arguments
    listed = {workflow["name"]: workflow for workflow in there("workflows", "--json").json}
    nearby = {workflow["name"]: workflow for workflow in here("workflows", "--json").json}
    assert listed["filed"].keys() == nearby["filed"].keys()


def test_a_workflow_in_python_is_not_sent(there: Command, tmp_path: Path) -> None:
    """The API takes YAML and JSON: the command says so, and does not execute the file."""
    (tmp_path / "flow.py").write_text("raise SystemExit('executed')\n", encoding="utf-8")
    refused = there("run", "flow.py", code=2)
    assert "flow.py is a workflow in Python" in refused.err
    # Its workflow directory is no way: only YAML is read there.
    assert "run the file on that agent's machine" in refused.err
    assert "executed" not in refused.err


def test_a_compiled_graph_is_not_sent(there: Command, tmp_path: Path) -> None:
    """The API takes the language, also as JSON: this command says so, not the server's compiler."""
    graph = compile_text(b"name: made\nsteps: {rest: {wait: 1s}}", "made.yaml")
    (tmp_path / "made.json").write_text(graph.text)
    refused = there("run", "made.json", code=2)
    assert "made.json is a compiled graph" in refused.err
    assert "on that agent's machine" in refused.err
    (tmp_path / "written.json").write_text('{"name": "written", "steps": {"rest": {"wait": "0s"}}}')
    assert "of written" in there("run", "written.json").out


def test_refusals_are_the_same(there: Command, here: Command) -> None:
    """Errors have the same exit code and message."""
    task_id = there("run", "signalled", "--json").json["id"]
    for code, arguments in (
        (3, ["show", "ffffffff"]),
        (3, ["show", "zz"]),
        (3, ["logs", task_id, "none"]),
        (3, ["show", task_id, "none"]),
        (3, ["retry", task_id]),
        (3, ["resolve", task_id, "ask", "--done"]),
        (3, ["fork", task_id, "--from", "none"]),
        (3, ["approve", "ffffffff"]),
        (3, ["workflows", "show", "none"]),
        (3, ["workflows", "show", "quick", "--version", "9"]),
        (3, ["artifact", "0" * 64]),
        (2, ["artifact", "what"]),
        (2, ["run", "quick", "-i", "wrod=x"]),
        (2, ["run", "none.yaml"]),
        (2, ["events", "--after", "x"]),
        (2, ["tasks", "--status", "done"]),
    ):
        far, near = there(*arguments, code=code), here(*arguments, code=code)
        assert far.err == near.err, arguments
    # What is known differs: here also the files of this machine's directory.
    assert "none" in there("run", "none", code=3).err


def test_tasks_are_controlled(there: Command) -> None:
    """Pause, resume, signal, cancel, retry and fork work over HTTP."""
    task_id = there("run", "signalled", "--json").json["id"]
    assert there("pause", task_id, "--reason", "lunch", "--json").json["changed"] is True
    assert there("show", task_id, "--json").json["pause_reason"] == "lunch"
    assert there("resume", task_id, "--json").json["changed"] is True
    there("signal", task_id, "go", '{"a": [1]}')
    assert there("watch", task_id, "--json").json["output"] == {"a": [1]}
    old = there("run", "quick", "-i", "word=old", "--wait", "--json").json["id"]
    forked = there("fork", old, "--from", "one", "-i", "word=new", "--json").json["task_id"]
    assert there("watch", forked, "--json").json["output"] == "new"
    other = there("run", "signalled", "--json").json["id"]
    assert "canceled" in there("cancel", other).out
    failed = there("run", "failing", "--wait", "--json", code=1).json["id"]
    again = there("retry", failed, "--json").json["task_id"]
    assert there("watch", again, "--json", code=1).json["retry_of"] == failed
    raised = there("budget", there("run", "signalled", "--json").json["id"], "--usd", "2")
    assert "budget set" in raised.out


def test_questions_are_answered(there: Command) -> None:
    """Approve with an edit, deny, answer and defer; a second answer reports the first."""
    task_id, approval = _asked(there, "gated")
    done = there("approve", approval[-8:], "--set", 'argv=["echo", "less"]', "--json").json
    assert (done["status"], done["decision"]["by"]) == ("approved", "owner")
    assert there("watch", task_id, "--json").json["output"] == "less"
    assert "already" in there("deny", approval, code=3).err
    task_id, approval = _asked(there, "gated")
    assert "denied" in there("deny", approval, "--reason", "no").out
    assert "no" in there("watch", task_id, code=1).out
    task_id, approval = _asked(there, "asking")
    assert there("defer", approval, "1h", "--json").json["remind_at"] is not None
    assert "give one of" in there("answer", approval, "green", code=2).err
    there("answer", approval, "blue")
    assert there("watch", task_id, "--json").json["output"] == "blue"


TRIGGERED = """\
name: triggered
on:
  schedule: {id: daily, cron: 0 9 * * *, timezone: Asia/Tokyo}
  watch: {id: lines, command: {argv: [echo, '{"key": "a"}']}, every: 1h, first: all}
steps: {rest: {wait: 1ms}}
"""


def test_triggers_are_controlled(running: Running, there: Command, here: Command) -> None:
    """Schedules and watchers are listed, shown and controlled as at their own machine."""
    record_workflow(running.database, TRIGGERED)
    for arguments in (
        ["schedules", "--json"],
        ["watchers", "--json"],
        ["triggers", "--all", "--json"],
        ["schedules", "show", "daily", "--json"],
        ["watchers", "show", "lines", "--json"],
        ["watchers", "check", "lines", "--json"],
        ["schedules", "backfill", "daily", "--from", "3d", "--dry-run", "--json"],
    ):
        assert there(*arguments).out == here(*arguments).out, arguments
    for arguments, code in (
        (["schedules", "show", "lines"], 3),
        (["schedules", "pause", "daly"], 3),
        (["watchers", "check", "nothing"], 3),
        (["schedules", "pause", "daily", "--until", "soon"], 2),
    ):
        assert there(*arguments, code=code).err == here(*arguments, code=code).err, arguments
    ran = there("schedules", "run", "daily", "--json").json
    assert there("show", ran["tasks"][0], "--json").json["trigger"]["fate"] == "manual"
    assert "paused until" in there("schedules", "pause", "daily", "--until", "2h").out
    assert "resumed" in there("schedules", "resume", "daily", "--catch-up").out
    assert "skipped" in there("schedules", "skip", "daily").out
    queued = there("schedules", "backfill", "daily", "--from", "2d", "--json").json
    assert queued["changed"] is True
    shown = here("schedules", "show", "daily", "--json").json
    fates = {firing["key"]: firing["status"] for firing in shown["firings"]}
    assert fates.keys() > set(queued["instants"])
    assert set(fates.values()) <= {"started", "skipped", "queued"}
    assert "reset" in there("watchers", "reset", "lines").out
    assert "polls now" in there("watchers", "run", "lines").out


def test_a_workflow_file_is_sent(there: Command, tmp_path: Path) -> None:
    """A local workflow file is recorded at the remote agent and started."""
    path = tmp_path / "own.yaml"
    path.write_text(
        "name: own\ninputs: {n: {type: integer}}\nsteps: {one: {wait: 1ms}}\n"
        'output: "{{ inputs.n + 1 }}"\n'
    )
    assert there("run", str(path), "-i", "n=4", "--wait", "--json").json["output"] == 5
    path.write_text("name: own\nsteps: {one: {wiat: 1ms}}\n")
    assert "own.yaml:2" in there("run", str(path), code=2).err
    path.write_text("name: filed\nsteps: {one: {wait: 1ms}}\n")
    assert "is defined in" in there("run", str(path), code=3).err


def test_long_lists_come_in_pages(
    there: Command, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is complete however many pages it takes."""
    monkeypatch.setattr(remote, "_TASKS_PAGE", 2)
    monkeypatch.setattr(remote, "_PAGE", 2)
    made = [there("run", "signalled", "--json").json["id"] for _ in range(5)]
    listed = there("tasks", "--limit", "5", "--json").json
    assert [task["id"] for task in listed] == made[::-1]
    assert len(there("events", "--limit", "7", "--json").json["events"]) == 7


@pytest.mark.parametrize(
    "arguments", [["up"], ["init"], ["doctor"], ["db", "upgrade"], ["token", "list"]]
)
def test_local_commands_are_refused(there: Command, arguments: list[str]) -> None:
    """A command for local files is refused and does nothing."""
    assert "leave out --server" in there(*arguments, code=2).err + there(*arguments, code=2).out
    assert not Path("config.toml").exists()


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "http://", "http://u:p@127.0.0.1", "http://h:x", "http://h/?token=1", "http://h:0"],
)
def test_invalid_addresses_are_refused(command: Command, url: str) -> None:
    """An invalid address is refused before a token is sent."""
    assert "--server" in command("--server", url, "tasks", code=2).err


def test_tokens(command: Command, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment, a file, or the local home directory; the last is never sent elsewhere."""
    url = running.server.url
    monkeypatch.setenv("AGENT_TOKEN", "wrong")
    assert "does not accept this token" in command("--server", url, "tasks", code=3).err
    monkeypatch.delenv("AGENT_TOKEN")
    assert "no token" in command("--server", url, "tasks", code=2).err
    monkeypatch.setenv("AGENT_TOKEN_FILE", "nothing")
    assert "AGENT_TOKEN_FILE" in command("--server", url, "tasks", code=2).err
    monkeypatch.setenv("AGENT_TOKEN_FILE", str(running.server.tokens.owner_file))
    command("--server", url, "tasks")
    monkeypatch.delenv("AGENT_TOKEN_FILE")
    monkeypatch.setenv("AGENT_HOME", str(running.home))
    monkeypatch.setenv("AGENT_SERVER", url)
    command("tasks")
    assert "no token" in command("--server", "https://agent.example", "tasks", code=2).err
    monkeypatch.setenv("AGENT_TOKEN", running.token_with("read"))
    assert "operate" in command("run", "quick", code=3).err


def test_an_address_without_an_agent(command: Command) -> None:
    """An address without an agent is reported at once, with the exit code of a missing database."""
    assert "does not answer" in command("--server", "http://127.0.0.1:1", "tasks", code=5).err
    document = command("--server", "http://127.0.0.1:1", "tasks", "--json", code=5).json
    assert document["error"]["code"] == "no_database"


def test_requests_to_a_busy_agent_are_retried(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeatable requests are retried after `Retry-After`; others report the refusal."""
    monkeypatch.setenv("AGENT_TOKEN", running.token)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    client = transport.Transport(running.server.url, running.settings, notify=print)
    problem = {"content-type": "application/problem+json", "retry-after": "1"}
    busy = httpx.Response(503, headers=problem, content=b'{"detail": "too much"}')
    answers: list[Any] = []
    sent: list[Any] = []

    def request(_method: str, path: str, **options: Any) -> httpx.Response:
        sent.append((path, options.get("headers")))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(client._http, "request", request)
    answers += [busy, httpx.ReadError("cut"), busy, httpx.Response(200, content=b"[1]")]
    assert client.get("tasks") == [1]
    answers += [httpx.ReadError("cut"), httpx.Response(201, content=b"[2]")]
    assert client.post("workflows/a/tasks", {}, key="k") == [2]
    assert [request[1] for request in sent[-2:]] == [{"Idempotency-Key": "k"}] * 2
    for lost in (busy, httpx.ReadError("cut")):
        answers.append(lost)
        with pytest.raises(CommandError):
            client.post("tasks/1/signals/go", {})
        assert answers == []
    client.close()


def test_watch_follows_a_task_to_its_end(there: Command, running: Running) -> None:
    """`watch` ends when the task has ended."""
    task_id = there("run", "signalled", "--json").json["id"]
    with running.client() as client:
        wait_for(lambda: client.post(f"/api/v1/tasks/{task_id}/signals/go", json=1).is_success)
    assert there("watch", task_id, "--json").json["status"] == "succeeded"


def test_memories_of_a_remote_agent(command: Command, running: Running) -> None:
    """Added, found, shown and forgotten with the same output as on this machine."""
    server = ["--server", running.server.url]
    added = command(*server, "memory", "add", "green tea", "--scope", "remote", "--json").json
    found = command(*server, "memory", "search", "tea", "--scope", "remote", "--json").json
    assert found == [added]
    number = str(added["id"])
    assert "green tea" in command(*server, "memory", "show", number).out
    assert f"forgot {number}: green tea" in command(*server, "memory", "forget", number).out
    assert "no memories" in command(*server, "memory", "--scope", "remote").out
    assert "(forgotten)" in command(*server, "memory", "--scope", "remote", "--forgotten").out
    assert "forgotten already" in command(*server, "memory", "forget", number, code=3).err


def test_conversations_of_a_remote_agent(running: Running, there: Command) -> None:
    """They are listed, shown and deleted as on a local database."""
    said_before(running.database, "terminal:ada", ("hello", "yes"))
    (listed,) = there("conversations", "--json").json
    assert listed["id"] == "terminal:ada"
    assert "yes" in there("conversations", "show", "terminal:ada").out
    forgotten = there("conversations", "forget", "terminal:ada", "--yes")
    assert "deleted 2 entries" in forgotten.out
    there("conversations", "show", "terminal:ada", code=3)


def test_state_of_a_remote_agent(there: Command, here: Command) -> None:
    """Values are set, listed, shown and deleted as on the agent's own machine."""
    there("state", "set", "remote_rate", "1.5", "--shared")
    listed = there("state", "--shared", "--json").json
    assert [each["value"] for each in listed if each["name"] == "remote_rate"] == [1.5]
    assert listed == here("state", "--shared", "--json").json
    refused = there("state", "set", "remote_rate", "2", "--if-version", "7", code=3)
    assert "is at version 1" in refused.err
    shown = there("state", "show", "remote_rate", "--json").json
    assert shown == here("state", "show", "remote_rate", "--json").json
    assert shown["written_by"].startswith("api:")
    there("state", "delete", "remote_rate")
    assert there("state", "show", "remote_rate", "--shared", "--json").json["deleted"]
    there("state", "delete", "remote_rate", "--shared", code=3)


def test_open_makes_a_link_of_the_remote_agent(command: Command, running: Running) -> None:
    """The link leads to the address that was given, and needs a token of the scope admin."""
    url = running.server.url
    made = command("--server", url, "open", "--json", "--name", "away", "--scope", "read").json
    assert made["url"].startswith(f"{url}/sign-in/")
    with running.client("") as visitor:
        assert visitor.post(made["url"]).status_code == 303
    sessions = {each["name"]: each["scopes"] for each in running.server.sessions.listed()}
    assert sessions["away"] == ["read"]


def test_open_says_which_scope_is_missing(
    command: Command, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message for a token that may not make links names the scope."""
    monkeypatch.setenv("AGENT_TOKEN", running.token_with("operate"))
    refused = command("--server", running.server.url, "open", "--print", code=3)
    assert "admin" in refused.err
