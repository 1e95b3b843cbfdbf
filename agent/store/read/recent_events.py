"""The newest events first, for people who look: by type and task, page by page."""

from typing import Any, Final

from agent.store.db.database import Connection

Found = dict[str, Any]

MAX_SEARCHED: Final = 20_000
"""How far back a page looks for events of a type."""
_NAMES: Final = (
    "xid",
    "id",
    "task_id",
    "type",
    "step_name",
    "parallel_index",
    "attempt",
    "at",
    "data",
)


def recent_events(
    connection: Connection,
    *,
    limit: int,
    type_prefix: str | None = None,
    task_id: str | None = None,
    before: tuple[int, int] | None = None,
) -> list[Found]:
    """Return events before a cursor (xid, id), the newest first."""
    is_postgres = connection.sql.name == "postgresql"
    order = "xid DESC, id DESC" if is_postgres else "id DESC"
    conditions = ["true"]
    params: dict[str, Any] = {"limit": limit, "searched": MAX_SEARCHED}
    if is_postgres:
        conditions.append("xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    if before is not None:
        conditions.append("(xid, id) < (:xid, :id)" if is_postgres else "id < :id")
        params |= {"id": before[1]} | ({"xid": before[0]} if is_postgres else {})
    if task_id is not None:
        conditions.append("task_id = :task_id")
        params["task_id"] = task_id
    wanted = ""
    if type_prefix is not None:
        wanted = " WHERE e.type LIKE :prefix"
        params["prefix"] = f"{type_prefix}.%"
    ordered = "e.xid DESC, e.id DESC" if is_postgres else "e.id DESC"
    rows = connection.query(
        "SELECT e.xid, e.id, e.task_id, e.type, s.name, s.parallel_index, e.attempt, e.at, e.data"
        f" FROM (SELECT * FROM events WHERE {' AND '.join(conditions)} ORDER BY {order}"
        f" LIMIT :searched) AS e LEFT JOIN steps AS s ON s.id = e.step_id{wanted}"
        f" ORDER BY {ordered} LIMIT :limit",
        **params,
    )
    return [dict(zip(_NAMES, row, strict=True)) for row in rows]
