"""The event log by cursor: pages for one reader of everything, and counts by type."""

import json
from collections.abc import Collection
from functools import cache
from typing import Any

from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.read import views


@cache
def _after(sql: Sql) -> tuple[str, str]:
    """Return the condition and the order of events after one position, up to another."""
    if sql.name == "postgresql":
        return "(xid, id) > (:xid, :id) AND (xid, id) <= (:last_xid, :last_id)", "xid, id"
    return "id > :id AND id <= :last_id", "id"


def _between(connection: Connection, position: LogPosition, last: LogPosition) -> dict[str, Any]:
    params: dict[str, Any] = {"id": position[1], "last_id": last[1]}
    if connection.sql.name == "postgresql":
        params |= {"xid": position[0], "last_xid": last[0]}
    return params


def events_after(
    connection: Connection, position: LogPosition, types: Collection[str] | None, limit: int
) -> tuple[list[tuple[Any, ...]], LogPosition]:
    """Return events after a position as they were written, and the position up to which they are complete.

    `types` None: of every type. Call it within a snapshot: the end of the readable log must not
    move in between.
    """
    last = max(views.latest_event(connection), position)
    if last == position or (types is not None and not types):
        return [], last
    condition, order = _after(connection.sql)
    params = _between(connection, position, last)
    if types is not None:
        condition += f" AND type IN {connection.sql.ids('types')}"
        params["types"] = json.dumps(sorted(types))
    rows = connection.query(
        "SELECT xid, id, task_id, seq, type, step_id, attempt, at, data FROM events"
        f" WHERE {condition} ORDER BY {order} LIMIT :limit",
        limit=limit,
        **params,
    )
    if len(rows) == limit:
        last = (int(rows[-1][0]), int(rows[-1][1]))
    return [tuple(row[2:]) for row in rows], last


def count_after(
    connection: Connection, position: LogPosition, limit: int
) -> tuple[dict[str, int], LogPosition, bool]:
    """Return how many events of each type follow a position, among at most `limit` of them.

    Also return the position up to which they were counted, and whether that is the end of the log.
    Call it within a snapshot.
    """
    last = max(views.latest_event(connection), position)
    if last == position:
        return {}, position, True
    condition, order = _after(connection.sql)
    params = _between(connection, position, last)
    # The next page begins after the last row.
    ends = connection.query(
        f"SELECT xid, id FROM events WHERE {condition} ORDER BY {order} LIMIT 1 OFFSET :offset",
        offset=limit - 1,
        **params,
    )
    if ends:
        last = (int(ends[0][0]), int(ends[0][1]))
    rows = connection.query(
        f"SELECT type, count(*) FROM events WHERE {condition} GROUP BY type",
        **_between(connection, position, last),
    )
    return {str(name): int(count) for name, count in rows}, last, not ends


def changed_tasks(
    connection: Connection, position: LogPosition, limit: int
) -> tuple[set[str] | None, int, LogPosition]:
    """Return the tasks with events after a position, how many events, and the end of the log.

    None stands for too many to list: more than `limit` events. Call it within a snapshot.
    """
    last = max(views.latest_event(connection), position)
    if last == position:
        return set(), 0, position
    condition, order = _after(connection.sql)
    rows = connection.query(
        f"SELECT task_id FROM events WHERE {condition} ORDER BY {order} LIMIT :limit",
        limit=limit + 1,
        **_between(connection, position, last),
    )
    tasks = None if len(rows) > limit else {str(task_id) for (task_id,) in rows}
    return tasks, len(rows), last
