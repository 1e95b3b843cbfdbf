"""Large values, stored once by their content."""

import os

import pytest

from agent.core.clock import SECOND
from agent.core.ids import content_hash
from agent.store.artifacts import artifact_rows
from agent.store.artifacts.artifact_rows import GRACE_US
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.json_values import encode
from tests.support.rows import insert, insert_task

NOW = 10**15


@pytest.mark.parametrize("content", [b"", b"\0\xff", b"text " * 100_000, os.urandom(100_000)])
def test_content_is_read_back_by_its_hash(database: Database, content: bytes) -> None:
    """Any bytes are read back unchanged, and text takes less space than its length."""
    with database.connect("writer") as connection:
        with connection.transaction():
            name = artifact_rows.put(connection, content, NOW)
            assert artifact_rows.put(connection, content, NOW + 1) == name
        assert name == content_hash(content)
        assert artifact_rows.get(connection, name) == content
        ((size, stored, touched),) = connection.query(
            "SELECT size, length(data), touched_at FROM artifacts"
        )
        assert size == len(content)
        assert stored <= len(content)
        assert touched == NOW + 1
        assert artifact_rows.get(connection, "0" * 64) is None


@pytest.mark.parametrize("content", [b"\0\1\2", b"long" * 1000], ids=["plain", "compressed"])
def test_damaged_content_is_reported(database: Database, content: bytes) -> None:
    """Content that does not match its hash is a damaged artifact, not a damaged database."""
    with database.connect("writer") as connection:
        name = artifact_rows.put(connection, content, NOW)
        connection.execute("UPDATE artifacts SET data = :data", data=b"\0\1\3")
        with pytest.raises(StoreError, match="damaged") as caught:
            artifact_rows.get(connection, name)
        assert caught.value.fault is Fault.DATA


def test_prune_removes_unreferenced_content_after_a_day(database: Database) -> None:
    """A reference anywhere keeps it; without one, a day of grace does."""
    old = NOW - GRACE_US - SECOND

    def put(content: bytes, at: int = old) -> str:
        return artifact_rows.put(connection, content, at)

    def stored(name: str) -> str:
        return encode({"body": [artifact_rows.reference(name)]}, "value")

    with database.connect("writer") as connection:
        insert_task(connection, "t", status="running", input=stored(put(b"in the input")))
        connection.execute("UPDATE steps SET output = :o", o=stored(put(b"in an output")))
        connection.execute("UPDATE tool_calls SET response = :r", r=stored(put(b"in a response")))
        connection.execute("UPDATE signals SET payload = :p", p=stored(put(b"in a signal")))
        insert(connection, "events", type="x", at=1, data=stored(put(b"in an event")))
        recent = put(b"put an hour ago", NOW - 3600 * SECOND)
        again = put(b"put again")
        put(b"put again", NOW)
        gone = [put(b"one"), put(b"two")]
        assert artifact_rows.prune(connection, NOW) == 2
        assert all(artifact_rows.get(connection, name) is None for name in gone)
        assert artifact_rows.get(connection, recent) is not None
        assert artifact_rows.get(connection, again) is not None
        assert connection.query("SELECT count(*) FROM artifacts") == [(7,)]
        connection.execute("DELETE FROM tasks")
        assert artifact_rows.prune(connection, NOW) == 4
        assert artifact_rows.prune(connection, NOW) == 0
