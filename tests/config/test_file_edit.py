"""Changing keys in the file: everything else stays, and nothing invalid is ever written."""

import tomllib
from pathlib import Path

import pytest

from agent.config.default_file import default_text
from agent.config.discovery import ConfigError, Place
from agent.config.file_edit import Edit, set_keys


def _place(tmp_path: Path, text: str) -> Place:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return Place(tmp_path, file, "here")


def test_one_line_of_the_shipped_file_changes(tmp_path: Path) -> None:
    """Comments, order and every other line stay."""
    place = _place(tmp_path, default_text())
    assert set_keys(place, [("engine.slots", "7")]) == [Edit("engine.slots", 50, 7)]
    assert place.file is not None
    assert place.file.read_text() == default_text().replace("slots = 50\n", "slots = 7\n")


def test_new_keys_and_sections_are_added(tmp_path: Path) -> None:
    """Several keys that need each other are set together; comments beside values stay."""
    place = _place(tmp_path, "[log]\nlevel = 'info'  # be brief\n")
    set_keys(
        place,
        [
            ("log.level", "debug"),
            ("http.allow_private", "127.0.0.1, nas"),
            ("mail.work.host", "smtp.example.org"),
            ("mail.work.from", "ann@example.org"),
        ],
    )
    assert place.file is not None
    written = place.file.read_text()
    assert 'level = "debug"  # be brief' in written
    assert tomllib.loads(written) == {
        "log": {"level": "debug"},
        "http": {"allow_private": ["127.0.0.1", "nas"]},
        "mail": {"work": {"host": "smtp.example.org", "from": "ann@example.org"}},
    }


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("engine.slot", "3", "engine.slot: there is no such key; did you mean 'slots'?"),
        ("engin.slots", "3", "did you mean 'engine.slots'?"),
        ("engine", "3", "there is no such"),
        ("engine.slots", "0", "engine.slots: should be greater than or equal to 1"),
        ("engine.slots", "many", "engine.slots: should be a valid integer"),
        ("mail.work.host", "smtp.example.org", "mail.work.from: is required"),
        ("models.claude.key", "sk-secret", "must say where the key is"),
    ],
)
def test_what_would_be_invalid_is_not_written(
    tmp_path: Path, key: str, text: str, problem: str
) -> None:
    """The whole file is checked first; it is replaced in one step or not at all."""
    place = _place(tmp_path, "[engine]\nslots = 5\n")
    with pytest.raises(ConfigError) as caught:
        set_keys(place, [("log.level", "debug"), (key, text)])
    assert problem in str(caught.value)
    assert place.file is not None
    assert place.file.read_text() == "[engine]\nslots = 5\n"
    assert list(tmp_path.iterdir()) == [place.file]


def test_mode_and_link_stay(tmp_path: Path) -> None:
    """A file that others may read stays so, and a link still leads to it."""
    kept = tmp_path / "kept"
    kept.mkdir()
    real = kept / "real.toml"
    real.write_text("")
    real.chmod(0o640)
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    set_keys(Place(tmp_path, link, "here"), [("engine.slots", "7")])
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "slots = 7" in real.read_text()


def test_without_a_file_nothing_can_be_set(tmp_path: Path) -> None:
    """The message names the command that writes one."""
    with pytest.raises(ConfigError, match="agent init"):
        set_keys(Place(tmp_path, None, "none"), [("engine.slots", "7")])
