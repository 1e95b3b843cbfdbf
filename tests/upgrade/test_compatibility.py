"""A worker of an earlier version can write the same after an upgrade as before it.

The catalogue of each earlier revision is compared with the present one: an upgrade runs all pending
migrations in one transaction, so those are the two states that a live worker meets.
"""

import psycopg
import pytest

from agent.store.schema import migrate
from tests.upgrade.revisions import all_revisions, migrate_to

_COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable = 'YES',
           column_default IS NOT NULL OR is_identity = 'YES'
    FROM information_schema.columns WHERE table_schema = 'public'"""
# A constraint's definition, and a unique index's: what can refuse a row.
_CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f', 'p', 'u', 'x')
    UNION ALL SELECT tablename, indexname, indexdef FROM pg_indexes
    WHERE schemaname = 'public' AND indexdef LIKE 'CREATE UNIQUE%'"""

Columns = dict[tuple[str, str], tuple[str, bool, bool]]
Constraints = set[tuple[str, str, str]]


def _catalogue(url: str) -> tuple[Columns, Constraints]:
    with psycopg.connect(url) as connection:
        columns = {
            (table, column): (kind, is_nullable, has_default)
            for table, column, kind, is_nullable, has_default in connection.execute(_COLUMNS)
        }
        return columns, {(row[0], row[1], row[2]) for row in connection.execute(_CONSTRAINTS)}


def _obstacles(
    before: tuple[Columns, Constraints], after: tuple[Columns, Constraints]
) -> list[str]:
    """Return what an older worker's statements would fail on."""
    tables = {table for table, _ in before[0]}
    found = []
    for column, (kind, is_nullable, _) in before[0].items():
        name = ".".join(column)
        if column not in after[0]:
            found.append(f"{name} is gone")
        elif after[0][column][0] != kind:
            found.append(f"{name} has another type")
        elif is_nullable and not after[0][column][1]:
            found.append(f"{name} is no longer nullable")
    for column, (_, is_nullable, has_default) in after[0].items():
        if column[0] in tables and column not in before[0] and not (is_nullable or has_default):
            found.append(f"{'.'.join(column)} is new, not nullable, and has no default")
    found += [
        f"{table} has the new constraint {name}: {definition}"
        for table, name, definition in sorted(after[1] - before[1])
        if table in tables
    ]
    return found


@pytest.mark.parametrize("revision", all_revisions()[:-1])
def test_an_upgrade_leaves_older_statements_valid(
    revision: str, postgres_url: str, empty_postgres_url: str
) -> None:
    """Nothing is dropped or tightened; a revision that must do so is listed as breaking."""
    if migrate.is_breaking(revision):
        pytest.skip("older workers are fenced before this upgrade")
    migrate_to(revision, empty_postgres_url)
    assert _obstacles(_catalogue(empty_postgres_url), _catalogue(postgres_url)) == []


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ("ALTER TABLE tasks DROP COLUMN trigger", "tasks.trigger is gone"),
        ("ALTER TABLE tasks RENAME COLUMN phase TO stage", "tasks.phase is gone"),
        ("ALTER TABLE tasks ALTER COLUMN phase TYPE varchar", "tasks.phase has another type"),
        ("ALTER TABLE tasks ALTER output SET NOT NULL", "tasks.output is no longer nullable"),
        ("ALTER TABLE tasks ADD x bigint NOT NULL", "tasks.x is new, not nullable"),
        ("ALTER TABLE tasks ADD CHECK (depth < 9)", "tasks has the new constraint"),
        ("CREATE UNIQUE INDEX one ON signals (name)", "signals has the new constraint one"),
    ],
)
def test_every_kind_of_obstacle_is_found(change: str, obstacle: str, postgres_url: str) -> None:
    """The comparison detects a breaking change of each kind."""
    before = _catalogue(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(change.encode())
    found = _obstacles(before, _catalogue(postgres_url))
    assert any(each.startswith(obstacle) for each in found), found


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE tasks ADD x bigint",
        "ALTER TABLE tasks ADD x bigint NOT NULL DEFAULT 0",
        "CREATE TABLE notes (id text PRIMARY KEY)",
        "CREATE INDEX others ON signals (name)",
    ],
)
def test_compatible_additions_are_no_obstacle(change: str, postgres_url: str) -> None:
    """Nullable columns, defaults, tables and plain indexes disturb no older worker."""
    before = _catalogue(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(change.encode())
    assert _obstacles(before, _catalogue(postgres_url)) == []
