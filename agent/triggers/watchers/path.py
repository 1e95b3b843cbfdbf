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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.core.ids import canonical_json, content_hash
from agent.triggers.watchers import path_snapshot, poll_threads
from agent.triggers.watchers.item_checks import bounded_key, storable
from agent.triggers.watchers.path_scan import Scan, State, WatchedPath, scan
from agent.triggers.watchers.path_snapshot import Change, Entry, Observation, Rules, Snapshot
from agent.triggers.watchers.source import Item, Json, Listener, Poll, PollContext, SourceError

_VERSION: Final = 1
_MOST_WAIT_SECONDS: Final = 10.0
"""The longest quiet time for which a first poll waits."""
_SOONEST_SECONDS: Final = 0.05


def open_source(keys: dict[str, Any]) -> "PathSource":
    """Return the source of a compiled `path` mapping."""
    return PathSource(keys)


def open_listener(keys: dict[str, Any]) -> Listener | None:
    """Return what listens to the file system; None for `poll: true` and without the library."""
    if keys.get("poll"):
        return None
    from agent.triggers.watchers import path_listener

    return path_listener.open_listener(keys)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A scan, and the instants between which it took place."""

    found: Scan
    begun_us: int
    ended_us: int


class PathSource:
    """One scan a poll, compared with the snapshot in the cursor."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys
        self._events = frozenset(keys.get("events") or ("created", "changed"))
        self._quiet_seconds = float(keys.get("quiet_seconds", 2.0))
        self._ignores_inodes = bool(keys.get("poll", False))

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Scan the path in a thread and return the changes that count now."""
        path = WatchedPath.of(self._keys, context.workflow_path)
        selection = content_hash(canonical_json([path.root, path.is_recursive, path.pattern]))[:16]
        timed = await self._scan(path, context)
        new_baseline = None
        if cursor is not None and cursor.get("of") != selection:
            cursor, new_baseline = None, "the path, `match` or `recursive` of the watcher changed"
        if cursor is None:
            timed, observation = await self._first(path, timed, context)
        else:
            snapshot = await poll_threads.start(context, lambda: _read_snapshot(cursor))
            _check_device(path, cursor, snapshot, timed.found)
            observation = self._observe(snapshot, timed, int(cursor["device"]))
            if observation.snapshot == snapshot and cursor["device"] == timed.found.device:
                return Poll([], cursor, next_seconds=_next_seconds(observation, timed))
        text = await poll_threads.start(context, lambda: path_snapshot.encode(observation.snapshot))
        items = [
            _item(path, change) for change in observation.changes if change.event in self._events
        ]
        if len(items) > context.most_items:
            raise SourceError(
                f"{len(items)} files in one poll of {storable(path.root)}; at most"
                f" {context.most_items} are accepted: narrow the watcher with `match`"
            )
        is_file = timed.found.is_file
        after = {
            "v": _VERSION,
            "of": selection,
            "is_file": cursor["is_file"] if cursor is not None and is_file is None else is_file,
            "device": timed.found.device,
            "files": len(observation.snapshot),
            "snapshot": text,
        }
        return Poll(items, after, new_baseline, _next_seconds(observation, timed))

    async def _first(
        self, path: WatchedPath, timed: _Timed, context: PollContext
    ) -> tuple[_Timed, Observation]:
        """Return every file that is quiet, after a wait if some were modified just now."""
        if timed.found.is_file is None:
            raise SourceError(
                f"there is no file or directory {storable(path.root)}; to wait for a file, watch its"
                " directory with `match`"
            )
        quiet_us = round(self._quiet_seconds * SECOND)
        files, begun_us = timed.found.files, timed.begun_us
        recent = {name for name, state in files.items() if state[1] // 1000 > begun_us - quiet_us}
        longest = min(_MOST_WAIT_SECONDS, context.timeout_seconds / 3)
        if recent and quiet_us and self._quiet_seconds <= longest:
            await asyncio.sleep(self._quiet_seconds)
            timed = await self._scan(path, context)
            recent = set()
        quiet_since_us = timed.begun_us - quiet_us
        snapshot = {
            name: Entry(None, state, timed.ended_us if name in recent else quiet_since_us)
            for name, state in files.items()
        }
        return timed, self._observe(snapshot, timed, timed.found.device)

    def _observe(self, snapshot: Snapshot, timed: _Timed, device: int) -> Observation:
        ignores_inodes = self._ignores_inodes or device != timed.found.device
        rules = Rules(round(self._quiet_seconds * SECOND), ignores_inodes)
        return path_snapshot.observe(
            snapshot, timed.found.files, timed.begun_us, timed.ended_us, rules
        )

    async def _scan(self, path: WatchedPath, context: PollContext) -> _Timed:
        """Scan in a thread; one that hangs, as on a dead network file system, is never doubled."""
        running: dict[WatchedPath, asyncio.Future[Scan]] = context.resources.setdefault("path", {})
        if path in running and not running[path].done():
            raise SourceError(
                f"an earlier scan of {storable(path.root)} has not ended; its file system may hang"
            )
        stop = threading.Event()
        begun_us = context.clock.now()
        future = running[path] = poll_threads.start(context, lambda: scan(path, stop))
        try:
            found = await asyncio.shield(future)
        finally:
            stop.set()
            if future.done():
                running.pop(path, None)
        return _Timed(found, begun_us, context.clock.now())


def _read_snapshot(cursor: dict[str, Json]) -> Snapshot:
    if cursor.get("v") != _VERSION:
        raise SourceError(
            "the snapshot of this watcher was stored by a newer version of the agent: upgrade it,"
            " or give the watcher another `id`"
        )
    return path_snapshot.decode(cursor["snapshot"])


def _check_device(
    path: WatchedPath, cursor: dict[str, Json], snapshot: Snapshot, found: Scan
) -> None:
    """Refuse what looks like an unmounted file system, not like deleted files."""
    if found.is_file is None and not cursor["is_file"]:
        raise SourceError(
            f"the directory {storable(path.root)} is gone: it was removed, renamed or unmounted"
        )
    known = [name for name, entry in snapshot.items() if entry.counted is not None]
    if cursor["device"] != found.device and known and not any(map(found.files.__contains__, known)):
        raise SourceError(
            f"{storable(path.root)} is on another file system than before, without any of the"
            f" {len(known)} known files: is it mounted? If it was moved, give the watcher another"
            " `id`"
        )


def _next_seconds(observation: Observation, timed: _Timed) -> float | None:
    if observation.next_us is None:
        return None
    return max(_SOONEST_SECONDS, (observation.next_us - timed.ended_us) / SECOND)


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
