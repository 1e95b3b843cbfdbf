"""New databases, one for each story."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Fresh = Callable[[], str]


@pytest.fixture
def fresh(sqlite_template: Path, tmp_path: Path) -> Fresh:
    """Return a function that makes a new, migrated SQLite database."""
    numbers = itertools.count()

    def make() -> str:
        path = tmp_path / f"{next(numbers)}.db"
        shutil.copyfile(sqlite_template, path)
        return f"sqlite:///{path}"

    return make
