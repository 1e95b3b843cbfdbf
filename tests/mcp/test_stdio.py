"""`agent mcp` finds the agent that it serves, and creates none."""

from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.mcp_client import McpClient, over_stdio


def test_a_directory_without_an_agent_gets_none(tmp_path: Path) -> None:
    """A client may start the program anywhere: it says what to do, and leaves no database behind."""
    cli = Cli(tmp_path)
    refused = cli("mcp", code=5)
    assert not refused.out
    for remedy in ("--config FILE mcp", "agent init`", "agent init --user"):
        assert remedy in refused.err
    assert not (cli.directory / "data").exists()


@pytest.mark.parametrize("way", ["here", "above", "--config", "user", "named database"])
def test_an_agent_without_a_database_gets_it(tmp_path: Path, way: str) -> None:
    """Where a configuration or a database is named or found, the program serves its tools."""
    cli = Cli(tmp_path)
    elsewhere, env = tmp_path / "elsewhere", dict(cli.environment)
    options: list[str] = []
    elsewhere.mkdir()
    if way in ("here", "above"):
        cli.write("config.toml", "[server]\nenabled = false\n")
        elsewhere = cli.directory if way == "here" else cli.directory / "below"
        elsewhere.mkdir(exist_ok=True)
    elif way == "--config":
        options = ["--config", str(cli.write("named.toml", "[server]\nenabled = false\n"))]
    elif way == "user":
        (tmp_path / "own" / "agent").mkdir(parents=True)
        (tmp_path / "own" / "agent" / "config.toml").write_text("[server]\nenabled = false\n")
        env["XDG_CONFIG_HOME"] = str(tmp_path / "own")
    else:
        options = ["-c", f"database.url=sqlite:///{tmp_path}/named.db"]
    with McpClient(over_stdio(elsewhere, *options, "mcp", env=env)) as client:
        assert client.call("list_tasks")["tasks"] == []
