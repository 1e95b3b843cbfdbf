"""Puts a backup in the place of a SQLite database.

A restored database has forgotten every effect that happened after the backup: a step that had sent a
mail by then is pending again. So nothing in it may go on by itself. Every open task and every active
trigger is paused in the copy, before the copy gets the database's name; a person resumes each.

The replaced file is kept beside the new one. The caller holds the lock of the daemon, so no worker
uses the database; a command that has it open notices the replacement with its next transaction.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.core.clock import Clock, to_iso
from agent.core.files.file_sync import sync
from agent.core.state_machine import TriggerStatus
from agent.store import backup
from agent.store.backup import BackupContents
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.sqlite import LOG_FILES, kept_name
from agent.store.db.write_lock import WriteLockTimeoutError
from agent.store.engine import outages, trigger_rows
from agent.store.read import held_tasks
from agent.store.read.held_tasks import HeldTask
from agent.store.schema import migrate
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.operator.restore_hold import hold_task
from agent.tasks.state.pauses import PauseKind
from agent.triggers.commands.trigger_commands import TriggerCommands

RESTORED: Final = "database.restored"
"""The event of a restore."""
HOLD_REASON: Final = "the database was restored from a backup: what happened later is not known"
_LOCK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Held:
    """Held rows that a person must resume: tasks with their open steps, and the ids of triggers."""

    tasks: list[HeldTask] = field(default_factory=list)
    triggers: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "tasks": [
                {
                    "id": task.id,
                    "workflow": task.workflow,
                    "steps": [{"name": name, "kind": kind} for name, kind in task.steps],
                }
                for task in self.tasks
            ],
            "triggers": self.triggers,
        }


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    contents: BackupContents
    replaced: Path | None
    """Where the database is that was there before."""
    held: Held


def restore(database: Database, source: Path) -> Restored:
    """Put a copy of a backup in the place of a SQLite database, everything in it held."""
    path = database.path
    assert path is not None
    contents = backup.verify(source, is_thorough=True)
    if not contents.schema == migrate.HEAD and not migrate.is_older(contents.schema):
        raise StoreError(
            Fault.DEFECT,
            f"{source} has schema {contents.schema}, newer than this version's {migrate.HEAD}:"
            " restore it with the version of agent that made it",
        )
    prepared = path.with_name(path.name + ".restoring")
    _remove(prepared)
    try:
        held = _prepare(database, source, prepared, contents)
        replaced = _replace(database, path, prepared)
    finally:
        _remove(prepared)
    return Restored(contents, replaced, held)


def hold_all(database: Database, clock: Clock) -> Held:
    """Pause every open task and every active trigger; return all that is held.

    No worker may be running: it would start steps meanwhile.
    """
    commands = TriggerCommands(database, clock)
    with database.connect("reader") as connection:
        triggers = trigger_rows.all_rows(connection)
        task_ids = held_tasks.open_task_ids(connection)
    # Triggers first: the end of a task may start a queued run.
    for row in triggers:
        has_end = row.status == TriggerStatus.PAUSED and row.paused_until is not None
        if row.status == TriggerStatus.ACTIVE or has_end:
            commands.pause(row.id, reason=HOLD_REASON, kind=trigger_rows.RESTORE)
    operator = Operator(database, clock)
    for task_id in task_ids:
        hold_task(operator, task_id, HOLD_REASON)
    return held(database)


def held(database: Database) -> Held:
    """Return the tasks and triggers still held since a restore."""
    with database.connect("reader") as connection:
        tasks = held_tasks.held_tasks(connection, PauseKind.RESTORE)
        triggers = [
            row.id
            for row in trigger_rows.all_rows(connection)
            if row.is_paused_for(trigger_rows.RESTORE)
        ]
    return Held(tasks, triggers)


def release_all(database: Database, clock: Clock) -> Held:
    """Resume all that a restore holds, and return it. What triggers missed meanwhile is skipped."""
    released = held(database)
    operator, commands = Operator(database, clock), TriggerCommands(database, clock)
    for task in released.tasks:
        # With a parent, its children were resumed: then there is nothing to do.
        with suppress(NotFoundError, RefusedError):
            operator.resume(task.id)
    for trigger_id in released.triggers:
        with suppress(NotFoundError, RefusedError):
            commands.resume(trigger_id)
    return released


def _prepare(database: Database, source: Path, prepared: Path, contents: BackupContents) -> Held:
    """Make the file that takes the database's place: copied, upgraded, and held."""
    backup.write(Database(f"sqlite:///{source.absolute()}", has_write_lock=False), prepared)
    copy = Database(f"sqlite:///{prepared}", has_write_lock=False, clock=database.clock)
    copy.blob_stores = database.blob_stores
    copy.make_blob_stores = database.make_blob_stores
    migrate.upgrade(copy)
    if foreign := migrate.foreign_objects(copy):
        raise StoreError(
            Fault.DATA,
            f"{source} has a schema that this program did not make, which could act by itself:"
            f" {', '.join(foreign[:10])}; nothing was restored",
        )
    on_hold = hold_all(copy, copy.clock)
    details = {
        "file": str(source),
        "backup_at": to_iso(contents.made_at),
        "tasks_held": len(on_hold.tasks),
        "triggers_held": len(on_hold.triggers),
    }
    outages.record(copy, RESTORED, details)
    # The last connection is closed, so SQLite has emptied the log into the file.
    sync(prepared)
    return on_hold


def _replace(database: Database, path: Path, prepared: Path) -> Path | None:
    """Keep the old file under another name, and give its name to the new one."""
    with _write_locked(database):
        has_old = path.exists()
        # A file that was deleted has left its log.
        kept = _set_aside(database, path)
        prepared.replace(path)
        sync(path.parent)
    return kept if has_old else None


def _set_aside(database: Database, path: Path) -> Path:
    """Give the old file and its log second names: the new file must not be read with that log."""
    with suppress(StoreError), database.connect("reader") as connection:
        # A damaged file cannot do this; then its log is kept beside it.
        connection.query("PRAGMA wal_checkpoint(TRUNCATE)")
    kept = kept_name(path, database.clock.now())
    for suffix in ("", *LOG_FILES):
        file = path.with_name(path.name + suffix)
        if file.exists():
            _link(file, kept.with_name(kept.name + suffix))
    sync(path.parent)
    for suffix in LOG_FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return kept


def _link(file: Path, name: Path) -> None:
    name.unlink(missing_ok=True)
    try:
        name.hardlink_to(file)
    except OSError:
        # This file system has no hard links.
        shutil.copy2(file, name)
        sync(name)


@contextmanager
def _write_locked(database: Database) -> Iterator[None]:
    """Keep commands of other processes from writing meanwhile."""
    if database.write_lock is None:
        yield
        return
    handle = database.write_lock.open()
    try:
        handle.acquire(_LOCK_SECONDS)
        yield
        handle.count_commit()
    except WriteLockTimeoutError:
        raise StoreError(
            Fault.BUSY, f"another process keeps {database.path} locked: nothing was restored"
        ) from None
    finally:
        handle.close()


def _remove(prepared: Path) -> None:
    for suffix in ("", *LOG_FILES):
        with suppress(FileNotFoundError):
            prepared.with_name(prepared.name + suffix).unlink()
