"""Files of databases that this process has open."""

from pathlib import Path
from typing import Any

import pytest

from agent.core.files import database_file
from agent.core.files.database_file import Identity, OpenFile


class CollectingFiles(dict[Identity, OpenFile]):
    """Gives the file back while it is looked up, as a garbage-collected connection does."""

    abandoned: OpenFile | None = None

    def get(self, identity: Identity, default: Any = None) -> Any:
        file = super().get(identity, default)
        self._collect()
        return file

    def setdefault(self, identity: Identity, default: OpenFile) -> OpenFile:
        file = super().setdefault(identity, default)
        self._collect()
        return file

    def _collect(self) -> None:
        file, self.abandoned = self.abandoned, None
        if file is not None:
            database_file.give_back(file)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> CollectingFiles:
    """The files that are open, in a registry that collects garbage at the worst moment."""
    files = CollectingFiles()
    monkeypatch.setattr(database_file, "_files", files)
    return files


def test_a_file_that_is_collected_while_it_is_opened_is_open(
    files: CollectingFiles, tmp_path: Path
) -> None:
    """Its last user may be a connection whose `__del__` runs in the middle of `open_file`."""
    path = tmp_path / "x.db"
    path.touch()
    files.abandoned = database_file.open_file(path)
    file = database_file.open_file(path)
    assert (file.users, len(file.descriptors)) == (1, 1)
    assert database_file.open_file(path) is file
    database_file.give_back(file)
    database_file.give_back(file)
    assert not files
    assert not file.descriptors


def test_a_file_that_is_collected_while_it_is_registered_is_open_once(
    files: CollectingFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the path has come to stand for the file only since it was looked up."""
    path, other = tmp_path / "x.db", tmp_path / "other.db"
    path.touch()
    other.touch()
    first = database_file.open_file(path)
    # What is looked up is another file; what is opened is this one.
    looked_up = iter([database_file.identity_of(other)])
    real = database_file.identity_of
    monkeypatch.setattr(
        database_file, "identity_of", lambda path: next(looked_up, None) or real(path)
    )
    get = CollectingFiles.get
    monkeypatch.setattr(CollectingFiles, "get", dict.get)
    files.abandoned = first
    file = database_file.open_file(path)
    monkeypatch.setattr(CollectingFiles, "get", get)
    assert (file.users, len(file.descriptors), list(files.values())) == (1, 1, [file])
    database_file.give_back(file)
