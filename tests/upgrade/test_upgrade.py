"""Databases of every released version, with tasks in flight, are upgraded and finished."""

from collections import Counter
from pathlib import Path

import pytest

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.engine import find_violations
from tests.upgrade import trigger_story
from tests.upgrade.frozen import RELEASED, thaw_postgres, thaw_sqlite
from tests.upgrade.revisions import migrate_to
from tests.upgrade.story import ENDS, LATER, finish


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
