"""The checks of `agent doctor` on backups, and on tasks that a restore still holds."""

from collections.abc import Iterator

from agent import restore
from agent.config.settings import Settings
from agent.core.clock import SECOND
from agent.store import backup
from agent.store.db.database import Database
from agent.workflows.durations import format_duration

_LATE: float = 2.0
"""A backup that is older than two intervals is late: the agent did not run, or it failed."""


def backup_checks(settings: Settings, database: Database) -> Iterator[tuple[str, str, str]]:
    """Yield (what, state, message) of each finding."""
    if database.is_sqlite:
        yield _newest(settings, database)
    else:
        yield "backup", "ok", "PostgreSQL is not backed up by the agent: run pg_dump on a schedule"
    held = restore.held(database)
    if held.tasks or held.triggers:
        count = f"{len(held.tasks)} tasks and {len(held.triggers)} triggers"
        yield (
            "restore",
            "warning",
            f"{count} are paused since a restore, since they may repeat what was done after the"
            " backup: `agent db check` lists them",
        )


def _newest(settings: Settings, database: Database) -> tuple[str, str, str]:
    directory, hours = settings.backup_directory, settings.backup.every_hours
    if not hours:
        return "backup", "warning", "backups are off: set every_hours in [backup]"
    backups = backup.list_backups(directory)
    if not backups:
        return "backup", "ok", f"none in {directory} yet: a running agent writes the first one soon"
    age_seconds = max(0, database.clock.now() - backups[0].made_at) // SECOND
    text = f"{len(backups)} in {directory}, the newest is {format_duration(age_seconds)} old"
    is_late = age_seconds > _LATE * hours * 3600
    return "backup", "warning" if is_late else "ok", text
