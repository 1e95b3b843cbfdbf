"""Memories: texts that agents and people remember in a scope, found by their words.

Both databases index the words of `agent.core.search_terms`, and neither ranks: the order is that of the
weights that the caller gives to the words of a query, then of age. So both find the same.
"""

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from agent.core.search_terms import MatchWord
from agent.store.db.database import Connection
from agent.store.db.dialect import Sql

_PAGE: Final = 500
_LOCK_SPACE: Final = 0x6D656D  # "mem": the first half of the advisory locks of scopes
_COLUMNS: Final = (
    "id, scope, text, task_id, step, call_key, written_by, created_at, forgotten_at, forget_key"
)
_FOUND: Final = ", ".join(f"m.{name}" for name in _COLUMNS.split(", "))


class MemoryRow(NamedTuple):
    """One memory."""

    id: int
    scope: str
    text: str
    task_id: str | None
    step: str | None
    call_key: str | None
    written_by: str
    created_at: int
    forgotten_at: int | None
    forget_key: str | None


class NewMemory(NamedTuple):
    """A memory to write."""

    scope: str
    text: str
    terms: str
    task_id: str | None
    step: str | None
    call_key: str | None
    written_by: str
    created_at: int


def lock_scope(tx: Connection, scope: str) -> None:
    """Exclude other writers of a scope until the transaction ends; SQLite has one writer."""
    if tx.sql.name == "postgresql":
        number = zlib.crc32(scope.encode()) - 2**31
        tx.query(
            "SELECT pg_advisory_xact_lock(CAST(:space AS integer), CAST(:number AS integer))",
            space=_LOCK_SPACE,
            number=number,
        )


def insert(tx: Connection, new: NewMemory) -> int | None:
    """Write a memory and return its id; None if its call has written one already."""
    rows = tx.query(
        "INSERT INTO memories (scope, text, terms, task_id, step, call_key, written_by, created_at)"
        " VALUES (:scope, :text, :terms, :task_id, :step, :call_key, :written_by, :created_at)"
        " ON CONFLICT (call_key) WHERE call_key IS NOT NULL DO NOTHING RETURNING id",
        **new._asdict(),
    )
    return int(rows[0][0]) if rows else None


def by_call(connection: Connection, call_key: str) -> MemoryRow | None:
    """Return the memory that a call has written, also if it was forgotten since."""
    rows = connection.query(f"SELECT {_COLUMNS} FROM memories WHERE call_key = :key", key=call_key)
    return MemoryRow(*rows[0]) if rows else None


def find(connection: Connection, memory_id: int) -> MemoryRow | None:
    """Return a memory by its id, also if it was forgotten."""
    rows = connection.query(f"SELECT {_COLUMNS} FROM memories WHERE id = :id", id=memory_id)
    return MemoryRow(*rows[0]) if rows else None


def forget(tx: Connection, memory_id: int, now: int, key: str | None) -> bool:
    """Mark a memory as forgotten; return whether it was not before."""
    changed = tx.execute(
        "UPDATE memories SET forgotten_at = :now, forget_key = :key"
        " WHERE id = :id AND forgotten_at IS NULL",
        id=memory_id,
        now=now,
        key=key,
    )
    return changed > 0


def count(connection: Connection, scope: str) -> int:
    """Return how many memories a scope has."""
    ((number,),) = connection.query(
        "SELECT count(*) FROM memories WHERE scope = :scope AND forgotten_at IS NULL", scope=scope
    )
    return int(number)


def newest(
    connection: Connection,
    scope: str | None,
    most: int,
    before: int | None = None,
    *,
    has_forgotten: bool = False,
) -> list[MemoryRow]:
    """Return the memories of a scope, or of all, by falling ids; `before` is the last id of a page."""
    conditions = ["(CAST(:before AS BIGINT) IS NULL OR id < :before)"]
    if scope is not None:
        conditions.append("scope = :scope")
    if not has_forgotten:
        conditions.append("forgotten_at IS NULL")
    where = " AND ".join(conditions)
    values = {"before": before, "most": most} | ({"scope": scope} if scope is not None else {})
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM memories WHERE {where} ORDER BY id DESC LIMIT :most", **values
    )
    return [MemoryRow(*row) for row in rows]


def count_matches(
    connection: Connection, scope: str | None, words: Sequence[MatchWord]
) -> dict[MatchWord, int]:
    """Return in how many memories of a scope, or of all, each word of a query occurs."""
    rows = connection.query(
        f"SELECT r.number, count(*) {_matching(connection.sql, has_scope=scope is not None)}"
        " GROUP BY r.number",
        **_parameters(connection.sql, scope, dict.fromkeys(words, 0)),
    )
    counts = {int(number): int(count) for number, count in rows}
    return {word: counts.get(number, 0) for number, word in enumerate(words)}


def best(
    connection: Connection, scope: str | None, weights: Mapping[MatchWord, int], most: int
) -> list[MemoryRow]:
    """Return the memories with the greatest sum of the weights of the words they match, then the newest."""
    rows = connection.query(
        f"SELECT {_FOUND} FROM (SELECT m.id, sum(r.weight) AS score"
        f" {_matching(connection.sql, has_scope=scope is not None)} GROUP BY m.id) AS f"
        " JOIN memories AS m ON m.id = f.id"
        " ORDER BY f.score DESC, m.id DESC LIMIT :most",
        most=most,
        **_parameters(connection.sql, scope, weights),
    )
    return [MemoryRow(*row) for row in rows]


@cache
def _matching(sql: Sql, *, has_scope: bool) -> str:
    """Return the part of a SELECT that joins the words `r` of a query with the memories `m` they match."""
    words = sql.rows(number="int", word="text", weight="int")
    in_scope = " AND m.scope = :scope" if has_scope else ""
    if sql.name == "sqlite":
        # CROSS: each word is looked up in the index, and each row of that in the table.
        return (
            f"FROM {words} CROSS JOIN memories_index CROSS JOIN memories AS m"
            " ON m.id = memories_index.rowid"
            f" WHERE memories_index MATCH r.word AND m.forgotten_at IS NULL{in_scope}"
        )
    return (
        f"FROM {words} JOIN memories AS m"
        " ON to_tsvector('simple', m.terms) @@ to_tsquery('simple', r.word)"
        f" WHERE m.forgotten_at IS NULL{in_scope}"
    )


def _parameters(sql: Sql, scope: str | None, weights: Mapping[MatchWord, int]) -> dict[str, str]:
    mark = " *" if sql.name == "sqlite" else ":*"
    quote = '"' if sql.name == "sqlite" else "'"
    rows = [
        # Words are made of letters: no text can end the quotes or reach the query's operators.
        [number, f"{quote}{word.word}{quote}{mark if word.is_prefix else ''}", weight]
        for number, (word, weight) in enumerate(weights.items())
    ]
    parameters = {"rows": json.dumps(rows)}
    return parameters if scope is None else {**parameters, "scope": scope}


def prune_in_steps(connection: Connection, before_us: int) -> Iterator[int]:
    """Delete memories that were forgotten before an instant; yield how many after each commit.

    One whose task is still there stays: a retry of the task repeats the call that wrote it, and must find
    its row.
    """
    removed = _PAGE
    while removed == _PAGE:
        with connection.transaction():
            removed = connection.execute(
                "DELETE FROM memories WHERE id IN (SELECT m.id FROM memories AS m"
                " WHERE m.forgotten_at < :before"
                " AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.id = m.task_id)"
                " ORDER BY m.id LIMIT :most)",
                before=before_us,
                most=_PAGE,
            )
        yield removed


def count_removable(connection: Connection, before_us: int, gone: Collection[str]) -> int:
    """Return how many memories `prune_in_steps` would delete once some tasks are gone."""
    rows = connection.query(
        "SELECT t.id FROM memories AS m LEFT JOIN tasks AS t ON t.id = m.task_id"
        " WHERE m.forgotten_at < :before",
        before=before_us,
    )
    return sum(task_id is None or task_id in gone for (task_id,) in rows)
