"""What commands remember between processes: only what this user alone can have written."""

from pathlib import Path

import pytest

from agent.core.files import user_cache
from agent.core.files.user_cache import UserCache


def entry(directory: Path, follows_from: bytes = b"text") -> UserCache:
    """Return an entry in a cache directory."""
    return UserCache("test", {"XDG_CACHE_HOME": str(directory)}, follows_from)


def test_an_entry_is_read_back_and_belongs_to_its_hash(tmp_path: Path) -> None:
    """Another text has another entry; directory and file are for this user alone."""
    entry(tmp_path).write("result")
    assert entry(tmp_path).read() == "result"
    assert entry(tmp_path, b"changed").read() is None
    directory = tmp_path / "agent"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in directory.iterdir()] == [0o600]


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_can_change_is_not_used(tmp_path: Path, mode: int) -> None:
    """Another user could have put an entry there."""
    entry(tmp_path).write("result")
    (tmp_path / "agent").chmod(mode)
    assert entry(tmp_path).read() is None
    entry(tmp_path, b"other").write("other")
    assert len(list((tmp_path / "agent").iterdir())) == 1


def test_a_file_that_others_can_change_or_a_link_is_not_used(tmp_path: Path) -> None:
    """The same holds for the entry itself."""
    entry(tmp_path).write("result")
    (file,) = (tmp_path / "agent").iterdir()
    file.chmod(0o660)
    assert entry(tmp_path).read() is None
    elsewhere = file.rename(tmp_path / "elsewhere")
    elsewhere.chmod(0o600)
    file.symlink_to(elsewhere)
    assert entry(tmp_path).read() is None


def test_without_a_place_nothing_is_remembered(tmp_path: Path) -> None:
    """A user without a home directory, or with one that cannot be written, does the work again."""
    for environment in ({}, {"HOME": "relative"}, {"HOME": str(tmp_path / "file")}):
        (tmp_path / "file").write_text("")
        memory = UserCache("test", environment, b"text")
        memory.write("result")
        assert memory.read() is None


def test_the_oldest_entries_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory does not grow without end."""
    monkeypatch.setattr(user_cache, "_MOST_ENTRIES", 3)
    for number in range(6):
        entry(tmp_path, str(number).encode()).write("result")
    assert len(list((tmp_path / "agent").iterdir())) == 3
    assert entry(tmp_path, b"5").read() == "result"
