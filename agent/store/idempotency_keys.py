"""Keys of requests that create something: the first request under a key binds the key."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from agent.store.db.database import Connection, Database
from agent.store.db.dialect import Sql

_PAGE: Final = 5_000
"""Keys that one transaction forgets."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request under a key."""

    key: str
    request_hash: str
    earlier_key: str | None = None
    """The same key as an earlier version wrote it."""
    is_earlier_sure: bool = True
    """Whether no other token's key could have been written in the same way."""

    def known_as(self, known: Mapping[str, str]) -> str:
        """Return the key under which the request is recorded."""
        first = None if self.earlier_key is None else known.get(self.earlier_key)
        if first is None or not (self.is_earlier_sure or first == self.request_hash):
            return self.key
        assert self.earlier_key is not None
        return self.earlier_key


def claim(database: Database, requests: Sequence[KeyedRequest], now: int) -> list[tuple[str, str]]:
    """Record requests, each by its key and its hash, in one commit.

    Returns for each the key under which it is recorded, and the hash of the first request under it.
    """
    keys = {request.key for request in requests}
    with database.connect("reader") as connection:
        known = _known(connection, keys | {request.earlier_key for request in requests} - {None})
    recorded_keys = [request.known_as(known) for request in requests]
    missing = [
        (key, request.request_hash)
        for key, request in zip(recorded_keys, requests, strict=True)
        if key not in known
    ]
    if missing:
        # In the order of keys, as everywhere: two transactions that insert the same keys cannot deadlock.
        rows = [
            (key, request_hash, now) for key, request_hash in sorted(dict(missing[::-1]).items())
        ]
        with database.connect("writer") as tx, tx.transaction():
            tx.execute(_insert(tx.sql), rows=json.dumps(rows))
            known |= _known(tx, {key for key, _ in missing})
    return [(key, known[key]) for key in recorded_keys]


def prune_in_steps(connection: Connection, before_us: int) -> Iterator[int]:
    """Forget the keys of requests that came before an instant; yield how many after each commit."""
    removed = _PAGE
    while removed == _PAGE:
        with connection.transaction():
            removed = connection.execute(
                "DELETE FROM request_keys WHERE key IN"
                " (SELECT key FROM request_keys WHERE created_at < :before LIMIT :most)",
                before=before_us,
                most=_PAGE,
            )
        yield removed


def count_removable(connection: Connection, before_us: int) -> int:
    """Return how many keys `prune_in_steps` would forget."""
    ((count,),) = connection.query(
        "SELECT count(*) FROM request_keys WHERE created_at < :before", before=before_us
    )
    return int(count)


@cache
def _insert(sql: Sql) -> str:
    rows = sql.rows(key="text", request_hash="text", now="int")
    # WHERE true: without it SQLite reads ON as a join's condition.
    return (
        "INSERT INTO request_keys (key, request_hash, created_at)"
        f" SELECT r.key, r.request_hash, r.now FROM {rows} WHERE true ON CONFLICT (key) DO NOTHING"
    )


def _known(connection: Connection, keys: Collection[str | None]) -> dict[str, str]:
    rows = connection.query(
        f"SELECT key, request_hash FROM request_keys WHERE key IN {connection.sql.ids()}",
        ids=json.dumps(list(keys)),
    )
    return {str(key): str(request_hash) for key, request_hash in rows}
