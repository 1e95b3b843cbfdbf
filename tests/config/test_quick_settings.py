"""Settings without pydantic: the same values, and never those of a file that was not checked."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.config import discovery, loader
from agent.config.quick_settings import DEFAULTS, QuickSettings, settings_at
from agent.config.settings import Settings, sections

FILE = """
[agent]
home = "elsewhere"
trusted_users = ["alice"]
[database]
url = "sqlite:///other.db"
[engine]
lease_seconds = 30
slots = 7
[workflows]
directory = "flows"
"""

NOT_PLAIN = '[agent]\ntrusted_users = ["zoë"]\n'
"""Pydantic alone knows the meaning of its patterns outside of ASCII."""


def read(directory: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of a directory as a command does."""
    file = directory / "config.toml"
    found = file if file.exists() else None
    environment = {"XDG_CACHE_HOME": str(directory / "cache"), **(environment or {})}
    return settings_at(
        directory,
        found,
        environment,
        "1.0",
        lambda: loader.load(file if found else None, environment),
    )


def test_the_defaults_are_those_of_the_models() -> None:
    """What is taken as it stands has the models' defaults where the file has no value."""
    models = sections()
    for section, values in DEFAULTS.items():
        fields = models[section].model_fields
        assert values == {key: fields[key].get_default(call_default_factory=True) for key in values}


def test_the_sections_that_make_a_file_ours_are_those_of_the_models() -> None:
    """The search for a configuration knows every section without loading the models."""
    of_places = {"base", "file", "trusted_by_environment"}
    assert set(discovery.SECTIONS) == set(Settings.model_fields) - of_places


def test_a_checked_file_is_read_quickly_and_gives_the_same(tmp_path: Path) -> None:
    """The first command checks the file; the next ones take the same values from it."""
    (tmp_path / "config.toml").write_text(FILE.replace("alice", "zoë"))
    (tmp_path / "elsewhere").mkdir()
    whole, quick = read(tmp_path), read(tmp_path)
    assert isinstance(whole, Settings)
    assert isinstance(quick, QuickSettings)
    assert quick.agent.trusted_users == ["zoë"]
    _has_the_same(quick, whole)


def test_a_plain_file_is_read_quickly_at_once(tmp_path: Path) -> None:
    """What is plainly right needs no pydantic, not even the first time."""
    file = tmp_path / "config.toml"
    file.write_text(FILE)
    (tmp_path / "elsewhere").mkdir()
    quick = read(tmp_path)
    assert isinstance(quick, QuickSettings)
    assert quick.agent.trusted_users == ["alice"]
    _has_the_same(quick, loader.load(file, {}))
    assert isinstance(read(tmp_path), QuickSettings)


def _has_the_same(quick: QuickSettings, whole: Settings) -> None:
    for name in ("home", "database_url", "artifacts_url", "workflow_directory", "environment_file"):
        assert getattr(quick, name) == getattr(whole, name), name
    assert quick.engine.lease_seconds == 30
    assert "whole" not in vars(quick)
    # All that the few values do not cover.
    assert quick.engine.slots == 7
    assert quick.server == whole.server
    assert "whole" in vars(quick)


def test_a_changed_file_is_checked_again(tmp_path: Path) -> None:
    """A mistake is reported by the next command, whatever was right before."""
    (tmp_path / "data").mkdir()
    file = tmp_path / "config.toml"
    file.write_text("[engine]\nslots = 7\n")
    read(tmp_path)
    assert isinstance(read(tmp_path), QuickSettings)
    file.write_text("[engine]\nslotz = 7\n")
    for _ in range(2):
        with pytest.raises(loader.ConfigError, match="slotz"):
            read(tmp_path)


def test_another_version_of_the_program_checks_for_itself(tmp_path: Path) -> None:
    """What one version accepted another may refuse."""
    (tmp_path / "data").mkdir()
    file = tmp_path / "config.toml"
    file.write_text(NOT_PLAIN)
    read(tmp_path)
    whole = settings_at(tmp_path, file, {}, "2.0", lambda: loader.load(file, {}))
    assert isinstance(whole, Settings)


@pytest.mark.parametrize(
    "text", ["[agent\n", "agent = 3\n", "[agent]\nhome = 3\n", 'base = "/x"\n', "a = " + "[" * 9999]
)
def test_what_cannot_be_read_quickly_is_reported(tmp_path: Path, text: str) -> None:
    """No form of a broken file makes the quick way fail by itself."""
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(loader.ConfigError):
        read(tmp_path)


def test_the_environment_overrides(tmp_path: Path) -> None:
    """The home and the database of the environment are taken; any other variable needs a check."""
    quick = read(tmp_path, {"AGENT_HOME": str(tmp_path / "h")})
    assert isinstance(quick, QuickSettings)
    assert quick.home == tmp_path / "h"
    remote = {"AGENT_DATABASE__URL": "postgresql://user@host/name"}
    assert read(tmp_path, remote).database_url == "postgresql://user@host/name"
    assert isinstance(read(tmp_path, {"AGENT_ENGINE__SLOTS": "3"}), Settings)
    with pytest.raises(loader.ConfigError, match="AGENT_DATABASE__URL"):
        read(tmp_path, {"AGENT_DATABASE__URL": "mysql://host"})
