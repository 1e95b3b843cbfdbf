"""Each command works in a process that has loaded nothing for another one."""

from pathlib import Path

import pytest

from agent.cli.registry import COMMANDS
from agent.store.db.database import Database
from tests.support.cli import Cli
from tests.support.fresh_process import run_each
from tests.support.server import Running

pytestmark = pytest.mark.process

FLOW = """\
name: flow
inputs: {word: {type: string, default: hello}}
steps: {one: {shell: {argv: [echo, "{{ inputs.word }}"], effect: none}}}
"""
COMPILED = '{"name": "json", "steps": {"one": {"wait": "1h"}}}'
LONE = {"up", "worker", "job", "mcp", "chat", "open", "service", "notify"}
"""These need an agent, a terminal, a service manager or a job of their own; their own tests run them."""
ON_THE_AGENT = [
    (0, "run flow.yaml -i word=hi"),
    (0, "watch last:flow"),
    (0, "run wait.json --detach"),
    (0, "run flow --detach"),
    (0, "tasks"),
    (0, "show last"),
    (0, "events"),
    (0, "logs last"),
    (0, "workflows show flow"),
    (0, "approvals"),
]
"""Commands that work on the database here and with `--server`, with their exit codes."""
HERE = [
    *ON_THE_AGENT,
    (0, "validate flow.yaml"),
    (0, "budget last"),
    (0, "pause last:json"),
    (0, "resume last:json"),
    (0, "signal last:json go 1"),
    (0, "cancel last:json"),
    (0, "retry last:json"),
    (0, "fork last:json --from one"),
    (0, "state set n 1 --shared"),
    (0, "state"),
    (0, "memory add text --scope notes"),
    (0, "memory search text"),
    (0, "queue"),
    (0, "schedules"),
    (0, "watchers"),
    (0, "triggers"),
    (0, "conversations"),
    (0, "pairings"),
    (0, "top --once"),
    (3, "status"),
    (0, "validate"),
    (0, "doctor"),
    (0, "config get"),
    (0, "completion bash"),
    (0, "help run"),
    (0, "version"),
    (0, "schema"),
    (0, "examples"),
    (0, "secrets"),
    (0, "db check"),
    (0, "token list"),
    (0, "stop"),
    (3, "reload"),
    (3, "resolve last:json one --done"),
    (2, "artifact nothing"),
    (3, "approve nothing"),
    (3, "deny nothing"),
    (3, "answer nothing yes"),
    (3, "defer nothing 1h"),
    (3, "pair nothing"),
]


def _prepare(cli: Cli) -> None:
    cli("init")
    cli.write("flow.yaml", FLOW)
    cli.write("wait.json", COMPILED)


def _failures(lines: list[tuple[int, str]], cli: Cli, *options: str) -> list[tuple[str, int, str]]:
    commands = [[*options, *line.split()] for _, line in lines]
    results = run_each(commands, cli.directory, cli.environment)
    return [
        (line, code, text)
        for (expected, line), (code, text) in zip(lines, results, strict=True)
        if code != expected or "Traceback" in text
    ]


def test_every_command_on_the_database(cli: Cli) -> None:
    """It ends with its code, whichever command came before in another process."""
    _prepare(cli)
    assert _failures(HERE, cli) == []
    tried = {line.split()[0] for _, line in HERE} | {"init"}
    assert {command.name for command in COMMANDS} == tried | LONE


def test_every_command_on_a_remote_agent(
    sqlite_database: Database, tmp_path: Path, cli: Cli
) -> None:
    """`run FILE` compiles the file here before it sends it: the kinds of steps are known."""
    _prepare(cli)
    with Running(sqlite_database, tmp_path) as running:
        cli.environment["AGENT_TOKEN"] = running.token
        assert _failures(ON_THE_AGENT, cli, "--server", running.server.url) == []
