"""The source `path`: files that are created, changed or deleted, in a directory or a single one.

A file counts once it has been quiet (`path_snapshot`), and its key has the event, path, inode, time of
modification and size: what changes again is another item. A rename within the directory is a deletion
and a creation, since only the path tells that two files are the same. A file that is moved away and
back unchanged has the key that it had, and starts nothing.

The first poll returns every file. It waits for the quiet time once if a file was modified within it: a
file that changes meanwhile is left out, and comes as created when it is complete.

A directory that cannot be read, or is gone, is an error and never means that its files were deleted. So
is another file system without any of the known files, as after an unmount.
"""

import asyncio
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.triggers.watchers import poll_threads
from agent.triggers.watchers.item_checks import bounded_key, storable
from agent.triggers.watchers.paths import path_snapshot
from agent.triggers.watchers.paths.path_scan import Scan, State, WatchedPath, scan
from agent.triggers.watchers.paths.path_snapshot import Change, Entry, Rules, Snapshot
from agent.triggers.watchers.source import (
    Item,
    Json,
    Listener,
    Poll,
    PollContext,
    Source,
    SourceError,
)

_VERSION: Final = 1
_MOST_WAIT_SECONDS: Final = 10.0
"""The longest quiet time for which a first poll waits."""
_SOONEST_SECONDS: Final = 0.05
_LARGE_BYTES: Final = 100_000
_BYTES_PER_SECOND: Final = 200_000
"""How fast large snapshots are written: one of 2 MB every ten seconds, however much changes."""


def open_source(keys: dict[str, Any]) -> Source:
    """Return the source of a compiled `path` mapping."""
    return PathSource(keys)


def open_listener(keys: dict[str, Any]) -> Listener | None:
    """Return what listens to the file system; None for `poll: true` and without the library."""
    if keys.get("poll"):
        return None
    from agent.triggers.watchers.paths import path_listener

    return path_listener.open_listener(keys)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A scan, and the instants between which it took place."""

    found: Scan
    begun_us: int
    ended_us: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """A scan, and what an earlier scan of the same poll has seen."""

    timed: _Timed
    snapshot: Snapshot


class PathSource:
    """One scan a poll, compared with the snapshot in the cursor."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys
        self._events = frozenset(keys.get("events") or ("created", "changed"))
        self._quiet_us = round(keys.get("quiet_seconds", 2.0) * SECOND)
        self._ignores_inodes = bool(keys.get("poll", False))

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Scan the path in a thread and return the changes that count now."""
        path = WatchedPath.of(self._keys, context.workflow_path)
        new_baseline = None
        if cursor is not None and cursor.get("of") != path.selection:
            cursor, new_baseline = None, "the path, `match` or `recursive` of the watcher changed"
        pause_us = 0 if cursor is None else _pause_us(cursor, context.clock.now())
        if pause_us > 0:
            return Poll([], cursor, next_seconds=pause_us / SECOND, is_cursor_kept=True)
        timed = await self._scan(path, context)
        seen = None if cursor is not None else await self._first(path, timed, context)
        # In a thread as well: there may be very many files.
        poll = await poll_threads.start(
            context, lambda: self._compare(path, cursor, seen or _Seen(timed, {}))
        )
        if len(poll.items) > context.most_items:
            raise SourceError(
                f"{len(poll.items)} files in one poll of {storable(path.root)}; at most"
                f" {context.most_items} are accepted: narrow the watcher with `match`"
            )
        return replace(poll, new_baseline=new_baseline)

    async def _first(self, path: WatchedPath, timed: _Timed, context: PollContext) -> "_Seen":
        """Return the files of a first poll, after a wait if some were modified just now."""
        if timed.found.is_file is None:
            raise SourceError(
                f"there is no file or directory {storable(path.root)}; to wait for a file, watch its"
                " directory with `match`"
            )
        files = timed.found.files
        recent_us = timed.begun_us - self._quiet_us
        quiet_since_us = {
            name: timed.ended_us if state[1] // 1000 > recent_us else recent_us
            for name, state in files.items()
        }
        longest = min(_MOST_WAIT_SECONDS, context.timeout_seconds / 3)
        if timed.ended_us in quiet_since_us.values() and 0 < self._quiet_us <= longest * SECOND:
            await asyncio.sleep(self._quiet_us / SECOND)
            timed = await self._scan(path, context)
            quiet_since_us = dict.fromkeys(files, timed.begun_us - self._quiet_us)
        return _Seen(
            timed,
            {name: Entry(None, state, quiet_since_us[name]) for name, state in files.items()},
        )

    def _compare(self, path: WatchedPath, cursor: dict[str, Json] | None, seen: "_Seen") -> Poll:
        """Return what a scan means after the snapshot of the last poll."""
        timed, snapshot = seen.timed, seen.snapshot
        scanned, device, is_file = timed.found, timed.found.device, timed.found.is_file
        if cursor is not None:
            snapshot, device = _read_snapshot(cursor), cursor["device"]
            _check_device(path, cursor, snapshot, scanned)
            is_file = cursor["is_file"] if is_file is None else is_file
        rules = Rules(self._quiet_us, self._ignores_inodes or device != scanned.device)
        observation = path_snapshot.observe(
            snapshot, scanned.files, timed.begun_us, timed.ended_us, rules
        )
        next_seconds = None
        if observation.next_us is not None:
            next_seconds = max(_SOONEST_SECONDS, (observation.next_us - timed.ended_us) / SECOND)
        if cursor is not None and observation.snapshot == snapshot and device == scanned.device:
            return Poll([], cursor, next_seconds=next_seconds, is_cursor_kept=True)
        after = {
            "v": _VERSION,
            "of": path.selection,
            "is_file": is_file,
            "device": scanned.device,
            "written_us": timed.ended_us,
            "files": len(observation.snapshot),
            "snapshot": path_snapshot.encode(observation.snapshot),
        }
        items = [
            _item(path, change) for change in observation.changes if change.event in self._events
        ]
        return Poll(items, after, next_seconds=next_seconds)

    async def _scan(self, path: WatchedPath, context: PollContext) -> _Timed:
        """Scan in a thread; one that hangs, as on a dead network file system, is never doubled."""
        abandoned: dict[WatchedPath, asyncio.Future[Scan]] = context.resources.setdefault(
            "path", {}
        )
        if path in abandoned and not abandoned[path].done():
            raise SourceError(
                f"an earlier scan of {storable(path.root)} has not ended; its file system may hang"
            )
        stop = threading.Event()
        begun_us = context.clock.now()
        future = poll_threads.start(context, lambda: scan(path, stop))
        abandoned.pop(path, None)
        try:
            result = await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            abandoned[path] = future
            raise
        return _Timed(result, begun_us, context.clock.now())


def _pause_us(cursor: dict[str, Json], now_us: int) -> int:
    """Return how long to wait before a large snapshot may be written again."""
    size = len(cursor["snapshot"])
    if size <= _LARGE_BYTES or now_us < cursor["written_us"]:
        return 0
    return int(cursor["written_us"] + size * SECOND // _BYTES_PER_SECOND - now_us)


def _read_snapshot(cursor: dict[str, Json]) -> Snapshot:
    if cursor.get("v") != _VERSION:
        raise SourceError(
            "the snapshot of this watcher was stored by a newer version of the agent: upgrade it,"
            " or give the watcher another `id`"
        )
    try:
        return path_snapshot.decode(cursor["snapshot"])
    except ValueError as error:
        raise SourceError(f"the stored snapshot cannot be read: {error}") from None


def _check_device(
    path: WatchedPath, cursor: dict[str, Json], snapshot: Snapshot, scanned: Scan
) -> None:
    """Refuse what looks like an unmounted file system, not like deleted files."""
    if scanned.is_file is None and not cursor["is_file"]:
        raise SourceError(
            f"the directory {storable(path.root)} is gone: it was removed, renamed or unmounted"
        )
    known = [name for name, entry in snapshot.items() if entry.counted is not None]
    if (
        cursor["device"] != scanned.device
        and known
        and not any(map(scanned.files.__contains__, known))
    ):
        raise SourceError(
            f"{storable(path.root)} is on another file system than before, without any of the"
            f" {len(known)} known files: is it mounted? If it was moved, give the watcher another"
            " `id`"
        )


def _item(path: WatchedPath, change: Change) -> Item:
    relative = change.path or Path(path.root).name
    absolute = f"{path.root}/{change.path}" if change.path else path.root
    inode, modified_ns, size = change.state
    key = f"{change.event}:{storable(relative)}:{inode}:{modified_ns}:{size}"
    data = {
        "path": storable(absolute),
        "name": storable(relative.rpartition("/")[2]),
        "event": change.event,
        "size": size,
        "modified": _modified(change.state),
    }
    return Item(bounded_key(key), data)


def _modified(state: State) -> str | None:
    """Return the time of modification; None for one that no calendar has."""
    try:
        return to_iso(state[1] // 1000)
    except (ValueError, OverflowError, OSError):
        return None
