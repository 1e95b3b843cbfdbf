"""Databases of every released version, with tasks in flight, are upgraded and finished."""

from collections import Counter
from pathlib import Path

import pytest
from sqlmodel import SQLModel

from agent.store.db.database import Database
from agent.store.schema import (
    migrate,
    tables,  # noqa: F401  (declares them)
)
from tests.support.engine import find_violations
from tests.upgrade import trigger_story
from tests.upgrade.frozen import RELEASED, thaw_postgres, thaw_sqlite
from tests.upgrade.revisions import migrate_to
from tests.upgrade.story import ENDS, LATER, RICH, check_other_tables, finish


def _check(database: Database, revision: str) -> None:
    with database.connect("reader") as reader:
        assert migrate.current(reader) == revision
        before = Counter(row[0] for row in reader.query("SELECT status FROM steps"))
        assert {"running", "waiting", "pending", "succeeded", "failed"} <= before.keys()
    has_triggers = trigger_story.NAME not in LATER.get(revision, set())
    if has_triggers:
        assert trigger_story.fates(database) == trigger_story.FATES
    migrate.upgrade(database)
    migrate.check(database)
    finish(database)
    with database.connect("reader") as reader:
        ends: dict[str, str] = dict(reader.query("SELECT workflow_name, status FROM tasks"))
        expected = {name: ENDS[name] for name in ENDS.keys() - LATER.get(revision, set())}
        # One child more, and the other tasks of triggers.
        count = len(expected) + 1 + (trigger_story.STARTED - 1 if has_triggers else 0)
        assert reader.query("SELECT count(*) FROM tasks") == [(count,)]
    assert ends == expected
    if has_triggers:
        trigger_story.check(database)
    if revision >= RICH:
        check_other_tables(database)
    assert find_violations(database) == []


@pytest.mark.parametrize("revision", RELEASED)
def test_a_sqlite_file_of_an_earlier_version_is_upgraded_and_finished(
    revision: str, tmp_path: Path
) -> None:
    """All tasks in flight go on and end."""
    path = tmp_path / "agent.db"
    thaw_sqlite(revision, path)
    _check(Database(f"sqlite:///{path}"), revision)


@pytest.mark.parametrize("revision", RELEASED)
def test_a_postgresql_database_of_an_earlier_version_is_upgraded_and_finished(
    revision: str, empty_postgres_url: str
) -> None:
    """All tasks in flight go on and end."""
    migrate_to(revision, empty_postgres_url)
    thaw_postgres(revision, empty_postgres_url)
    _check(Database(empty_postgres_url), revision)


@pytest.mark.parametrize("revision", [each for each in RELEASED if each >= RICH])
def test_a_frozen_database_has_rows_in_every_table(
    revision: str, tmp_path: Path, empty_postgres_url: str
) -> None:
    """A table without rows says nothing about a migration."""
    thaw_sqlite(revision, tmp_path / "agent.db")
    migrate_to(revision, empty_postgres_url)
    thaw_postgres(revision, empty_postgres_url)
    sqlite = Database(f"sqlite:///{tmp_path / 'agent.db'}")
    with sqlite.connect("reader") as reader:
        there = {name for (name,) in reader.query("SELECT name FROM sqlite_master")}
    for database in (sqlite, Database(empty_postgres_url)):
        with database.connect("reader") as reader:
            names = there & SQLModel.metadata.tables.keys()
            rows = {name: reader.query(f"SELECT 1 FROM {name} LIMIT 1") for name in names}
        assert [name for name in sorted(rows) if not rows[name]] == []
