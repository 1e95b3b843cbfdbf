"""Writes backups of a SQLite database while the daemon runs, checks them and removes old ones.

When a backup is due depends on the newest one in the directory, not on the daemon's start: a machine
that is on for an hour a day is backed up too. Copying does not stop tasks; SQLite's log grows
meanwhile. A failure is an event that the channels deliver, and so is the success after it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from agent.config.operation import BackupSettings
from agent.core.clock import SECOND
from agent.core.files import disk_space
from agent.core.files.disk_space import MEGABYTE
from agent.steps.types.outcome import Json
from agent.store import backup, free_space
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import outages

log = structlog.get_logger(__name__)

FAILED: Final = "backup.failed"
RECOVERED: Final = "backup.recovered"
FIRST_PAUSE_SECONDS: Final = 60.0
"""Between the start of the daemon and the first backup, at least: a start has enough to do."""
RETRY_SECONDS: Final = 3600.0
"""After a failed backup."""


class BackupJob:
    """Writes a backup when one is due; each run sets the time of the next."""

    def __init__(
        self,
        settings: BackupSettings,
        directory: Path,
        reserved_mb: int,
        database: Database,
        set_time: Callable[[int], None],
    ) -> None:
        """`reserved_mb` is the disk space that a backup must leave free."""
        self._interval_us = int(settings.every_hours * 3600 * SECOND)
        self._keep = settings.keep
        self._directory = directory
        self._reserved_bytes = reserved_mb * MEGABYTE
        self._database = database
        self._set_time = set_time
        self._has_failed: bool | None = None
        """Whether the last notice on record is about a failure."""

    def start(self) -> None:
        """Set the time of the first run."""
        now = self._database.clock.now()
        self._set_time(max(self._next_due(now), now + int(FIRST_PAUSE_SECONDS * SECOND)))

    def handle_jump(self, _seconds: float) -> None:
        """Set the time again after a jump of the clock."""
        self.start()

    def run(self) -> None:
        """Write a backup, check it, and remove the oldest ones; called in a thread."""
        now = self._database.clock.now()
        pause_us = min(int(RETRY_SECONDS * SECOND), self._interval_us)
        try:
            self._check_room()
            contents = backup.write_verified(self._database, self._directory, now)
            removed = backup.rotate(self._directory, self._keep)
            log.info(
                "backup.written",
                file=str(contents.path),
                bytes=contents.bytes,
                tasks=contents.tasks,
                removed=len(removed),
            )
            pause_us = self._interval_us
        except (StoreError, OSError) as error:
            log.warning(FAILED, error=str(error))
            self._notify(FAILED, {"directory": str(self._directory), "error": str(error)})
        else:
            self._notify(RECOVERED, {"file": str(contents.path)})
        finally:
            self._set_time(self._database.clock.now() + pause_us)

    def _next_due(self, now: int) -> int:
        periodic = [
            copy for copy in backup.list_backups(self._directory) if not copy.is_before_upgrade
        ]
        if not periodic:
            return now
        # A backup from the future was made under a clock that was wrong.
        return min(periodic[0].made_at, now) + self._interval_us

    def _check_room(self) -> None:
        usage = free_space.measure(self._database)
        needed = (0 if usage is None else usage.file_bytes) + self._reserved_bytes
        for space in disk_space.measure([self._directory]):
            if space.free_bytes < needed:
                free = space.free_bytes // MEGABYTE
                raise StoreError(
                    Fault.FULL,
                    f"a backup needs {needed // MEGABYTE:,} MB in {self._directory}, and {free:,} MB"
                    " are free",
                )

    def _notify(self, event: str, data: dict[str, Json]) -> None:
        """Record a notice when backups begin to fail, and when they work again."""
        if self._has_failed is None:
            recorded = outages.latest(self._database, (FAILED, RECOVERED))
            self._has_failed = bool(recorded) and "error" in recorded[-1]
        if self._has_failed != (event == FAILED):
            outages.record(self._database, event, data)
            self._has_failed = event == FAILED
