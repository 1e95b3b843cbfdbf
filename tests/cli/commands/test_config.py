"""`agent config`, and which configuration and database a command uses."""

import json
from pathlib import Path

import pytest

from tests.support.cli import Cli

HELLO = "name: hello\nsteps:\n  greet:\n    shell: {argv: [echo, hello], effect: none}\n"


@pytest.fixture
def below(cli: Cli) -> Cli:
    """Commands run in the directory of the workflows of an agent."""
    cli.write("config.toml", "[engine]\nslots = 5\n")
    (cli.directory / "workflows").mkdir(exist_ok=True)
    (cli.directory / "workflows" / "hello.yaml").write_text(HELLO)
    return Cli(cli.directory / "workflows", **cli.environment)


def test_a_command_below_creates_no_second_database(cli: Cli, below: Cli) -> None:
    """It uses the agent's own, and says so when it creates it and with -v."""
    ran = below("run", "hello.yaml")
    database = cli.directory / "data" / "agent.db"
    assert f"creating the database {database}, as {cli.directory / 'config.toml'} says" in ran.err
    assert database.exists()
    assert [path.name for path in below.directory.iterdir()] == ["hello.yaml"]
    again = below("-v", "run", "hello")
    assert "creating" not in again.err
    assert f"configuration: {cli.directory / 'config.toml'} (above" in again.err
    assert f"database: sqlite:///{database}" in again.err
    assert len(cli("tasks", "--json").json) == 2


def test_a_new_database_without_a_configuration_is_announced(cli: Cli) -> None:
    """The first command in an empty directory says what it creates, and how to configure it."""
    (cli.directory / "config.toml").unlink(missing_ok=True)
    cli.write("hello.yaml", HELLO)
    error = cli("run", "hello.yaml").err
    assert f"creating the database {cli.directory / 'data' / 'agent.db'}" in error
    assert "`agent init` writes one" in error


def test_values_with_their_sources(cli: Cli, below: Cli) -> None:
    """One line a key; of one key the value alone, or all about it as JSON."""
    rows = {row["key"]: row for row in below("config", "--json").json}
    assert rows["engine.slots"]["source"] == f"{cli.directory / 'config.toml'}:2"
    assert rows["engine.batch"]["source"] == "default"
    assert below("config", "engine.slots").out == "5\n"
    one = below("-c", "engine.slots=9", "config", "engine.slots", "--json").json
    assert one == {"key": "engine.slots", "value": 9, "source": "command line"}
    table = below("config", "engine").out.splitlines()
    assert table[1].split() == ["engine.slots", "5", "config.toml:2"]
    assert all(line.startswith("engine.") for line in table[1:])
    assert [row["key"] for row in below("config", "--changed", "--json").json] == ["engine.slots"]
    below.environment["AGENT_LOG__LEVEL"] = "debug"
    assert below("config", "log.level", "--json").json["source"] == "AGENT_LOG__LEVEL"


def test_an_unknown_key_gets_a_suggestion(below: Cli) -> None:
    """For reading and for setting."""
    assert "did you mean 'slots'?" in below("config", "engine.slot", code=3).err
    assert "did you mean 'slots'?" in below("config", "set", "engine.slot", "3", code=2).err
    assert "has no value" in below("config", "set", "engine.slots", code=2).err


def test_set_changes_the_file(cli: Cli, below: Cli) -> None:
    """Old and new value are shown, and a variable that wins over the file is named."""
    (cli.directory / "data").mkdir(mode=0o700)
    below.environment["AGENT_ENGINE__SLOTS"] = "8"
    result = below("config", "set", "engine.slots", "7")
    assert result.out == "engine.slots: 5 → 7\n"
    assert "AGENT_ENGINE__SLOTS overrides it" in result.err
    assert (cli.directory / "config.toml").read_text() == "[engine]\nslots = 7\n"
    del below.environment["AGENT_ENGINE__SLOTS"]
    document = below("config", "set", "engine.slots", "6", "--json").json
    assert document["set"] == [{"key": "engine.slots", "old": 7, "new": 6}]
    audit = (cli.directory / "data" / "audit.jsonl").read_text().splitlines()
    assert json.loads(audit[-1])["what"] == "config set"


def test_the_path_of_the_configuration(
    cli: Cli, below: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One line for scripts; without a configuration there is none to print."""
    assert below("config", "path").out == f"{cli.directory / 'config.toml'}\n"
    nowhere = Cli(tmp_path_factory.mktemp("nowhere"), HOME=str(Path("/nonexistent")))
    assert "the defaults hold" in nowhere("config", "path", code=3).err
