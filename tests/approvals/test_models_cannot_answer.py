"""A model cannot answer an approval: each path that a tool could take is closed, or the docs name it."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from agent import bootstrap
from agent.config.loader import load
from agent.config.settings import Settings
from agent.core.files import confined_files
from agent.core.files.private_files import PrivateFiles
from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt.services import Limits
from agent.steps.process.environment import environment_of, environment_of_watcher
from agent.steps.spec.agent_config import TOOL_KINDS, EngineVerb
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from agent.tool_services.engine_control import EngineControl
from tests.support.agent_loop import answers, approved, trial, uses
from tests.support.attempt import run
from tests.support.cli import PROGRAM, ROOT, Cli
from tests.support.sample_workflows import GATED
from tests.support.server import Running

TOKEN = "owner-token-4f2a9c"
EXAMINED = {"http", "shell", "python", "files", "workflow", "mcp", "memory", "engine"}
"""The tools whose ways to an answer this module and docs/memory.md close or name."""


def test_every_tool_was_examined() -> None:
    """A new tool is not offered before its ways to an answer were considered here."""
    assert set(TOOL_KINDS) == EXAMINED


def test_the_engine_offers_models_no_decision() -> None:
    """What a model can reach of the engine lists, shows, starts, pauses, resumes and cancels."""
    offered = {name for name in vars(EngineControl) if not name.startswith("_")}
    assert offered == {
        "list_tasks", "show_task", "list_workflows", "list_triggers",
        "start", "pause", "resume", "cancel",
    }  # fmt: skip
    assert set(get_args(EngineVerb)) == {"list", "show", "start", "pause", "resume", "cancel"}


def test_the_http_tool_does_not_reach_the_agents_own_api(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """Allowed by its list and by the address policy, it is refused; and a request has no token."""
    with Running(sqlite_database, tmp_path) as running:
        url = running.server.url
        port = httpx.URL(url).port
        limits = Limits(allow_private=("127.0.0.1", "localhost"), own_urls=_own_urls(port))
        addresses = [f"{url}/api/v1/approvals", f"http://localhost:{port}/api/v1/approvals"]
        script = [uses(*(("web", {"url": address}) for address in addresses)), "done"]
        tool = {"http": {"urls": [url, f"http://localhost:{port}"], "methods": ["get", "post"]}}
        made = trial(script, {"web": tool}, limits=limits)
        assert run(made.attempt()) == Succeeded("done")
        assert ["own API" in answer["refused"] for answer in answers(made)] == [True, True]
        # By another name for the same address a request would still lack a token.
        assert httpx.post(f"{url}/api/v1/approvals/x/approve").status_code == 401


def _own_urls(port: int | None) -> tuple[str, ...]:
    settings = Settings.model_validate({"server": {"port": port}})
    return bootstrap.limits_of(settings).own_urls


def test_no_private_address_is_reached_without_an_exception() -> None:
    """Without an exception in the configuration, no private address is reached at all."""
    tool = {"http": {"urls": ["http://127.0.0.1:8420"]}}
    script = [uses(("web", {"url": "http://127.0.0.1:8420/healthz"})), "done"]
    made = trial(script, {"web": tool})
    assert run(made.attempt()) == Succeeded("done")
    assert "not a public address" in answers(made)[0]["text"]


def test_the_files_tool_opens_no_private_file(tmp_path: Path) -> None:
    """Neither the tokens nor the database nor the configuration, by name or by a hard link."""
    (tmp_path / "config.toml").write_text("")
    settings = load(str(tmp_path / "config.toml"))
    settings.home.mkdir()
    private = ("token", "tokens.json", "sessions.json", "agent.db", "audit.jsonl")
    for name in private:
        (settings.home / name).write_text(TOKEN)
    (settings.home / "notes.txt").write_text("mine")
    os.link(settings.home / "token", settings.home / "harmless.txt")
    (settings.home / "backups").mkdir()
    beside = (
        "backups/agent-20270115T080000Z.db",
        "agent.db.replaced-20270115T080000Z",
        "agent.db-journal",
        "daemon.json",
        "unsettled-agent.db-1.json",
        "tokens.unfinished",
    )
    for name in beside:
        (settings.home / name).write_text(TOKEN)
    (tmp_path / ".env").write_text(TOKEN)
    paths = [
        *(f"data/{name}" for name in private),
        "data/harmless.txt",
        *(f"data/{name}" for name in beside),
        ".env",
        "config.toml",
    ]
    script = [
        uses(*(("files_read", {"path": path}) for path in paths)),
        uses(*(("files_write", {"path": path, "text": "[]"}) for path in paths)),
        uses(("files_write", {"path": "data/agent.db-wal", "text": "x"})),
        uses(("files_read", {"path": "data/notes.txt"})),
        "done",
    ]
    tool = {"files": {"directory": str(tmp_path), "write": True}, "approve": "never"}
    limits = Limits(private_files=bootstrap.private_files(settings))
    made = trial(script, {"files": tool}, limits=limits)
    assert run(made.attempt()) == Succeeded("done")
    *closed, note = answers(made)
    assert ["private file" in answer["text"] for answer in closed] == [True] * (2 * len(paths) + 1)
    assert note == {"text": "mine"}
    assert (settings.home / "token").read_text() == TOKEN


def test_all_that_the_agent_writes_is_private(cli: Cli) -> None:
    """Whatever a running agent and the commands put into its home directory, and what they leave there."""
    cli.write("config.toml", "")
    cli("token", "create", "mine", "--scope", "read")
    asked(cli)

    def written() -> set[str]:
        settings = load(str(cli.directory / "config.toml"))
        closed = PrivateFiles(bootstrap.private_files(settings))
        files = {path for path in settings.home.rglob("*") if path.is_file()}
        with ExitStack() as opened:
            for path in files:
                parent = opened.enter_context(confined_files.opened(path.parent))
                assert closed.has(parent, path.name), path
        return {path.name for path in files}

    with cli.daemon() as daemon:
        assert {"daemon.json", "audit.jsonl", "tokens.json", "agent.db-wal"} <= written()
        daemon.kill()
        daemon.wait()
        assert "daemon.json" in written()


def test_programs_get_no_token_and_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, MCP servers and watchers: the agent's own variables do not reach them."""
    monkeypatch.setenv("AGENT_TOKEN", TOKEN)
    monkeypatch.setenv("AGENT_SERVER__PORT", "1")
    script = [uses(("sh", {"argv": ["env"]})), "done"]
    made = trial(script, {"sh": {"shell": {"allow": [["env"]]}, "effect": "none"}})
    assert run(made.attempt()) == Succeeded("done")
    printed = json.loads(answers(made)[0]["text"])["stdout"]
    assert TOKEN not in printed and "AGENT_SERVER__PORT" not in printed
    assert "AGENT_STEP_ID=step-1" in printed
    assert "AGENT_STEP_ID" in environment_of("s", 1, {"AGENT_STEP_ID": ""})
    assert "AGENT_WATCHER_STARTED_BY" in environment_of_watcher({})


def asked(cli: Cli) -> str:
    """Return an open question of a task."""
    cli.write("gated.yaml", GATED)
    cli("run", "gated.yaml", "--json", code=4)
    ((question,)) = cli("approvals", "--json").json
    return str(question["id"])


@pytest.mark.parametrize("mark", ["AGENT_STEP_ID", "AGENT_WATCHER_STARTED_BY"])
def test_the_command_line_decides_nothing_for_a_program_of_the_engine(cli: Cli, mark: str) -> None:
    """What is a person's is refused: answers, verdicts, budgets, tokens, pairings and chats."""
    question = asked(cli)
    task = cli("tasks", "--json").json[0]["id"]
    cli.environment[mark] = "started-by-the-engine"
    for command in (
        ("approve", question),
        ("deny", question),
        ("answer", question, "yes"),
        ("defer", question, "1h"),
        ("resolve", task, "pay", "--done"),
        ("budget", task, "--tokens", "100"),
        ("token", "create", "mine", "--scope", "approve"),
        ("open", "--print"),
        ("pair", "ABCD"),
        ("chat",),
    ):
        assert "a person does that" in cli(*command, code=3).err, command
    cli("tasks")
    assert [each["status"] for each in cli("approvals", "--json").json] == ["pending"]
    del cli.environment[mark]
    cli("approve", question)


def test_a_shell_tool_that_runs_the_command_line_cannot_approve(cli: Cli) -> None:
    """The agent's own program, started by a model as the same user, refuses and says why."""
    question = asked(cli)
    command = [*PROGRAM, "approve", question]
    keys: dict[str, Any] = {
        "allow": [command],
        "cwd": str(cli.directory),
        "env": {"PYTHONPATH": str(ROOT)},
    }
    made = trial([uses(("sh", {"argv": command})), "done"], {"sh": {"shell": keys}})
    approved(made, ApprovalStatus.APPROVED, run(made.attempt()))
    assert run(made.attempt()) == Succeeded("done")
    answer = json.loads(answers(made)[0]["text"])
    assert answer["exit_code"] == 3 and "a person does that" in answer["stderr"]
    assert [each["status"] for each in cli("approvals", "--json").json] == ["pending"]
