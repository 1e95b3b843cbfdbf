"""The files for containers: parsed and compared with the project. No image is built here."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from agent.config.loader import load
from tests.support.cli import ROOT
from tests.support.dockerfile import arguments, copied, instructions


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
    pairs = {name: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value) for name, value in pairs.items()}
    pairs["AGENT_DATABASE__URL"] = re.sub(r"\$\{[^}]+\}", "secret", pairs["AGENT_DATABASE__URL"])
    (tmp_path / "config.toml").write_text("")
    settings = load(tmp_path / "config.toml", pairs)
    assert settings.database_url == "postgresql://agent:secret@database/agent"
    assert (settings.server.host, settings.server.allow_remote) == ("0.0.0.0", True)
    # ./workflows belongs to a user of the machine, not to the one that the image has.
    assert (settings.agent.trusted_users, settings.agent.trusted_groups) == (["1000"], ["1000"])
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
