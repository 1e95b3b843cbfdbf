"""Workflows on record, for people: which there are, and each one's versions."""

from dataclasses import dataclass

from agent.store.db.database import Connection


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a workflow as it is kept."""

    name: str
    number: int
    hash: str
    path: str | None
    created_at: int
    removed_at: int | None
    task_count: int


_VERSIONS = (
    "SELECT w.name, w.version, w.hash, w.path, w.created_at, w.removed_at,"
    " (SELECT count(*) FROM tasks t"
    " WHERE t.workflow_name = w.name AND t.workflow_version = w.version)"
    " FROM workflows w"
)


def latest_versions(connection: Connection) -> list[Version]:
    """Return every workflow's latest version, by name."""
    rows = connection.query(
        f"{_VERSIONS} WHERE w.version = (SELECT max(o.version) FROM workflows o"
        " WHERE o.name = w.name) ORDER BY w.name"
    )
    return [Version(*row) for row in rows]


def versions_of(connection: Connection, name: str) -> list[Version]:
    """Return a workflow's versions, the newest first; none when it is not known."""
    rows = connection.query(f"{_VERSIONS} WHERE w.name = :name ORDER BY w.version DESC", name=name)
    return [Version(*row) for row in rows]


def texts_of(connection: Connection, name: str, number: int) -> tuple[str, str | None] | None:
    """Return (graph, source) of one version, if there is such a one."""
    rows = connection.query(
        "SELECT graph, source FROM workflows WHERE name = :name AND version = :version",
        name=name,
        version=number,
    )
    return (str(rows[0][0]), rows[0][1]) if rows else None
