"""Bad input: one clear message, the right exit code, no traceback, and nothing changed."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli

HELLO = """\
name: hello
inputs:
  name: {type: string, default: world}
  count: {type: integer, default: 1}
steps:
  greet:
    shell: {argv: [echo, "hello {{ inputs.name }}"], effect: none}
"""

READERS = [
    ["tasks"],
    ["show", "x"],
    ["watch", "x"],
    ["logs", "x"],
    ["events"],
    ["pause", "x"],
    ["resume", "x"],
    ["cancel", "x"],
    ["retry", "x"],
    ["fork", "x", "--from", "a"],
    ["resolve", "x", "a", "--done"],
    ["signal", "x", "go"],
    ["db", "backup", "copy.db"],
    ["db", "prune"],
]


@pytest.mark.parametrize("arguments", READERS, ids=lambda arguments: arguments[0])
def test_no_database_is_its_own_exit_code(cli: Cli, arguments: list[str]) -> None:
    """Without a database every command but those that make one says so, and makes none."""
    result = cli(*arguments, code=5)
    assert "agent init" in result.err
    assert result.err.count("\n") == 1
    assert list(cli.directory.iterdir()) == []


def test_errors_with_json_are_one_document_too(cli: Cli) -> None:
    """A program that asked for JSON gets it also when something is wrong."""
    result = cli("tasks", "--json", code=5)
    assert result.json["error"]["code"] == "no_database"
    assert "agent init" in result.json["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "hello.yaml", "-i", "count=" + "9" * 5000], "5000 digits is too long"),
        (["run", "hello.yaml", "--input-json", "9" * 5000], "5000 digits is too long"),
        (["run", "hello.yaml", "-i", "name"], "write it as key=value"),
        (["run", "hello.yaml", "-i", "name=a", "-i", "name=b"], "given twice"),
        (["run", "hello.yaml", "-i", "nam=a"], "did you mean 'name'"),
        (["run", "hello.yaml", "-i", "count=many"], "must be a whole number"),
        (["run", "hello.yaml", "--input-json", "{"], "this is not JSON"),
        (["run", "hello.yaml", "--input-json", "[1]"], "give an object"),
        (["run", "hello.yaml", "--input-json", '{"count": NaN}'], "NaN is not a JSON value"),
        (["run", "hello.yaml", "--wait", "--detach"], "exclude each other"),
        (["run", "hello.yaml", "--priority", "urgent"], "there is no priority 'urgent'"),
        (["run", "gone.yaml"], "gone.yaml"),
        (["run", "broken.yaml"], "broken.yaml:3"),
        (["run", "text.txt"], "text.txt"),
        (["resolve", "x", "a"], "exactly one of --done, --retry and --fail"),
        (["resolve", "x", "a", "--done", "--fail"], "exactly one of"),
        (["resolve", "x", "a", "--fail", "--output", "1"], "--output needs --done"),
        (["resolve", "x", "a", "--done", "--output", "{"], "this is not JSON"),
        (["events", "--follow", "--json"], "--json prints one document"),
        (["logs", "x", "--follow", "--json"], "--json prints one document"),
        (["tasks", "--status", "done"], "there is no status 'done'"),
        (["tasks", "--status", "waiting"], "did you mean --waiting?"),
        (["tasks", "--activity", "done"], "there is no activity 'done'"),
        (["worker"], "needs PostgreSQL"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_arguments_are_refused_before_anything_happens(
    cli: Cli, arguments: list[str], message: str
) -> None:
    """Each mistake is named; no database is made for it."""
    cli.write("hello.yaml", HELLO)
    cli.write("broken.yaml", "name: broken\nsteps:\n  a: {shel: {argv: [true]}}\n")
    cli.write("text.txt", "just text")
    assert message in cli(*arguments, code=2).err
    assert not (cli.directory / "data").exists()


def test_an_unknown_workflow_is_not_found(cli: Cli) -> None:
    """A name that nothing has is its own exit code, with the nearest name as a hint."""
    cli.write("workflows/hello.yaml", HELLO)
    assert "did you mean 'hello'" in cli("run", "helo", code=3).err
    assert "there are hello" in cli("run", ".", code=3).err
    assert not (cli.directory / "data").exists()


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
def test_prune_wants_a_plain_number_of_days(cli: Cli, value: str) -> None:
    """Ages that make no sense are refused as bad usage."""
    cli("db", "upgrade")
    cli("db", "prune", "--days", value, code=2)


@pytest.mark.parametrize(
    "arguments",
    [["tasks"], ["up"], ["run", "hello.yaml"], ["doctor"], ["db", "upgrade"]],
    ids=lambda arguments: arguments[0],
)
def test_a_bad_configuration_stops_every_command(cli: Cli, arguments: list[str]) -> None:
    """A mistake in config.toml is reported with its line before anything else happens."""
    cli.write("hello.yaml", HELLO)
    cli.write("config.toml", "[engine]\nslot = 3\n")
    result = cli(*arguments, code=2)
    assert "config.toml:2: engine.slot: there is no such key; did you mean 'slots'?" in result.err
    assert not (cli.directory / "data").exists()


def test_config_option_names_the_file(cli: Cli, tmp_path: Path) -> None:
    """`--config` is used instead of config.toml here; a missing one is refused."""
    other = cli.write("elsewhere/other.toml", '[agent]\nhome = "kept"\n')
    cli("--config", str(other), "db", "upgrade")
    assert (tmp_path / "elsewhere" / "kept" / "agent.db").exists()
    assert "no such configuration file" in cli("--config", "gone.toml", "tasks", code=2).err


def test_a_home_that_cannot_be_made(cli: Cli) -> None:
    """It is reported by its name, as a missing database."""
    home = cli.write("a-file", "") / "home"
    nowhere = Cli(cli.directory, AGENT_HOME=str(home))
    for command in ("init", "up"):
        result = nowhere(command, code=5)
        problem = f"agent: the directory {home} cannot be created: Not a directory\n"
        assert result.err.endswith(problem)


def test_an_unusable_database_is_one_message(cli: Cli) -> None:
    """Garbage, a directory in its place, and an unreachable server cause no traceback."""
    cli.write("data/agent.db", "this is no database" * 100)
    assert cli("tasks", code=5).err.startswith("agent: ")
    (cli.directory / "data" / "agent.db").unlink()
    (cli.directory / "data" / "agent.db").mkdir()
    assert cli("tasks", code=5).err.startswith("agent: ")
    away = Cli(cli.directory, AGENT_DATABASE__URL="postgresql://me:hunter2@127.0.0.1:1/none")
    result = away("tasks", code=5)
    assert "hunter2" not in result.err + result.out


def test_init_that_cannot_write_leaves_no_half_of_a_file(cli: Cli, tmp_path: Path) -> None:
    """It says what it could not make, and the next one is not misled by what is there."""
    (tmp_path / "file").write_text("in the way")
    assert "file: this is not a directory" in cli("init", str(tmp_path / "file"), code=2).err
    target = tmp_path / "small"
    # The longest file that this process may write ends within the configuration.
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 1; exec {shlex.join(PROGRAM)} init {target}"],
        env=cli.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"agent: {target}/config.toml cannot be written: File too large\n"
    assert list(target.iterdir()) == []
