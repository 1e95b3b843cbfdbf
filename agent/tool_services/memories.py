"""Memories of agents and people: written once per call, found by their words, in one scope.

The words of a query weigh by how rare they are in the scope, in whole numbers: SQLite and PostgreSQL
then find the same in the same order.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from agent.core.clock import Clock, to_iso
from agent.core.redaction import everywhere
from agent.core.search_terms import index_text, match_words
from agent.store import memory_rows
from agent.store.db.database import Connection, Database
from agent.store.memory_rows import MemoryRow, NewMemory
from agent.tasks.errors import NotFoundError, RefusedError

MAX_TEXT_CHARS: Final = 4_000
MAX_PER_SCOPE: Final = 10_000
MAX_RESULTS: Final = 50
MAX_QUERY_CHARS: Final = 1_000
MAX_SCOPE_CHARS: Final = 300
_LOCK_TIMEOUT_MS: Final = 15_000

Document = dict[str, Any]


class Memories:
    """The memories of one database; every function is one transaction."""

    def __init__(
        self, database: Database, clock: Clock, max_per_scope: int = MAX_PER_SCOPE
    ) -> None:
        self._database = database
        self._clock = clock
        self._max_per_scope = max_per_scope

    def remember(
        self,
        scope: str,
        text: str,
        *,
        written_by: str,
        call_key: str | None = None,
        task_id: str | None = None,
        step: str | None = None,
    ) -> Document:
        """Write a memory and return it; under the key of an earlier call, return the memory of that call."""
        text = _checked_text(text)
        new = NewMemory(
            _checked_scope(scope),
            text,
            index_text(text),
            task_id,
            step,
            call_key,
            written_by,
            self._clock.now(),
        )
        with self._writing() as tx:
            memory_rows.lock_scope(tx, scope)
            row = memory_rows.by_call(tx, call_key) if call_key is not None else None
            if row is None:
                if memory_rows.count(tx, scope) >= self._max_per_scope:
                    raise RefusedError(
                        f"the scope {scope} has {self._max_per_scope:,} memories, which is the"
                        " most: forget some first"
                    )
                memory_id = memory_rows.insert(tx, new)
                assert memory_id is not None, "the scope's lock excludes a second writer of a call"
                row = memory_rows.find(tx, memory_id)
        assert row is not None
        return document_of(row)

    def recall(self, scope: str, query: str, limit: int) -> list[Document]:
        """Return the memories of a scope that match a query, the best first; the newest without one."""
        with self._database.connect("reader") as connection, connection.snapshot():
            return search(connection, scope, query, limit)

    def forget(
        self, memory_id: int, *, scope: str | None = None, call_key: str | None = None
    ) -> Document:
        """Forget a memory, of this scope only if one is given; a repeated call finds it done."""
        with self._writing() as tx:
            row = memory_rows.find(tx, memory_id)
            is_here = row is not None and (scope is None or row.scope == scope)
            if row is None or not is_here:
                where = f" in the scope {scope}" if scope is not None else ""
                raise NotFoundError(f"there is no memory {memory_id}{where}")
            is_changed = memory_rows.forget(tx, memory_id, self._clock.now(), call_key)
            is_repeated = call_key is not None and row.forget_key == call_key
            if not is_changed and not is_repeated:
                raise NotFoundError(f"memory {memory_id} was forgotten already")
            row = memory_rows.find(tx, memory_id)
        assert row is not None
        return document_of(row)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._database.connect("writer") as tx, tx.transaction():
            tx.lock_timeout(_LOCK_TIMEOUT_MS)
            yield tx


def search(connection: Connection, scope: str | None, query: str, limit: int) -> list[Document]:
    """Return the memories of a scope, or of all, that match a query, the best first.

    An empty query matches everything, the newest first. One without any word matches nothing.
    """
    limit = max(1, min(limit, MAX_RESULTS))
    query = query[:MAX_QUERY_CHARS]
    if not query.strip():
        return [document_of(row) for row in memory_rows.newest(connection, scope, limit)]
    counts = memory_rows.count_matches(connection, scope, match_words(query))
    matching = {word: number for word, number in counts.items() if number}
    if not matching:
        return []
    total = max(matching.values()) if scope is None else memory_rows.count(connection, scope)
    weights = {word: weight(number, total) for word, number in matching.items()}
    return [document_of(row) for row in memory_rows.best(connection, scope, weights, limit)]


def weight(matches: int, total: int) -> int:
    """Return the weight of a word that occurs in this number of all memories: rare words count more."""
    rarity = (max(total, matches) - matches + 0.5) / (matches + 0.5)
    return max(1, round(1000 * math.log1p(rarity)))


def list_memories(
    connection: Connection,
    scope: str | None,
    limit: int,
    before: int | None = None,
    *,
    has_forgotten: bool = False,
) -> list[Document]:
    """Return the newest memories of a scope or of all, or those with smaller ids than one."""
    rows = memory_rows.newest(connection, scope, limit, before, has_forgotten=has_forgotten)
    return [document_of(row) for row in rows]


def show(connection: Connection, memory_id: int) -> Document:
    """Return a memory, also a forgotten one that pruning has not deleted yet."""
    row = memory_rows.find(connection, memory_id)
    if row is None:
        raise NotFoundError(f"there is no memory {memory_id}")
    return document_of(row)


def document_of(row: MemoryRow) -> Document:
    """Return a memory as every surface shows it."""
    return {
        "id": row.id,
        "scope": row.scope,
        "text": row.text,
        "written_by": row.written_by,
        "task": row.task_id,
        "step": row.step,
        "created_at": to_iso(row.created_at),
        "forgotten_at": to_iso(row.forgotten_at),
    }


def _checked_text(text: str) -> str:
    text = text.strip()
    if not text:
        raise RefusedError("there is nothing to remember: the text is empty")
    if "\0" in text or not _is_unicode(text):
        raise RefusedError(
            "the text cannot be stored: it has a NUL character or half of a surrogate pair"
        )
    # Redacted before its length is checked and before its words are read.
    text = everywhere.redact(text)
    if len(text) > MAX_TEXT_CHARS:
        raise RefusedError(
            f"the text has {len(text):,} characters, and a memory at most {MAX_TEXT_CHARS:,}:"
            " shorten it, or remember it in parts"
        )
    return text


def _checked_scope(scope: str) -> str:
    if not scope.strip() or len(scope) > MAX_SCOPE_CHARS or not scope.isprintable():
        raise RefusedError(f"a scope is a text of 1 to {MAX_SCOPE_CHARS} printable characters")
    return scope


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
