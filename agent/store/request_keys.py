"""Keys of requests that create something: the first request under a key decides what it means."""

import json
from collections.abc import Sequence
from functools import cache

from agent.store.database import Connection, Database
from agent.store.dialect import Sql


def claim(database: Database, asked: Sequence[tuple[str, str]], now: int) -> list[str]:
    """Put requests on record, each by its key and its hash, in one commit.

    Returns for each the hash of the first that came under its key.
    """
    with database.connect("reader") as connection:
        known = _known(connection, asked)
    missing = [each for each in asked if each[0] not in known]
    if missing:
        # In the order of keys, as everybody does: two that insert the same ones cannot deadlock.
        rows = [
            (key, request_hash, now) for key, request_hash in sorted(dict(missing[::-1]).items())
        ]
        with database.connect("writer") as tx, tx.transaction():
            tx.execute(_insert(tx.sql), rows=json.dumps(rows))
            known |= _known(tx, missing)
    return [known[key] for key, _ in asked]


def prune(connection: Connection, before_us: int) -> int:
    """Forget the keys of requests that came before an instant."""
    with connection.transaction():
        return connection.execute(
            "DELETE FROM request_keys WHERE created_at < :before", before=before_us
        )


@cache
def _insert(sql: Sql) -> str:
    rows = sql.rows(key="text", request_hash="text", now="int")
    # `true`: without it SQLite takes ON for a part of the join.
    return (
        "INSERT INTO request_keys (key, request_hash, created_at)"
        f" SELECT r.key, r.request_hash, r.now FROM {rows} WHERE true ON CONFLICT (key) DO NOTHING"
    )


def _known(connection: Connection, asked: Sequence[tuple[str, str]]) -> dict[str, str]:
    found = connection.query(
        f"SELECT key, request_hash FROM request_keys WHERE key IN {connection.sql.ids()}",
        ids=json.dumps([key for key, _ in asked]),
    )
    return {str(key): str(request_hash) for key, request_hash in found}
