"""The snapshot of a watched path: what counted at the last poll, and what is not quiet yet.

A state of a file is its inode, modification time and size; a file that is absent has none. A state
counts once it was seen unchanged for the quiet time, by the agent's clock: the times of files come from
other clocks, and programs set them. So a file that is being written does not count, nor does one that
an editor removes for a moment to replace it.

The cursor holds the snapshot as one text: JSON, compressed, in base64. Names are needed to tell
created from changed and to name what was deleted, so no hash can stand for a directory. 50,000 files
take about 2 MB at worst, against 3.5 MB of plain JSON; and for the transaction that stores it, one
text is far cheaper than 50,000 small lists.
"""

import base64
import os
import zlib
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from agent.triggers.watchers.paths.path_scan import State
from agent.triggers.watchers.source import SourceError

MAX_BYTES: Final = 16_777_216
"""The largest snapshot that is stored."""

_ODD_NAME: Final = "\0"
"""Begins a name that is not UTF-8, written in hex: no name of a file contains it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file in a snapshot."""

    counted: State | None
    """What was last reported; None if the file has not counted yet."""
    observed: State | None = None
    """What is there instead, while `since_us` is set."""
    since_us: int | None = None
    """Since when that was observed; None once it has counted."""


Snapshot = dict[str, Entry]


@dataclass(frozen=True, slots=True)
class Change:
    """A state that counts now."""

    event: Literal["created", "changed", "deleted"]
    path: str
    state: State
    """Of a deleted file: its last one."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a scan means after the snapshot of an earlier one."""

    snapshot: Snapshot
    changes: list[Change]
    next_us: int | None
    """When the first of the states that are not quiet yet would count."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When a state counts, and which states are the same."""

    quiet_us: int
    ignores_inodes: bool
    """Network file systems number their files differently after a mount."""

    def is_same(self, one: State | None, other: State | None) -> bool:
        """Whether two states are of the same content."""
        if one is None or other is None:
            return one is other
        return one[1:] == other[1:] and (self.ignores_inodes or one[0] == other[0])


def observe(
    snapshot: Snapshot, files: dict[str, State], begun_us: int, ended_us: int, rules: Rules
) -> Observation:
    """Compare a scan, which took place between two instants, with the snapshot before it."""
    after: Snapshot = {}
    changes: list[Change] = []
    next_us: int | None = None
    for path in snapshot.keys() | files.keys():
        entry, state = snapshot.get(path, _UNKNOWN), files.get(path)
        if rules.is_same(entry.counted, state):
            if state is not None:
                after[path] = Entry(state)
            continue
        since_us = entry.since_us
        # A clock that was set back would make every file wait.
        if since_us is None or since_us > begun_us or not rules.is_same(entry.observed, state):
            since_us = ended_us
        if rules.quiet_us and begun_us - since_us < rules.quiet_us:
            after[path] = Entry(entry.counted, state, since_us)
            due_us = since_us + rules.quiet_us
            next_us = due_us if next_us is None else min(next_us, due_us)
            continue
        changes.append(_change(path, entry.counted, state))
        if state is not None:
            after[path] = Entry(state)
    changes.sort(key=lambda change: (change.state[1], change.path))
    return Observation(after, changes, next_us)


_UNKNOWN: Final = Entry(None)


def _change(path: str, before: State | None, now: State | None) -> Change:
    if now is None:
        assert before is not None
        return Change("deleted", path, before)
    return Change("created" if before is None else "changed", path, now)


def encode(snapshot: Snapshot) -> str:
    """Write a snapshot as the text that the cursor holds."""
    by_directory: dict[str, dict[str, object]] = {}
    for path in sorted(snapshot):
        directory, _, name = path.rpartition("/")
        entry = snapshot[path]
        fields = (
            entry.counted
            if entry.since_us is None
            else (entry.counted, entry.observed, entry.since_us)
        )
        by_directory.setdefault(_to_text(directory), {})[_to_text(name)] = fields
    # The fastest level: others take twice as long and save a tenth.
    text = base64.b64encode(zlib.compress(orjson.dumps(by_directory), 1)).decode("ascii")
    if len(text) > MAX_BYTES:
        raise SourceError("too many files to remember; narrow the watcher with `match`")
    return text


def decode(text: str) -> Snapshot:
    """Read a snapshot; raise `ValueError` if it is none."""
    try:
        data = zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    snapshot: Snapshot = {}
    for directory, names in orjson.loads(data).items():
        prefix = f"{_to_name(directory)}/" if directory else ""
        for name, fields in names.items():
            snapshot[prefix + _to_name(name)] = _entry(fields)
    return snapshot


def _entry(fields: list[object]) -> Entry:
    first, second, third = fields
    if isinstance(first, int):
        return Entry(_state(fields))
    return Entry(_state(first), _state(second), _whole(third))


def _state(value: object) -> State | None:
    if value is None:
        return None
    assert isinstance(value, list)
    inode, modified_ns, size = map(_whole, value)
    return inode, modified_ns, size


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _to_text(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return _ODD_NAME + os.fsencode(name).hex()
    return name


def _to_name(text: str) -> str:
    if text.startswith(_ODD_NAME):
        return os.fsdecode(bytes.fromhex(text[1:]))
    return text
