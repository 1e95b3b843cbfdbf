"""Questions about `state`, for the checker."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from agent.store.db.database import Connection
from agent.store.engine.reads import Rows


class Change(NamedTuple):
    """One version of a value, as a task's event names it."""

    scope: str
    name: str
    version: int
    task_id: str
    step_id: str | None
    call_id: str | None


def is_used(connection: Connection) -> bool:
    """Whether any value was ever written."""
    return bool(connection.query("SELECT 1 FROM state_values LIMIT 1")) or bool(
        connection.query("SELECT 1 FROM state_history LIMIT 1")
    )


def differing(connection: Connection) -> Rows:
    """Return (scope, name, version) of values that are not the newest of their history."""
    return connection.query(
        "SELECT v.scope, v.name, v.version FROM state_values AS v LEFT JOIN state_history AS h"
        " ON h.scope = v.scope AND h.name = v.name AND h.version = v.version"
        " WHERE h.version IS NULL OR coalesce(h.value, '') <> coalesce(v.value, '')"
        " OR (h.value IS NULL) <> (v.value IS NULL) OR h.written_by <> v.written_by"
        " OR h.written_at <> v.written_at OR coalesce(h.step_id, '') <> coalesce(v.step_id, '')"
        " ORDER BY v.scope, v.name"
    )


def histories(connection: Connection) -> Rows:
    """Return (scope, name, first, last, count, the value's version) of each history."""
    return connection.query(
        "SELECT h.scope, h.name, min(h.version), max(h.version), count(*), max(v.version)"
        " FROM state_history AS h LEFT JOIN state_values AS v"
        " ON v.scope = h.scope AND v.name = h.name GROUP BY h.scope, h.name"
        " ORDER BY h.scope, h.name"
    )


def writers(connection: Connection) -> Rows:
    """Return (scope, name, version, task, step, call, whether the task exists) of kept versions."""
    return connection.query(
        "SELECT h.scope, h.name, h.version, h.task_id, h.step_id, h.call_id, t.id IS NOT NULL"
        " FROM state_history AS h LEFT JOIN tasks AS t ON t.id = h.task_id"
    )


def changes(connection: Connection) -> Iterator[Change]:
    """Yield every version that an event of a task names."""
    rows = connection.query(
        "SELECT task_id, step_id, data FROM events WHERE type = 'state.changed' ORDER BY id"
    )
    for task_id, step_id, data in rows:
        document: dict[str, Any] = json.loads(data)
        for change in document["changes"]:
            yield Change(
                change["scope"],
                change["name"],
                change["version"],
                task_id,
                step_id,
                document.get("call"),
            )
