"""Help: quick, because it loads next to nothing, and complete."""

import json
import subprocess
import sys

import pytest

from tests.support.cli import COMMANDS, ROOT, Cli

HEAVY = [
    "rich",
    "pydantic",
    "structlog",
    "sqlalchemy",
    "sqlmodel",
    "alembic",
    "jinja2",
    "ruamel",
    "httpx",
    "anthropic",
    "psycopg",
    "pysqlite3",
    "apscheduler",
    "tomlkit",
    "jsonschema_rs",
    "asyncio",
]

LOADED = """
import json, sys
from agent.cli.main import main
sys.argv = ["agent", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def test_help_names_every_command(cli: Cli) -> None:
    """`agent --help` lists every command with a word on what it does."""
    text = cli("--help").out
    for command in COMMANDS:
        assert any(
            line.split()[:1] == [command] and len(line.split()) > 1 for line in text.splitlines()
        ), command


@pytest.mark.parametrize(
    "group",
    [[], ["workflows"], ["schedules"], ["watchers"], ["pairings"], ["db"], ["token"]],
)
def test_lists_of_commands_cut_nothing_off(cli: Cli, group: list[str]) -> None:
    """What each command does fits on its line."""
    assert "..." not in cli(*group, "--help").out.split("Commands:")[1]


def test_the_version_is_an_option_too(cli: Cli) -> None:
    """`agent --version` is what people try first."""
    assert cli("--version").out == cli("version").out


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """What only talks about the program loads typer, and none of what the engine stands on."""
    # To read a command's own arguments typer may load pydantic by itself.
    heavy = set(HEAVY) if arguments == ["--help"] else set(HEAVY) - {"pydantic", "asyncio"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert "typer" in loaded
    assert not heavy & set(loaded)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    """Each command has a help text of its own; what is optional stands in one pair of brackets."""
    text = cli(command, "--help").out
    assert "Usage: " in text
    assert "[[" not in text


@pytest.mark.parametrize("command", ["tasks", "triggers"])
def test_a_list_loads_only_what_it_needs(cli: Cli, command: str) -> None:
    """A status command loads no model SDK, no HTTP client, no ORM and no migrations."""
    cli("db", "upgrade")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, command],
        cwd=cli.directory,
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stderr.splitlines()[-1])
    heavy = set(HEAVY) - {"rich", "pydantic", "pysqlite3", "asyncio", "jinja2"}
    assert not heavy & set(loaded)


def test_only_the_daemon_loads_the_job_scheduler(cli: Cli) -> None:
    """A command that runs a task itself has no periodic jobs."""
    cli.write("flow.yaml", "name: flow\nsteps: {one: {wait: 1ms}}\n")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "run", "flow.yaml", "--wait"],
        cwd=cli.directory,
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "succeeded" in done.stdout
    assert not {"apscheduler", "tzlocal"} & set(json.loads(done.stderr.splitlines()[-1]))


def test_unknown_commands_and_options_are_bad_usage(cli: Cli) -> None:
    """An unknown name is one line of error, with exit code 2."""
    assert "No such command" in cli("frobnicate", code=2).err
    assert "No such option" in cli("tasks", "--frobnicate", code=2).err
    assert "Missing argument" in cli("show", code=2).err
