"""Large values, stored once by the hash of their content, compressed.

A stored value refers to one as ``{"$artifact": hash}``. An artifact is put before the row that refers
to it, in a transaction of its own. So an artifact without a reference may get one soon: it is removed
no sooner than a day after it was last put.
"""

import json
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Final

from agent.core.clock import SECOND
from agent.core.ids import content_hash
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.store.artifacts.blobs import BlobStore, stores_of
from agent.store.db.database import Connection, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.json_values import Json, encode

REFERENCE_KEY: Final = "$artifact"
GRACE_US: Final = 24 * 3600 * SECOND

_REFERENCES: Final = r'"\$artifact":\s*"([0-9a-f]{64})"'
# The columns whose values may refer to an artifact.
_REFERRING: Final = {
    "tasks": ("input", "output", "error", "trigger"),
    "steps": ("output", "error", "checkpoint", "item", "items", "waiting_on"),
    "tool_calls": ("request", "response", "error"),
    "signals": ("payload",),
    "work": ("input",),
    "events": ("data",),
}
_PAGE: Final = 500
_BEGINNING: Final = f'{{"{REFERENCE_KEY}"'
_ELSEWHERE: Final = "@"
"""Ends the encoding of content outside the database."""


@dataclass(frozen=True, slots=True)
class PackedContent:
    """Content that is ready to be put."""

    name: str
    size: int
    encoding: str
    data: bytes
    """Or its address, where the content is kept outside the database."""


def pack(content: bytes, blob_store: BlobStore | None = None) -> PackedContent:
    """Compress content, and write it to a store outside the database if one is given.

    Such a store may be slow or hang: do not call this in a thread that others wait for.
    """
    name = content_hash(content)
    packed = zlib.compress(content)
    is_smaller = len(packed) < len(content)
    encoding, data = ("zlib", packed) if is_smaller else ("identity", content)
    if blob_store is not None:
        encoding, data = f"{encoding}{_ELSEWHERE}", blob_store.write(name, data).encode()
    return PackedContent(name, len(content), encoding, data)


def put(tx: Connection, content: bytes | PackedContent, now: int) -> str:
    """Store content unless it exists, mark it as used now, and return its hash."""
    packed = content if isinstance(content, PackedContent) else pack(content)
    tx.execute(
        "INSERT INTO artifacts (hash, size, encoding, data, created_at, touched_at)"
        " VALUES (:hash, :size, :encoding, :data, :now, :now)"
        " ON CONFLICT (hash) DO UPDATE SET touched_at = excluded.touched_at",
        hash=packed.name,
        size=packed.size,
        encoding=packed.encoding,
        data=packed.data,
        now=now,
    )
    return packed.name


def get(tx: Connection, name: str) -> bytes | None:
    """Return content by its hash, within a few seconds; None if it does not exist."""
    return _get(tx, name, lambda address: stores_of(tx.database).read(address))


def _get(tx: Connection, name: str, read: Callable[[str], bytes | None]) -> bytes | None:
    rows = tx.query("SELECT encoding, data FROM artifacts WHERE hash = :hash", hash=name)
    if not rows:
        return None
    encoding, data = rows[0]
    if encoding.endswith(_ELSEWHERE):
        data = read(bytes(data).decode())
        if data is None:
            return None
    try:
        content = zlib.decompress(data) if encoding.startswith("zlib") else bytes(data)
    except zlib.error:
        content = None
    if content is None or content_hash(content) != name:
        raise StoreError(Fault.DATA, f"the artifact {name} is damaged")
    return content


def names_like(connection: Connection, beginning: str) -> list[str]:
    """Return the hashes that begin with a text; a few of them, if there are many."""
    rows = connection.query(
        "SELECT hash FROM artifacts WHERE hash >= :first AND hash < :last ORDER BY hash LIMIT 5",
        first=beginning,
        last=beginning + "g",
    )
    return [str(name) for (name,) in rows]


def reference(name: str) -> Json:
    """Return the stored reference to an artifact."""
    return {REFERENCE_KEY: name}


def looks_like_reference(text: str) -> bool:
    """Whether a stored text would be read as a reference.

    A value that looks like one is put as an artifact itself, so that data cannot name another's.
    """
    return text.startswith(_BEGINNING)


def take(connection: Connection, text: str | None) -> Json:
    """Read a stored value for a step, following the reference if it is one.

    A value that cannot be read is an error: no step may take a reference for its value.
    """
    return _take(connection, text, lambda address: stores_of(connection.database).read(address))


def _take(connection: Connection, text: str | None, read: Callable[[str], bytes | None]) -> Json:
    if text is None:
        return None
    value = json.loads(text)
    if not looks_like_reference(text):
        return value
    content = _get(connection, value[REFERENCE_KEY], read)
    if content is None:
        raise StoreError(Fault.DATA, "this artifact is gone")
    return json.loads(content)


class NotFetchedError(Exception):
    """Values are outside the database and have not been read yet: `FetchedValues.missing` names them."""


class FetchedValues:
    """Reads values without waiting for a store: those outside the database must be fetched before.

    A value that was not fetched reads as None, and its address is added to `missing`: callers must
    check that before they use the values.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes | None] = {}
        """Fetched contents by address; None for one that no longer exists."""
        self.missing: set[str] = set()
        self.misses = 0
        """How often a value was missing; the same address may count twice."""

    def take(self, connection: Connection, text: str | None) -> Json:
        """Read a stored value as `artifact_rows.take` does."""
        try:
            return _take(connection, text, self._read)
        except NotFetchedError:
            return None

    def _read(self, address: str) -> bytes | None:
        if address not in self.contents:
            self.missing.add(address)
            self.misses += 1
            raise NotFetchedError
        return self.contents[address]


def load(connection: Connection, text: str | None) -> Json:
    """Read a stored value for people; if it cannot be read, return the reference with the problem."""
    try:
        return take(connection, text)
    except StoreError as error:
        problem = error.message
        if error.fault is Fault.UNREACHABLE:
            problem = f"value unavailable: store unreachable: {problem}"
        return {**json.loads(text or "{}"), "problem": problem}


Read = Callable[[Connection, str | None], Json]
"""`take` or `load`."""


def prune(connection: Connection, now: int) -> int:
    """Remove artifacts without references that were not put for a day; return how many."""
    return sum(prune_in_steps(connection, now))


def prune_in_steps(
    connection: Connection, now: int, *, is_inside_only: bool = False
) -> Iterator[int]:
    """Do what `prune` does, and yield how many each short transaction removed.

    `is_inside_only` leaves out values in a store outside the database.
    """
    before = now - GRACE_US
    unused = _unused(connection, before, is_inside_only=is_inside_only)
    for start in range(0, len(unused), _PAGE):
        with connection.transaction():
            gone = connection.query(
                f"DELETE FROM artifacts WHERE hash IN {connection.sql.ids()}"
                " AND touched_at < :before RETURNING encoding,"
                f" CASE WHEN encoding LIKE :elsewhere THEN data END",
                ids=encode(unused[start : start + _PAGE], "hashes"),
                before=before,
                elsewhere=f"%{_ELSEWHERE}",
            )
        for _, address in gone:
            if address is not None:
                stores_of(connection.database).remove(bytes(address).decode(), before)
        yield len(gone)


def count_removable(connection: Connection, now: int, gone: Collection[str]) -> int:
    """Return how many artifacts `prune` would remove once some tasks are gone."""
    return len(_unused(connection, now - GRACE_US, gone))


def _unused(
    connection: Connection, before: int, gone: Collection[str] = (), *, is_inside_only: bool = False
) -> list[str]:
    """Return artifacts without references that were last put before an instant."""
    idle = [
        str(name)
        for (name,) in connection.query(
            "SELECT hash FROM artifacts WHERE touched_at < :before"
            " AND (:inside_only = 0 OR encoding NOT LIKE :elsewhere) ORDER BY hash",
            before=before,
            inside_only=int(is_inside_only),
            elsewhere=f"%{_ELSEWHERE}",
        )
    ]
    if not idle:
        return []
    used = _referred_to(connection, gone)
    return [name for name in idle if name not in used]


def kept_by_grace(connection: Connection, now: int, gone: Collection[str] = ()) -> tuple[int, int]:
    """Return how many artifacts without references `prune` keeps for now, and their bytes.

    References of the tasks `gone` do not count.
    """
    recent: dict[str, int] = dict(
        connection.query(
            "SELECT hash, size FROM artifacts WHERE touched_at >= :since", since=now - GRACE_US
        )
    )
    if not recent:
        return 0, 0
    used = _referred_to(connection, gone)
    unused = [size for name, size in recent.items() if name not in used]
    return len(unused), sum(unused)


def _referred_to(connection: Connection, gone: Collection[str] = ()) -> set[str]:
    used: set[str] = set()
    with connection.snapshot():
        for table, columns in _REFERRING.items():
            task = "id" if table == "tasks" else "task_id"
            for column in columns:
                rows = connection.query(
                    f"SELECT {task}, {column} FROM {table} WHERE {column} LIKE :pattern",
                    pattern=f'%"{REFERENCE_KEY}"%',
                )
                for task_id, text in rows:
                    if task_id not in gone:
                        used.update(re.findall(_REFERENCES, text))
    return used
