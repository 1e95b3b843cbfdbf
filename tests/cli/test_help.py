"""Help: quick, because it loads next to nothing, and complete."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from agent.cli import front_page, registry
from agent.cli.program import program
from agent.cli.usage_examples import EXAMPLES, lines
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


def test_lists_of_commands_cut_nothing_off(cli: Cli) -> None:
    """What each command of a group does fits on its line."""
    groups = [name for name, command in program().commands.items() if hasattr(command, "commands")]
    assert "db" in groups and "schedules" in groups
    for group in groups:
        listed = cli(group, "--help").out.split("Commands:")[1].split("Examples:")[0]
        assert "..." not in listed, listed


def test_values_have_names_of_their_own(cli: Cli) -> None:
    """`TASK` and `--limit N`, not the types of typer; optional arguments are in brackets."""
    assert "agent show [OPTIONS] TASK [STEP]\n" in cli("show", "--help").out
    assert "agent validate [OPTIONS] [FILE...]\n" in cli("validate", "--help").out
    assert re.search(r"-n, --limit N +The maximum", cli("tasks", "--help").out)
    for command in program().commands.values():
        for each in _all_commands(command):
            text = each.get_help(each.make_context(each.name, [], resilient_parsing=True))
            assert not re.search(r"<[a-z]+", text), text


def test_the_version_is_an_option_too(cli: Cli) -> None:
    """`agent --version` is what people try first."""
    assert cli("--version").out == cli("version").out


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """What only talks about the program loads typer at most, and none of what the engine stands on."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert ("typer" in loaded) == ("run" in arguments)
    assert not set(HEAVY) & set(loaded)


def test_the_help_has_a_group_for_every_command() -> None:
    """The help has no line longer than a terminal, and no group without a command."""
    assert {command.group for command in registry.COMMANDS} == set(registry.GROUPS)
    assert max(map(len, front_page.help_text().splitlines())) <= 80


def test_the_help_says_what_the_commands_say() -> None:
    """The line of the program's help is the first line of the command's own."""
    assert {entry.name: entry.help for entry in registry.COMMANDS} == {
        name: command.help.splitlines()[0] for name, command in program().commands.items()
    }


def test_the_help_is_the_same_after_other_options(cli: Cli) -> None:
    """Help that typer was asked for is the help that is printed without loading it."""
    assert cli("--server", "http://localhost:1", "--help").out == cli("--help").out


def test_a_mistyped_command_gets_the_name_that_was_meant(cli: Cli) -> None:
    """The names of all commands are known although none is loaded."""
    assert "Did you mean 'tasks'" in cli("taks", code=2).err


def test_plain_values_are_checked_as_typer_checks_them(cli: Cli) -> None:
    """A number out of its bounds and a text that is no number are refused with typer's messages."""
    assert "greater than or equal to 1" in cli("tasks", "-n", "0", code=2).err
    assert "valid integer" in cli("tasks", "-n", "ten", code=2).err


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


def test_help_is_a_command_too(cli: Cli) -> None:
    """`agent help` is the first page, `agent help COMMAND` that of a command or of one in a group."""
    assert cli("help").out == cli("--help").out
    assert cli("help", "run").out == cli("run", "--help").out
    assert cli("help", "token", "create").out == cli("token", "create", "--help").out
    assert "Did you mean 'tasks'" in cli("help", "taks", code=2).err


def test_examples_are_of_commands_that_exist() -> None:
    """Every example names a command and options of it, and is shown in that command's help."""
    commands = program().commands
    for name, examples in EXAMPLES.items():
        shown = commands[name].epilog
        for line, about in examples:
            assert line in shown and about in shown
            known = {option for each in _all_commands(commands[name]) for option in _names(each)}
            options = re.findall(r"(?<= )--[a-z-]+", line)
            assert set(options) <= known, line


def test_every_command_has_an_example() -> None:
    """Except those that take nothing; an example and what it does fit on a line each."""
    plain = {"version", "job", "worker", "triggers", "resume", "cancel", "artifact"}
    assert {entry.name for entry in registry.COMMANDS} - plain == set(EXAMPLES)
    for examples in EXAMPLES.values():
        # The help indents them by two more.
        assert max(map(len, lines(examples))) <= 78


def _all_commands(command: Any) -> list[Any]:
    return [command, *getattr(command, "commands", {}).values()]


def _names(command: Any) -> list[str]:
    return [name for each in command.params for name in each.opts]


def test_the_man_page_is_up_to_date(cli: Cli) -> None:
    """`make man` writes it; each command of the program is in it."""
    page = (ROOT / "man" / "agent.1").read_text(encoding="utf-8")
    assert page == cli("help", "--man").out, "run `make man`"
    for entry in registry.COMMANDS:
        assert f".SS agent {entry.name}" in page
    # A line that begins with a dot is a request; nothing else of ours may begin so.
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests <= {".TH", ".SH", ".SS", ".TP", ".PP", ".B"}
