"""Watches the disks of the agent's files, and notifies people before they are full.

A full disk stops every commit, and the event about it could not be written either. So the first notice
comes while there is room left, the second when there is hardly any, and one more when there is room
again. The last notice about each disk is on record: a restart repeats none.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from agent.config.operation import DiskSettings
from agent.core.files import disk_space
from agent.core.files.disk_space import MEGABYTE, DiskSpace
from agent.steps.types.outcome import Json
from agent.store.db.database import Database
from agent.store.engine import outages
from agent.tasks.worker.health import Health

log = structlog.get_logger(__name__)

OK: Final = "ok"
LOW: Final = "low"
CRITICAL: Final = "critical"

LOW_EVENT: Final = "disk.low"
RECOVERED_EVENT: Final = "disk.recovered"
WHAT: Final = "disk"
"""The name of the problem in the worker's health."""
_MARGIN: Final = 1.1
"""A disk has recovered when it has this much more than the limit: notices must not alternate."""

Measure = Callable[[list[Path]], list[DiskSpace]]


@dataclass(frozen=True, slots=True)
class _Notice:
    level: str
    space: DiskSpace


class DiskWatch:
    """Compares the free space with the limits; `run` is called in a thread, now and then."""

    def __init__(
        self,
        settings: DiskSettings,
        directories: list[Path],
        database: Database,
        health: Health,
        measure: Measure = disk_space.measure,
    ) -> None:
        self.settings = settings
        self._directories = directories
        self._database = database
        self._health = health
        self._measure = measure
        self._host = socket.gethostname()
        self._levels: dict[str, str] | None = None
        """The level that people were notified of, by the disk's directory."""

    def run(self) -> None:
        """Check every disk; record an event for each change of its level."""
        spaces = self._measure(self._directories)
        self._report([_Notice(self._level_of(space), space) for space in spaces])
        if self._levels is None:
            self._levels = self._recorded_levels()
        for space in spaces:
            path = str(space.path)
            before = self._levels.get(path, OK)
            level = self._level_of(space, before)
            if level == before:
                continue
            # An event that cannot be written now is written by the next run.
            self._record(space, level, before)
            self._levels[path] = level

    def _level_of(self, space: DiskSpace, before: str = OK) -> str:
        """Return a disk's level; to leave a level takes a little more room than to enter it."""
        levels = ((CRITICAL, self.settings.critical_mb), (LOW, self.settings.low_mb))
        for level, limit_mb in levels:
            is_inside = before in (CRITICAL, level)
            limit = limit_mb * MEGABYTE * (_MARGIN if is_inside else 1)
            if space.free_bytes < limit:
                return level
        return OK

    def _report(self, notices: list[_Notice]) -> None:
        """Tell the server, for `/readyz`."""
        worst = min(
            (notice for notice in notices if notice.level != OK),
            key=lambda notice: notice.space.free_bytes,
            default=None,
        )
        if worst is None:
            self._health.resolve(WHAT)
            return
        message = describe(worst.space)
        if worst.level != CRITICAL:
            # A problem stays certain once it was: the disk may have left that level.
            self._health.resolve(WHAT)
        if self._health.report(WHAT, message, is_certain=worst.level == CRITICAL):
            log.warning(LOW_EVENT, level=worst.level, message=message)

    def _record(self, space: DiskSpace, level: str, before: str) -> None:
        is_better = level == OK or (before == CRITICAL and level == LOW)
        event = RECOVERED_EVENT if level == OK else LOW_EVENT
        data: dict[str, Json] = {
            "path": str(space.path),
            "host": self._host,
            "free_bytes": space.free_bytes,
            "total_bytes": space.total_bytes,
            "level": level,
        }
        log.info("disk.level_changed", level=level, path=str(space.path))
        if is_better and level == LOW:
            # Less bad is no news; the end of it will be.
            return
        outages.record(self._database, event, data)

    def _recorded_levels(self) -> dict[str, str]:
        levels: dict[str, str] = {}
        for data in outages.latest(self._database, (LOW_EVENT, RECOVERED_EVENT)):
            if data.get("host") == self._host:
                levels[str(data["path"])] = str(data["level"])
        return levels


def describe(space: DiskSpace) -> str:
    """Return how much is left, for people."""
    free, total = space.free_bytes // MEGABYTE, space.total_bytes // MEGABYTE
    return f"{free:,} MB of {total:,} MB are free in {space.path}"
