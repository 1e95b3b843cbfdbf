"""`agent init`: a new agent here, elsewhere, or the user's own; and what it gives editors."""

import json
from pathlib import Path

import pytest

from agent.cli import example_files
from agent.workflows.loader import load
from tests.support.cli import Cli

MODELINE = "# yaml-language-server: $schema=../workflow.schema.json"


def test_workflow_files_lead_editors_to_the_schema(cli: Cli) -> None:
    """The first line names the schema, which `agent schema --install` renews."""
    cli("init")
    schema = cli.directory / "workflow.schema.json"
    assert (cli.directory / "workflows" / "hello.yaml").read_text().startswith(MODELINE + "\n")
    assert json.loads(schema.read_text()) == cli("schema").json
    schema.unlink()
    below = Cli(cli.directory / "workflows", **cli.environment)
    assert MODELINE in below("schema", "--install").out
    assert schema.exists()


def test_an_example_comes_with_what_it_needs(cli: Cli) -> None:
    """Its functions and its child workflows; it runs at once."""
    assert "did you mean 'morning'?" in cli("init", "--example", "mornin", code=2).err
    assert not (cli.directory / "config.toml").exists()
    cli("init", "--example", "morning")
    names = {path.name for path in (cli.directory / "workflows").iterdir()}
    assert {"morning.yaml", "hello.yaml", "hello_steps.py", "disk-report.yaml"} <= names
    cli("validate")


def test_files_are_named_in_full_and_the_next_command_can_be_pasted(cli: Cli) -> None:
    """Also where the directory was given relative to the current one, or has a space in its name."""
    shown = cli("init", "my agent").out
    created = [line.removeprefix("created ") for line in shown.splitlines() if "created" in line]
    assert created[0] == str(cli.directory / "my agent" / "config.toml")
    assert all(Path(path).is_absolute() for path in created)
    assert "try: cd 'my agent' && agent run hello" in shown


def test_every_example_is_complete() -> None:
    """Each names files that exist, and its description is a line for the list."""
    for name, path in example_files.names().items():
        assert example_files.description(path), name
        for file in example_files.files_of(path):
            if file.suffix == ".yaml":
                load(file)


def test_your_own_agent_is_used_where_there_is_no_other(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`--user` creates it in your config directory; it and a directory exclude each other."""
    home = tmp_path_factory.mktemp("home")
    cli.environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "conf")}
    cli("init", "--user")
    own = home / "conf" / "agent" / "config.toml"
    assert cli("config", "path").out == f"{own}\n"
    assert "hello" in cli("run", "hello").out
    assert (own.parent / "data" / "agent.db").exists()
    assert "exclude each other" in cli("init", "--user", "elsewhere", code=2).err
    cli("init")
    assert cli("config", "path").out == f"{cli.directory / 'config.toml'}\n"


def test_an_agent_inside_of_another_is_noted(cli: Cli) -> None:
    """It is found first from now on, which may surprise."""
    cli("init")
    noted = cli("init", str(Path("inner", "deep"))).err
    assert f"{cli.directory / 'config.toml'} is an agent too" in noted
