"""Memories: both databases find what a search by hand finds, in the same order; limits hold."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.clock import SECOND
from agent.core.search_terms import index_text, match_words
from agent.store import backup, free_space, memory_rows, pruning
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tool_services import memories
from agent.tool_services.memories import Memories, weight
from tests.support.effort import short_or_full
from tests.support.hypothesis_profile import PATIENT
from tests.support.rows import insert_task
from tests.support.statements import record_statements

_ALPHABETS = (
    "abcdeé",
    "abC++ #_",
    "天気予報雨",
    "カナかな",
    "서울부산",
    "приветй",
    "ไทยภา",
    "0123456789",
    "'\"*:&|!()- @.",
)
_PIECES = st.one_of(*(st.text(alphabet=letters, min_size=1, max_size=6) for letters in _ALPHABETS))
_TEXTS = st.lists(_PIECES, min_size=1, max_size=6).map(" ".join).filter(str.strip)
_ANY = st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=30,
).filter(str.strip)


def by_hand(texts: list[str], query: str, limit: int) -> list[int]:
    """Return the places of the texts that a query finds, in their order: what both databases must do."""
    indexed = [index_text(text.strip()).split() for text in texts]
    terms = match_words(query[: memories.MAX_QUERY_CHARS])
    hits = [
        {number for number, term in enumerate(terms) if any(map(term.matches, words))}
        for words in indexed
    ]
    counts = [sum(number in hit for hit in hits) for number in range(len(terms))]
    scores = [sum(weight(counts[number], len(texts)) for number in hit) for hit in hits]
    found = [place for place, hit in enumerate(hits) if hit]
    return sorted(found, key=lambda place: (scores[place], place), reverse=True)[:limit]


_scopes = itertools.count()


@given(
    texts=st.lists(st.one_of(_TEXTS, _ANY), min_size=1, max_size=8),
    query=st.one_of(_TEXTS, _ANY, _PIECES.filter(str.strip)),
    forgotten=st.sets(st.integers(0, 7), max_size=2),
)
@settings(PATIENT, max_examples=short_or_full(40, 80))
def check_databases(
    databases: list[Database], texts: list[str], query: str, forgotten: set[int]
) -> None:
    """Compare the databases with a search by hand, for random texts in several scripts."""
    scope = f"scope-{next(_scopes)}"
    kept = [text for place, text in enumerate(texts) if place not in forgotten]
    expected = [kept[place].strip() for place in by_hand(kept, query, 50)]
    for database in databases:
        store = Memories(database, database.clock)
        for place, text in enumerate(texts):
            written = store.remember(scope, text, written_by="test")
            if place in forgotten:
                store.forget(written["id"])
        found = [each["text"] for each in store.recall(scope, query, 50)]
        assert found == expected, database.url.partition(":")[0]


def test_both_databases_find_the_same_in_the_same_order(
    sqlite_database: Database, postgres_database: Database
) -> None:
    """SQLite, PostgreSQL and a search by hand agree, for any text and query in several scripts."""
    check_databases([sqlite_database, postgres_database])


@pytest.fixture
def store(database: Database) -> Iterator[Memories]:
    """Return the memories of a database."""
    yield Memories(database, database.clock)


@pytest.mark.parametrize(
    "query",
    ['"', "'", "a AND", "NEAR(", "x:*", "!x & |", "C++", "\\", "天*", "-", "()", "%", "<->"],
)
def test_no_query_reaches_the_databases_own_language(store: Memories, query: str) -> None:
    """Operators, quotes and marks are signs between words: a query never fails."""
    store.remember("s", "x and y", written_by="test")
    found = store.recall("s", query, 10)
    assert len(found) == ("x" in query or "AND" in query)


def test_rare_words_count_more_than_common_ones(store: Memories) -> None:
    """A question in words finds the memory that has the telling one."""
    for number in range(5):
        store.remember("s", f"the name of my cat number {number} is Tom", written_by="test")
    store.remember("s", "dentist: Dr. Müller", written_by="test")
    (best, *_) = store.recall("s", "what is the name of my dentist", 3)
    assert best["text"].startswith("dentist")


def test_an_empty_query_returns_the_newest(store: Memories) -> None:
    """Up to the limit, the newest first; a query without words finds nothing."""
    for name in ("one", "two", "three"):
        store.remember("s", name, written_by="test")
    assert [each["text"] for each in store.recall("s", " ", 2)] == ["three", "two"]
    assert store.recall("s", "!?", 2) == []


def test_the_limit_of_a_scope_holds_for_writers_side_by_side(database: Database) -> None:
    """Many threads fill a scope to its limit and not further; another scope is not affected."""
    store = Memories(database, database.clock, max_per_scope=3)
    refused: list[str] = []

    def write(number: int) -> None:
        try:
            store.remember("s", f"memory {number}", written_by="test")
        except RefusedError as problem:
            refused.append(str(problem))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.recall("s", "memory", 10)) == 3
    assert len(refused) == 3
    store.remember("other", "memory", written_by="test")


def test_writers_under_one_key_write_one_row(store: Memories) -> None:
    """A worker that was taken over may repeat a call while the new one makes it."""
    found: list[dict[str, Any]] = []

    def write() -> None:
        found.append(store.remember("s", "once", written_by="agent", call_key="k1"))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each["id"] for each in found}) == 1
    assert len(store.recall("s", "once", 10)) == 1


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d pair", "  "])
def test_a_text_that_cannot_be_stored_is_refused(store: Memories, text: str) -> None:
    """With a reason, before the database sees it."""
    with pytest.raises(RefusedError):
        store.remember("s", text, written_by="test")


def test_pruning_deletes_what_was_forgotten(database: Database, store: Memories) -> None:
    """Until then it can be shown; its id is not used again; a search works before and after."""
    first = store.remember("s", "old tea", written_by="test")["id"]
    store.forget(first)
    kept = store.remember("s", "new tea", written_by="test")["id"]
    later = database.clock.now() + 1
    with database.connect("writer") as connection:
        assert memories.show(connection, first)["forgotten_at"] is not None
        assert pruning.prune(connection, later)["memories"] == 1
        with pytest.raises(NotFoundError):
            memories.show(connection, first)
        assert pruning.prune(connection, later)["memories"] == 0
    assert [each["id"] for each in store.recall("s", "tea", 10)] == [kept]
    newest = store.remember("s", "third", written_by="test")["id"]
    store.forget(newest)
    with database.connect("writer") as connection:
        pruning.prune(connection, database.clock.now() + 1)
    assert store.remember("s", "fourth", written_by="test")["id"] > newest


def test_pruning_keeps_the_row_of_a_task_that_is_there(database: Database, store: Memories) -> None:
    """A retry of the task repeats the call that wrote it, and must not write it again."""
    with database.connect("writer") as connection:
        insert_task(connection, "t1", status="failed", ended_at=database.clock.now() + 60 * SECOND)
        written = store.remember("s", "x1", written_by="agent", call_key="k", task_id="t1")
        store.forget(written["id"])
        later = database.clock.now() + 1
        assert pruning.prune(connection, later)["memories"] == 0
        again = store.remember("s", "x1", written_by="agent", call_key="k", task_id="t1")
        assert again["id"] == written["id"] and again["forgotten_at"] is not None
        connection.execute("DELETE FROM tasks")
        assert pruning.prune(connection, later)["memories"] == 1


def test_a_backup_and_a_rewritten_file_find_what_was_found_before(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """Ids are the table's own numbers, so the index still fits after a copy and after VACUUM."""
    store = Memories(sqlite_database, sqlite_database.clock)
    for number in range(5):
        store.forget(store.remember("s", f"gone {number}", written_by="test")["id"])
    kept = store.remember("s", "kept tea", written_by="test")
    with sqlite_database.connect("writer") as connection:
        pruning.prune(connection, sqlite_database.clock.now() + 1)
    backup.write(sqlite_database, tmp_path / "copy.db")
    free_space.rewrite(sqlite_database)
    copy = Database(f"sqlite:///{tmp_path}/copy.db")
    for database in (sqlite_database, copy):
        found = Memories(database, database.clock).recall("s", "tea gone", 10)
        assert [each["id"] for each in found] == [kept["id"]]


def test_a_search_uses_the_index(database: Database) -> None:
    """Each word of a query is looked up in the full-text index, on both databases."""
    store = Memories(database, database.clock)
    store.remember("s", "needle", written_by="test")
    number = "i" if database.is_sqlite else "generate_series"
    rows = (
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " SELECT i FROM n) AS n"
        if database.is_sqlite
        else "generate_series(1, 3000)"
    )
    words = match_words("needle tea")
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.connect("writer") as connection:
        connection.execute(
            "INSERT INTO memories (scope, text, terms, written_by, created_at)"
            f" SELECT 's', 'x', 'p' || {number}, 't', 1 FROM {rows}"
        )
        if not database.is_sqlite:
            connection.query("ANALYZE memories")
        statements = record_statements(connection)
        memory_rows.count_matches(connection, "s", words)
        memory_rows.best(connection, "s", dict.fromkeys(words, 1), 10)
        plans = [
            "\n".join(str(row) for row in connection.query(f"{explain} {sql}", **parameters))
            for sql, parameters in list(statements.items())
        ]
    wanted = "memories_index VIRTUAL TABLE INDEX" if database.is_sqlite else "memories_by_term"
    assert [wanted in plan for plan in plans] == [True, True], plans
