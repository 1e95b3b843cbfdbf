"""A SQLite database is copied before its schema changes: an earlier version can go back to the copy."""

from pathlib import Path

import pytest

from agent import bootstrap
from agent.config.operation import BackupSettings
from agent.config.settings import Settings
from agent.store import backup
from agent.store.db.database import StoreError
from agent.store.schema import migrate
from tests.upgrade.frozen import thaw_sqlite

EARLIER = "0007"


def settings_of(base: Path, **given: object) -> Settings:
    """Return a configuration whose database has an earlier schema."""
    settings = Settings(base=base, backup=BackupSettings.model_validate(given))
    settings.home.mkdir(mode=0o700)
    thaw_sqlite(EARLIER, settings.home / "agent.db")
    return settings


def test_the_copy_has_the_earlier_schema(tmp_path: Path) -> None:
    """And all its tasks; a second start, with nothing to upgrade, copies nothing."""
    settings = settings_of(tmp_path)
    tasks = backup.verify(settings.home / "agent.db").tasks
    bootstrap.upgrade_database(settings)
    bootstrap.upgrade_database(settings)
    (made,) = backup.list_backups(settings.backup_directory)
    assert made.is_before_upgrade
    assert made.path.name.endswith(f"-before-{migrate.HEAD}.db")
    contents = backup.verify(made.path)
    assert (contents.schema, contents.tasks) == (EARLIER, tasks)
    assert tasks > 0
    assert backup.verify(settings.home / "agent.db").schema == migrate.HEAD


def test_without_a_copy_there_is_no_upgrade(tmp_path: Path) -> None:
    """Unless the configuration says so."""
    settings = settings_of(tmp_path)
    settings.backup_directory.write_text("in the way")
    with pytest.raises(StoreError, match=r"not upgraded.*before_upgrade = false"):
        bootstrap.upgrade_database(settings)
    assert backup.verify(settings.home / "agent.db").schema == EARLIER
    bootstrap.upgrade_database(
        settings.model_copy(update={"backup": BackupSettings(before_upgrade=False)})
    )
    assert backup.verify(settings.home / "agent.db").schema == migrate.HEAD
