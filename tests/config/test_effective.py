"""The values in force, each with its source, and no secret."""

from pathlib import Path

import pytest

from agent.config.discovery import Place
from agent.config.effective import Value, values
from agent.config.loader import ConfigError, read
from agent.core.logs.logging import HIDDEN

TEXT = """\
# a comment
[engine]
slots = 50
batch = 5

[database]
url = "postgresql://ann:hunter2@db/agent?sslpassword=hunter3"

[mcp.notes]
command = "notes"
args = ["--api-key", "hunter4", "--token=hunter5", "--verbose"]
env = { NOTES_TOKEN = "env:NOTES", NOTES_SECRET = "hunter6", LANG = "C" }

[mcp.web]
url = "https://example.org/mcp"
headers = { Authorization = "Bearer env:WEB", X-Custom = "hunter7" }

[models]
claude = { provider = "anthropic", key = "env:KEY" }
"""


def _values(tmp_path: Path, text: str, *options: str, **environment: str) -> dict[str, Value]:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    configuration = read(Place(tmp_path, file, "here"), environment, options)
    return {value.key: value for value in values(configuration)}


def test_every_value_names_its_source(tmp_path: Path) -> None:
    """The last one that sets a key is its source: default, file, variable, command line."""
    found = _values(
        tmp_path, TEXT, "engine.poll_seconds=2", AGENT_ENGINE__BATCH="7", AGENT_HOME="/x"
    )
    file = tmp_path / "config.toml"
    assert found["engine.slots"] == Value("engine.slots", 50, f"{file}:3", is_default=True)
    assert found["engine.batch"] == Value("engine.batch", 7, "AGENT_ENGINE__BATCH", False)
    assert found["engine.poll_seconds"].source == "command line"
    assert found["engine.poll_seconds"].value == 2.0
    assert found["agent.home"] == Value("agent.home", "/x", "AGENT_HOME", False)
    assert found["llm.model"].source == "default"
    assert found["models.claude.key"].source == f"{file}:19"
    assert found["models.claude.timeout_seconds"].source == "default"


def test_secrets_are_hidden_and_references_are_not(tmp_path: Path) -> None:
    """Passwords in addresses, headers, arguments and variables do not show."""
    found = _values(tmp_path, TEXT)
    assert "hunter" not in repr(found)
    assert found["database.url"].value == (
        f"postgresql://ann:{HIDDEN}@db/agent?sslpassword={HIDDEN}"
    )
    assert found["mcp.notes.args"].value == [
        "--api-key",
        HIDDEN,
        f"--token={HIDDEN}",
        "--verbose",
    ]
    assert found["mcp.notes.env"].value == {
        "NOTES_TOKEN": "env:NOTES",
        "NOTES_SECRET": HIDDEN,
        "LANG": "C",
    }
    assert found["mcp.web.headers"].value["Authorization"] == "Bearer env:WEB"
    assert found["models.claude.key"].value == "env:KEY"


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("engine.slots", "-c engine.slots: write KEY=VALUE"),
        ("engine.slots=many", "-c engine.slots: should be a valid integer, not 'many'"),
        ("engin.slots=1", "-c engin.slots: there is no such key; did you mean 'engine.slots'?"),
        ("engine.slot=1", "-c engine.slot: there is no such key; did you mean 'slots'?"),
        ("models=1", "-c models: there is no such"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, option: str, problem: str) -> None:
    """What the command line sets is checked like the file, and named as it was typed."""
    with pytest.raises(ConfigError) as caught:
        _values(tmp_path, "", option)
    assert caught.value.problems[0].startswith(problem)
