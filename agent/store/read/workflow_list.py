"""The newest versions of workflows, a page at a time in one statement."""

from typing import Any

from agent.store.db.database import Connection

Found = dict[str, Any]


def latest_page(connection: Connection, *, limit: int, after: str = "") -> list[Found]:
    """Return the workflows that can be started, by name, each in its newest version."""
    names = ("name", "version", "graph", "path", "created_at")
    rows = connection.query(
        "SELECT w.name, w.version, w.graph, w.path, w.created_at FROM workflows AS w"
        " WHERE w.name > :after AND w.removed_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM workflows AS n WHERE n.name = w.name"
        " AND n.version > w.version) ORDER BY w.name LIMIT :limit",
        after=after,
        limit=limit,
    )
    return [dict(zip(names, row, strict=True)) for row in rows]
