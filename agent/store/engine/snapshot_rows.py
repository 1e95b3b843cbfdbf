"""The SQL of context snapshots: rows are appended to a task and never change."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import cache
from typing import Final

from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Rows

TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "task_id": "text",
    "step_id": "text",
    "parent": "text",
    "label": "text",
    "value": "text",
    "written_by": "text",
    "created_at": "int",
    "client_token": "text",
}


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One row, as it is stored: its value is JSON text."""

    id: str
    task_id: str
    step_id: str | None
    parent: str | None
    label: str | None
    value: str
    written_by: str
    created_at: int
    client_token: str | None = None


_COLUMNS: Final = ", ".join(TYPES)


@cache
def _insert(sql: Sql) -> str:
    return f"INSERT INTO context_snapshots ({_COLUMNS}) SELECT {_COLUMNS} FROM {sql.rows(**TYPES)}"


def insert(tx: Connection, rows: Iterable[SnapshotRow]) -> None:
    """Append rows."""
    tx.defer(_insert(tx.sql), rows=set_of([astuple(row) for row in rows]))


def count(connection: Connection, task_id: str) -> int:
    """Return how many snapshots a task has."""
    rows = connection.query(
        "SELECT count(*) FROM context_snapshots WHERE task_id = :id", id=task_id
    )
    return int(rows[0][0])


def newest(connection: Connection, task_ids: Iterable[str]) -> dict[str, str]:
    """Return the id of the newest snapshot of each task that has any."""
    rows = connection.query(
        "SELECT task_id, max(id) FROM context_snapshots"
        f" WHERE task_id IN {connection.sql.ids()} GROUP BY task_id",
        ids=set_of(sorted(set(task_ids))),
    )
    return dict(rows)


def latest(connection: Connection, task_id: str, label: str | None = None) -> SnapshotRow | None:
    """Return the newest snapshot of a task, of those with a label where one is given."""
    condition = "" if label is None else " AND label = :label"
    parameters = {} if label is None else {"label": label}
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM context_snapshots WHERE task_id = :id{condition}"
        " ORDER BY id DESC LIMIT 1",
        id=task_id,
        **parameters,
    )
    return SnapshotRow(*rows[0]) if rows else None


def find(connection: Connection, task_id: str, snapshot_id: str) -> SnapshotRow | None:
    """Return one snapshot of a task."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM context_snapshots WHERE task_id = :id AND id = :snapshot",
        id=task_id,
        snapshot=snapshot_id,
    )
    return SnapshotRow(*rows[0]) if rows else None


def by_client_token(connection: Connection, task_id: str, client_token: str) -> SnapshotRow | None:
    """Return the snapshot of a task that a call with this token appended."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM context_snapshots"
        " WHERE task_id = :id AND client_token = :token LIMIT 1",
        id=task_id,
        token=client_token,
    )
    return SnapshotRow(*rows[0]) if rows else None


def page(connection: Connection, task_id: str, after: str, most: int) -> Rows:
    """Return snapshots of a task behind a cursor, the oldest first."""
    return connection.query(
        f"SELECT {_COLUMNS} FROM context_snapshots WHERE task_id = :id AND id > :after"
        " ORDER BY id LIMIT :most",
        id=task_id,
        after=after,
        most=most,
    )
