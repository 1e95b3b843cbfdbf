"""Where the configuration is found, and what is never taken for it."""

import os
import sys
from pathlib import Path

import pytest

from agent.config.discovery import SECTIONS, ConfigError, find
from agent.config.loader import load
from agent.config.settings import Settings

OURS = "[engine]\nslots = 3\n"


def test_the_sections_are_those_of_the_settings() -> None:
    """A new section is added to the list by which a configuration above is recognised."""
    assert Settings.model_fields.keys() - {"base", "file", "trusted_by_environment"} == SECTIONS


def _write(path: Path, text: str = OURS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_nearest_configuration_above_is_used(tmp_path: Path) -> None:
    """From a directory below, the configuration is found as git finds a repository."""
    file = _write(tmp_path / "config.toml")
    below = tmp_path / "workflows" / "deep"
    below.mkdir(parents=True)
    place = find(None, {}, below)
    assert (place.file, place.base, place.how) == (file, tmp_path, "above")
    nearer = _write(tmp_path / "workflows" / "config.toml")
    assert find(None, {}, below).file == nearer
    assert find(None, {}, nearer.parent).how == "here"


def test_relative_paths_start_at_the_file_that_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command below uses the same database as one beside the configuration."""
    _write(tmp_path / "config.toml")
    (tmp_path / "workflows").mkdir()
    monkeypatch.chdir(tmp_path / "workflows")
    assert load(None, {}).database_url == f"sqlite:///{tmp_path / 'data' / 'agent.db'}"


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("", True),
        ("# only a comment\n", True),
        ("engine.slots = 3\n", True),
        ("[models.claude]\nprovider = 'echo'\n", True),
        ("[engine\n", True),
        ('title = "a web site"\n[params]\nengine = 1\n', False),
    ],
)
def test_files_of_other_programs_above_are_passed_over(
    tmp_path: Path, text: str, is_ours: bool
) -> None:
    """`config.toml` is a common name: above, a file counts if it has a section of ours, or nothing."""
    outer = _write(tmp_path / "config.toml")
    inner = _write(tmp_path / "site" / "config.toml", text)
    below = tmp_path / "site" / "posts"
    below.mkdir()
    assert find(None, {}, below).file == (inner if is_ours else outer)


def test_a_database_without_a_configuration_is_found_too(tmp_path: Path) -> None:
    """Below an agent that runs with defaults, no second database is created."""
    _write(tmp_path / "data" / "agent.db", "")
    (tmp_path / "workflows").mkdir()
    place = find(None, {}, tmp_path / "workflows")
    assert (place.base, place.file) == (tmp_path, None)
    assert "has a database" in place.describe()


def test_a_nearer_database_wins_and_the_configuration_above_is_named(tmp_path: Path) -> None:
    """What was used before stays in use; the other choice is reported, not silent."""
    file = _write(tmp_path / "config.toml")
    _write(tmp_path / "workflows" / "data" / "agent.db", "")
    place = find(None, {}, tmp_path / "workflows")
    assert (place.base, place.file) == (tmp_path / "workflows", None)
    assert place.passed_over == file


def test_the_users_own_configuration_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_CONFIG_HOME, then the home directory's; macOS has a place of its own."""
    here = tmp_path / "here"
    here.mkdir()
    environment = {"HOME": str(tmp_path / "home")}
    assert find(None, environment, here).how == "none"
    monkeypatch.setattr(sys, "platform", "linux")
    own = _write(tmp_path / "home" / ".config" / "agent" / "config.toml")
    assert find(None, environment, here).file == own
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find(None, environment, here).how == "none"
    mac = _write(tmp_path / "home" / "Library" / "Application Support" / "agent" / "config.toml")
    assert find(None, environment, here).file == mac
    xdg = _write(tmp_path / "xdg" / "agent" / "config.toml")
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert find(None, environment, here).file == xdg
    project = _write(here / "config.toml")
    assert find(None, environment, here).file == project


def test_a_file_of_another_user_above_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration names commands: one that another user put above must not be run by accident."""
    file = _write(tmp_path / "config.toml")
    below = tmp_path / "below"
    below.mkdir()
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1234)
    if owner == 0:
        # Root's files are trusted: give it to a user who is neither.
        os.chown(file, 4321, -1)
        owner = 4321
    with pytest.raises(ConfigError, match="must be your own"):
        find(None, {}, below)
    trusting = {"AGENT_AGENT__TRUSTED_USERS": str(owner)}
    assert find(None, trusting, below).file == file
    assert find(file, {}, below).how == "--config"
