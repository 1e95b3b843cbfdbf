"""The files for containers: parsed and compared with the project. No image is built here."""

import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from agent.config.loader import load

ROOT = Path(__file__).parent.parent


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    words = [line.strip().partition(" ") for line in lines if line.strip()]
    return [(name, rest.strip()) for name, _, rest in words]


def arguments(name: str) -> list[str]:
    """Return the arguments of every instruction of a name."""
    return [rest for each, rest in instructions() if each == name]


def copied() -> list[str]:
    """Return what is copied from the project."""
    found = [shlex.split(rest) for rest in arguments("COPY")]
    return [name for words in found if not words[0].startswith("--from") for name in words[:-1]]


def test_instructions_are_known() -> None:
    """A misspelt instruction would fail the build."""
    known = "FROM RUN COPY WORKDIR ARG ENV USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert {name for name, _ in instructions()} <= set(known.split())


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    """The last pattern of .dockerignore that matches decides."""
    patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and line[0] != "#"
    ]
    assert copied()
    for name in copied():
        assert (ROOT / name).exists(), name
        is_ignored = False
        for pattern in patterns:
            if fnmatch(name, pattern.removeprefix("!")):
                is_ignored = not pattern.startswith("!")
        assert not is_ignored, name
    assert {"agent", "pyproject.toml"} <= set(copied())


def test_it_runs_as_another_user_and_is_checked() -> None:
    """The last user is not root, and the health check asks the port that is exposed."""
    assert arguments("USER")[-1] == "agent"
    assert arguments("EXPOSE") == ["8420"]
    assert "127.0.0.1:8420/healthz" in arguments("HEALTHCHECK")[0]
    assert all("slim" in image for image in arguments("FROM"))


@pytest.fixture
def compose() -> dict[str, Any]:
    """Return the compose file."""
    document: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")
    return document


def test_its_settings_are_settings(compose: dict[str, Any], tmp_path: Path) -> None:
    """Variables of the image and of the compose file mean something to the agent."""
    pairs = dict(re.findall(r"\b(AGENT_\w+)=(\S+)", " ".join(arguments("ENV"))))
    pairs |= compose["services"]["agent"]["environment"]
    pairs["AGENT_DATABASE__URL"] = re.sub(r"\$\{[^}]+\}", "secret", pairs["AGENT_DATABASE__URL"])
    (tmp_path / "config.toml").write_text("")
    settings = load(tmp_path / "config.toml", pairs)
    assert settings.database_url == "postgresql://agent:secret@database/agent"
    assert (settings.server.host, settings.server.allow_remote) == ("0.0.0.0", True)
    stop = compose["services"]["agent"]["stop_grace_period"]
    assert float(stop.removesuffix("s")) > settings.engine.shutdown_seconds + 10


def test_the_services_fit_each_other(compose: dict[str, Any]) -> None:
    """The agent waits for a healthy database, may gain nothing, and is published to this machine."""
    agent, database = compose["services"]["agent"], compose["services"]["database"]
    assert agent["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert database["healthcheck"]["test"]
    assert all(str(port).startswith("127.0.0.1:") for port in agent["ports"])
    assert (agent["read_only"], agent["cap_drop"]) == (True, ["ALL"])
    assert "no-new-privileges:true" in agent["security_opt"]
    named = {
        volume.partition(":")[0]
        for service in (agent, database)
        for volume in service["volumes"]
        if not volume.startswith(".")
    }
    assert named == set(compose["volumes"])
    assert arguments("VOLUME") == ["/agent/data"]
