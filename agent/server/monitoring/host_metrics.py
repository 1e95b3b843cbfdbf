"""Metrics of the machine: disk space, the size of the database, backups."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent.config.settings import Settings
from agent.core.clock import SECOND
from agent.core.files import disk_space
from agent.core.files.disk_space import DiskSpace
from agent.server.monitoring.exposition import family, single
from agent.store import backup, free_space
from agent.store.db.database import Database

_NO_BACKUP: Final = 0


@dataclass(frozen=True, slots=True)
class HostGauges:
    """Gauges read from the machine at one scrape."""

    disks: list[DiskSpace]
    database_bytes: int | None
    """None on PostgreSQL, which may be another machine's."""
    newest_backup_at: int | None
    """0 without a backup; None where the agent makes none."""


def read_host(settings: Settings, database: Database) -> HostGauges:
    """Read the gauges; this looks at files, so call it in a thread."""
    usage = free_space.measure(database)
    newest = None
    if database.is_sqlite and settings.backup.every_hours > 0:
        backups = backup.list_backups(settings.backup_directory)
        newest = backups[0].made_at if backups else _NO_BACKUP
    return HostGauges(
        disk_space.measure(settings.data_directories),
        None if usage is None else usage.file_bytes,
        newest,
    )


def lines(host: HostGauges) -> Iterable[str]:
    """Return the metrics as lines."""
    yield from family(
        "agent_disk_free_bytes",
        "gauge",
        "Free space on the disks of the agent's files.",
        "path",
        {str(disk.path): disk.free_bytes for disk in host.disks},
    )
    yield from family(
        "agent_disk_size_bytes",
        "gauge",
        "Size of the disks of the agent's files.",
        "path",
        {str(disk.path): disk.total_bytes for disk in host.disks},
    )
    if host.database_bytes is not None:
        yield from single(
            "agent_database_size_bytes",
            "gauge",
            "Size of the SQLite file and its log.",
            host.database_bytes,
        )
    if host.newest_backup_at is not None:
        yield from single(
            "agent_last_backup_timestamp_seconds",
            "gauge",
            "When the newest backup was made; 0 without one.",
            host.newest_backup_at // SECOND,
        )
