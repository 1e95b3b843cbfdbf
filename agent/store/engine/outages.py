"""Events that belong to no task: outages of a store outside the database, disk space, backups."""

import json
from collections.abc import Sequence
from typing import Any, Final

from agent.store.db.database import Database
from agent.store.engine.writes import insert_events

_LATEST_EVENTS: Final = 20_000
"""No index finds these events: only the latest ones are searched."""


def record(database: Database, event: str, details: dict[str, Any]) -> None:
    """Append the event of an outage that began or ended."""
    with database.connect("writer") as connection, connection.transaction():
        now = database.clock.now()
        data = json.dumps(details, ensure_ascii=False)
        insert_events(connection, [(None, None, event, None, None, now, data)])


def latest(database: Database, types: Sequence[str]) -> list[dict[str, Any]]:
    """Return the data of the latest events of some types, the oldest first."""
    with database.connect("reader") as connection:
        rows = connection.query(
            "SELECT data FROM (SELECT id, type, data FROM events ORDER BY id DESC LIMIT :most)"
            f" AS latest WHERE type IN {connection.sql.ids()} ORDER BY id",
            most=_LATEST_EVENTS,
            ids=json.dumps(list(types)),
        )
    return [json.loads(text) for (text,) in rows]


def open_outages(database: Database) -> dict[str, str]:
    """Return the ids of outages that began lately and have no end, by their store."""
    with database.connect("reader") as connection:
        rows = connection.query(
            "SELECT type, data FROM (SELECT id, type, data FROM events ORDER BY id DESC LIMIT :most)"
            " AS latest WHERE type IN ('artifacts.unreachable', 'artifacts.reachable') ORDER BY id",
            most=_LATEST_EVENTS,
        )
    outages: dict[str, str] = {}
    for event, text in rows:
        data = json.loads(text)
        if event == "artifacts.unreachable":
            outages[data["store"]] = data["outage"]
        else:
            outages.pop(data["store"], None)
    return outages
