"""Workflows and their versions: a changed definition is a new version, and none is ever rewritten."""

from typing import Final, NamedTuple

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.store.db.database import Connection


@dataclass(frozen=True, slots=True)
class Version:
    """One recorded version of a workflow."""

    name: str
    number: int
    hash: str
    path: str | None
    created_at: int
    removed_at: int | None


_VERSIONS: Final = (
    "SELECT w.name, w.version, w.hash, w.path, w.created_at, w.removed_at FROM workflows w"
)


def register(
    tx: Connection,
    name: str,
    graph_hash: str,
    graph: str,
    source: str | None,
    path: str | None,
    now: int,
    code: str | None = None,
) -> int:
    """Return the version of a definition; insert a new one unless it equals the latest.

    `code` has the hashes of its steps' code. Other code makes a new version, too; None is not compared.
    """
    while True:
        latest = tx.query(
            "SELECT version, hash, removed_at, path, code FROM workflows WHERE name = :name"
            " ORDER BY version DESC LIMIT 1",
            name=name,
        )
        version = 1
        if latest:
            version, known_hash, removed_at, known_path, known_code = latest[0]
            is_same_code = code is None or known_code is None or code == known_code
            if known_hash == graph_hash and known_path == path and is_same_code:
                if removed_at is not None or (code is not None and known_code is None):
                    tx.execute(
                        "UPDATE workflows SET removed_at = NULL, code = coalesce(code, :code)"
                        " WHERE name = :name AND version = :version",
                        name=name,
                        version=version,
                        code=code,
                    )
                return int(version)
            version += 1
        inserted = tx.execute(
            "INSERT INTO workflows (name, version, hash, source, graph, path, created_at, code)"
            " VALUES (:name, :version, :hash, :source, :graph, :path, :now, :code)"
            " ON CONFLICT (name, version) DO NOTHING",
            name=name,
            version=version,
            hash=graph_hash,
            source=source,
            graph=graph,
            path=path,
            now=now,
            code=code,
        )
        # Another process may have taken the number in the meantime: read again.
        if inserted == 1:
            return int(version)


def code_of(tx: Connection, name: str, version: int) -> str | None:
    """Return the hashes of a version's code; None where they were not known."""
    rows = tx.query(
        "SELECT code FROM workflows WHERE name = :name AND version = :version",
        name=name,
        version=version,
    )
    return rows[0][0] if rows else None


def latest_number(tx: Connection, name: str) -> int | None:
    """Return the newest version of a workflow that has not been removed."""
    rows = tx.query(
        "SELECT version, removed_at FROM workflows WHERE name = :name"
        " ORDER BY version DESC LIMIT 1",
        name=name,
    )
    return int(rows[0][0]) if rows and rows[0][1] is None else None


def assume(tx: Connection, name: str, version: int) -> None:
    """Let the transaction fail as stale unless this version is the latest and not removed."""
    tx.defer(
        "SELECT 1 / (count(*) = 1)::int FROM workflows AS w WHERE w.name = :name"
        " AND w.version = :version AND w.removed_at IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM workflows AS n WHERE n.name = w.name AND n.version > w.version)",
        name=name,
        version=version,
    )


def graph_text(tx: Connection, name: str, version: int) -> tuple[str, str, str | None]:
    """Return (graph, its hash, path of its file) of one version."""
    rows = tx.query(
        "SELECT graph, hash, path FROM workflows WHERE name = :name AND version = :version",
        name=name,
        version=version,
    )
    graph, graph_hash, path = rows[0]
    return str(graph), str(graph_hash), path


def latest(tx: Connection, name: str) -> tuple[int, str, str | None, str | None] | None:
    """Return (version, graph, source, path) of a workflow that has not been removed."""
    rows = tx.query(
        "SELECT version, graph, source, path, removed_at FROM workflows WHERE name = :name"
        " ORDER BY version DESC LIMIT 1",
        name=name,
    )
    if not rows or rows[0][4] is not None:
        return None
    version, graph, source, path, _ = rows[0]
    return int(version), str(graph), source, path


class RecordedVersion(NamedTuple):
    """The newest version of a workflow, with its source."""

    graph: str
    hash: str
    source: str | None
    path: str | None
    number: int
    created_at: int


def newest_at(connection: Connection, name: str) -> RecordedVersion | None:
    """Return the newest version of a workflow, unless it has been removed."""
    rows = connection.query(
        "SELECT removed_at, graph, hash, source, path, version, created_at FROM workflows"
        " WHERE name = :name ORDER BY version DESC LIMIT 1",
        name=name,
    )
    return None if not rows or rows[0][0] is not None else RecordedVersion(*rows[0][1:])


def name_at(connection: Connection, path: str) -> str | None:
    """Return the workflow that a file defined last."""
    rows = connection.query(
        "SELECT name FROM workflows WHERE path = :path ORDER BY created_at DESC LIMIT 1", path=path
    )
    return str(rows[0][0]) if rows else None


def remove(tx: Connection, name: str, now: int) -> bool:
    """Mark a workflow as removed; its versions stay, for the tasks that they started."""
    changed = tx.execute(
        "UPDATE workflows SET removed_at = :now WHERE name = :name AND removed_at IS NULL",
        name=name,
        now=now,
    )
    return changed > 0


def latest_versions(connection: Connection) -> list[Version]:
    """Return every workflow's latest version, by name."""
    rows = connection.query(
        f"{_VERSIONS} WHERE w.version = (SELECT max(o.version) FROM workflows o"
        " WHERE o.name = w.name) ORDER BY w.name"
    )
    return [Version(*row) for row in rows]


def versions_of(connection: Connection, name: str) -> list[Version]:
    """Return a workflow's versions, the newest first; none for an unknown name."""
    rows = connection.query(f"{_VERSIONS} WHERE w.name = :name ORDER BY w.version DESC", name=name)
    return [Version(*row) for row in rows]


def task_count(connection: Connection, version: Version) -> int:
    """Return how many tasks of a version there are; it reads an entry of an index for each."""
    ((count,),) = connection.query(
        "SELECT count(*) FROM tasks WHERE workflow_name = :name AND workflow_version = :version",
        name=version.name,
        version=version.number,
    )
    return int(count)


def texts_of(connection: Connection, name: str, number: int) -> tuple[str, str | None] | None:
    """Return (graph, source) of one version; None if it does not exist."""
    rows = connection.query(
        "SELECT graph, source FROM workflows WHERE name = :name AND version = :version",
        name=name,
        version=number,
    )
    return (str(rows[0][0]), rows[0][1]) if rows else None
