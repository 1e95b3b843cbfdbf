"""The event log as a test reads it."""

from typing import Any

from agent.store.db.database import Database
from agent.tasks.read_models import task_documents
from tests.support.engine import eventually


def wait_until_settled(database: Database) -> None:
    """Wait until transactions elsewhere on the server no longer hold the feed back."""
    with database.connect("reader") as connection:
        ((count,),) = connection.query("SELECT count(*) FROM events")
    eventually(lambda: len(read_all(database, 1000)) >= count)


def read_all(database: Database, limit: int, **options: Any) -> list[dict[str, Any]]:
    """Read the log from its beginning, page by page."""
    found: list[dict[str, Any]] = []
    with database.connect("reader") as connection:
        while True:
            after = found[-1]["cursor"] if found else None
            page = task_documents.read_events(connection, after, limit=limit, **options)
            assert len(page) <= limit
            if not page:
                return found
            found += page
