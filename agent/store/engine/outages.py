"""Events about a store outside the database; they belong to no task."""

import json
from typing import Any

from agent.store.db.database import Database
from agent.store.engine.writes import insert_events


def record(database: Database, event: str, details: dict[str, Any]) -> None:
    """Append the event of an outage that began or ended."""
    with database.connect("writer") as connection, connection.transaction():
        now = database.clock.now()
        data = json.dumps(details, ensure_ascii=False)
        insert_events(connection, [(None, None, event, None, None, now, data)])
