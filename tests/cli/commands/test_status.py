"""`agent status`, `agent reload` and `agent stop` with a running agent."""

import shutil
from pathlib import Path

import pytest

from agent.cli.commands import status
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from tests.support.cli import PROGRAM, ROOT, Cli
from tests.support.recorded_triggers import record_workflow, trigger_row
from tests.support.terminal import Terminal

FAILING = "name: failing\nsteps:\n  fail: {shell: {argv: ['false'], effect: none}}\n"
BLOCKING = """\
import pathlib, time

def block():
    while not pathlib.Path(__file__).with_name("go-on").exists():
        time.sleep(0.05)
"""
SLOW = """\
name: slow
steps:
  wait: {timeout: 0.1s, retry: {max_attempts: 1}, python: "blocking:block"}
"""
DEAF = """\
name: deaf
steps:
  wait: {shell: {argv: [sh, -c, "trap '' TERM; sleep 20"], effect: none}}
"""
SCHEDULED = """\
name: night
on: {schedule: {id: backup, cron: 0 9 * * *, pause_after_failures: 3}}
steps: {rest: {wait: 1s}}
"""
ASKING = "name: asking\nsteps:\n  ask: {approval: {message: Send the invoice?}}\n"


def test_without_an_agent(cli: Cli) -> None:
    """Each command says so; only asking for an agent that should run is a failure."""
    cli("init")
    shown = cli("status", code=3)
    assert shown.out.startswith("no agent is running: `agent up` starts one")
    assert str(cli.directory / "config.toml") in shown.out
    assert cli("status", "--json", code=3).json["agent"] == {"running": False}
    assert "no agent is running" in cli("reload", code=3).err
    assert cli("stop").out == "no agent is running\n"


def test_before_the_first_command(cli: Cli) -> None:
    """Nothing is created by looking."""
    assert "none yet" in cli("status", code=3).out
    assert not (cli.directory / "data").exists()


@pytest.mark.process
def test_a_program_that_was_replaced(cli: Cli, tmp_path: Path) -> None:
    """An upgrade under a running agent is noticed: it runs the old program, and may import the new one."""
    cli("init")
    program = shutil.copytree(
        ROOT / "agent", tmp_path / "program" / "agent", ignore=shutil.ignore_patterns("__pycache__")
    )
    installed = Cli(cli.directory, AGENT_SERVER__PORT="0", PYTHONPATH=str(program.parent))
    installed.program = PROGRAM
    with installed.daemon():
        cli.wait_for((cli.directory / "data" / "daemon.json").exists)
        assert cli("status", "--json").json["outdated_program"] is False
        with (program / "recovery.py").open("a") as file:
            file.write("# another version\n")
        assert cli("status", "--json").json["outdated_program"] is True
        assert "replaced since the agent started" in cli("status").out
        findings = cli.run_any("doctor", "--json").json["findings"]
        (found,) = [
            each for each in findings if each["what"] == "program" and each["state"] == "warning"
        ]
        assert f"the program in {program} was replaced" in found["message"]


@pytest.mark.process
def test_in_another_directory(cli: Cli) -> None:
    """The agent that runs elsewhere is named, then the one used last; no second one is created."""
    cli("init")
    cli("config", "set", "server.port", "0")
    config = cli.directory / "config.toml"
    other = Cli(cli.directory.parent / "other", **cli.environment)
    other.directory.mkdir()
    runs = f"one runs in {cli.directory}: `agent --config {config} status`"
    with cli.daemon() as process:
        cli.wait_for(lambda: cli("status", "--pid").out == f"{process.pid}\n")
        assert (
            f"{other.directory} has none: `agent init` creates one; {runs}"
            in other("status", code=3).out
        )
        for command in ("tasks", "doctor"):
            result = other.run_any(command)
            assert runs in result.out + result.err
        assert runs in other("run", "hello", code=3).err
        for arguments in (["up"], ["open"], ["token", "create", "phone", "--scope", "read"]):
            assert runs in other(*arguments, code=5).err
        assert list(other.directory.iterdir()) == []
        assert cli("--config", str(config), "status", "--pid").out == f"{process.pid}\n"
    assert f"the one used last is in {cli.directory}" in other("up", code=5).err
    other("init")
    assert "used last" not in other("status", code=3).out


@pytest.mark.process
def test_up_asks_before_it_creates_an_agent(cli: Cli) -> None:
    """At a terminal, in a directory where none was set up."""
    terminal = Terminal(cli, "up")
    try:
        terminal.expect("Create one here?")
        terminal.type("n")
        assert terminal.wait() == 5
    finally:
        terminal.close()
    assert not (cli.directory / "data").exists()


@pytest.mark.process
def test_a_running_agent(cli: Cli) -> None:
    """It is described at a glance, takes over its changed file, and ends on request."""
    cli("init")
    cli("config", "set", "server.port", "0", "engine.slots", "5")
    cli.write("failing.yaml", FAILING)
    cli.write("asking.yaml", ASKING)
    failed = cli("run", "failing.yaml", "--json", code=1).json["id"]
    cli("run", "asking.yaml", "--json", "--no-input", code=4)
    with cli.daemon() as process:
        cli.wait_for((cli.directory / "data" / "daemon.json").exists)
        text = cli("status").out
        assert f"process {process.pid}" in text.splitlines()[0]
        assert cli("status", "--pid").out == f"{process.pid}\n"
        assert "1 waiting" in text
        assert "1 open: Send the invoice?" in text
        assert f"agent show {failed[-8:]}" in text
        assert "spend today" in text
        assert len(text.splitlines()) <= 12
        hint = cli("config", "set", "engine.slots", "6", "server.port", "1").err
        assert "`agent reload` applies it" in hint
        assert "needs a restart for server.port" in hint
        findings = [each["message"] for each in cli("doctor", "--json").json["findings"]]
        assert any("older settings than the file: engine.slots;" in each for each in findings)
        about = [line for line in cli("status").out.splitlines() if "older than the file" in line]
        assert "older than the file: engine.slots  " in about[0]
        assert about[0].endswith(" agent reload")
        assert about[1].endswith("older than the file until the agent is restarted: server.port")
        answer = cli("reload")
        assert "applied: engine.slots" in answer.out
        assert "needs a restart: server.port" in answer.out
        api = cli("status", "--json").json["agent"]["api"]
        assert cli("--server", api, "reload", "--json").json["applied"] == []
        assert cli("--server", api, "status").out.startswith("agent ")
        (cli.directory / "config.toml").write_text("[engine]\nslots = 0\n")
        assert "slots" in cli("reload", code=2).err
        (cli.directory / "config.toml").write_text("")
        stopped = cli("stop")
        assert stopped.out == "stopped\n"
        assert f"process {process.pid}" in stopped.err
    assert cli("status", "--json", code=3).json["agent"] == {"running": False}


@pytest.mark.process
def test_a_function_that_outlives_its_attempt(cli: Cli) -> None:
    """While its thread keeps a slot, the agent at a glance says so and names the remedy."""
    cli.write("config.toml", "[server]\nport = 0\n")
    cli.write("blocking.py", BLOCKING)
    cli.write("slow.yaml", SLOW)
    with cli.daemon():
        task = cli("run", "slow.yaml", "--json").json["id"]
        cli.wait_for(lambda: cli.task(task)["status"] == "failed")
        cli.wait_for(lambda: cli("status", "--json").json["degraded"] == ["threads"])
        assert "`executor: process` would end them" in cli("status").out
        findings = cli.run_any("doctor", "--json").json["findings"]
        assert [each["state"] for each in findings if each["what"] == "threads"] == ["warning"]
        cli.write("go-on", "")
        cli.wait_for(lambda: cli("status", "--json").json["degraded"] == [])


@pytest.mark.process
def test_stop_now_does_not_wait_for_steps(cli: Cli) -> None:
    """A command that ignores SIGTERM is left to the next start."""
    cli.write("config.toml", "[engine]\nshutdown_seconds = 3600.0\n[server]\nenabled = false\n")
    cli.write("deaf.yaml", DEAF)
    with cli.daemon():
        task = cli("run", "deaf.yaml", "--json").json["id"]
        cli.wait_for(lambda: cli.task(task)["steps"][0]["status"] == "running")
        assert "still runs after 0.2 s" in cli("stop", "--timeout", "0.2", code=3).err
        assert cli("stop", "--now", "--json").json["message"] == "stopped"
    cli("cancel", task)


def test_a_schedule_that_paused_itself_is_named_with_the_command_that_resumes_it(cli: Cli) -> None:
    """A person has to look at it: it starts nothing until then."""
    cli("db", "upgrade")
    database = Database(f"sqlite:///{cli.directory}/data/agent.db")
    (schedule,) = record_workflow(database, SCHEDULED)
    values = {
        "status": "paused",
        "pause_kind": "failures",
        "pause_reason": "its last 3 tasks failed",
    }
    update = TriggerUpdate(schedule, trigger_row(database, schedule).version)
    update.values = {**values, "next_at": None}
    Operator(database, database.clock).fire(update)
    shown = cli("status", code=3).out
    assert "1: night:backup: its last 3 tasks failed" in shown
    assert "agent schedules resume night:backup" in shown
    cli("schedules", "resume", "night:backup")
    assert "night:backup: its last" not in cli("status", code=3).out


def test_lines_fit_the_terminal() -> None:
    """A command stands behind its text in one column; where there is no room, on a line of its own."""
    rows: list[status.Row] = [
        ("tasks", "1 waiting", "tasks", None),
        ("unknown", "1 effect: pay", "resolve c7f03940 pay --done|--retry|--fail", "yellow"),
        ("next", "heartbeat:beat in 12.6 s, backup:nightly in 6 h 47 min", "schedules", None),
    ]
    shown = [line for line, _ in status.lines(rows, "agent", 80)]
    assert max(map(len, shown)) <= 80
    assert shown[0].index("agent") == 16 + len("1 effect: pay") + 2
    assert [line.strip() for line in shown[1:]] == [
        "unknown       1 effect: pay  agent resolve c7f03940 pay --done|--retry|--fail",
        "next          heartbeat:beat in 12.6 s, backup:nightly in 6 h 47 min",
        "agent schedules",
    ]
    whole = [line for line, _ in status.lines(rows, "agent", None)]
    assert [line.index("agent") for line in whole[:2]] == [70, 70]
