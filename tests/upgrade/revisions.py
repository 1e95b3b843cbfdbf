"""Empty databases of earlier revisions of the schema."""

import re
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from agent.store.db.database import Database


def config() -> Config:
    """Return Alembic's configuration for our migrations."""
    found = Config()
    found.set_main_option("script_location", "agent.store.schema:migrations")
    found.set_main_option("path_separator", "os")
    return found


def set_revision(database: Database, revision: str, *, oldest: str | None = None) -> None:
    """Mark a database as one of another schema; `oldest` is the oldest whose workers may stay."""
    with database.connect("writer") as connection, connection.transaction():
        connection.execute("UPDATE schema_revision SET revision = :it", it=revision)
        connection.execute("UPDATE alembic_version SET version_num = :it", it=oldest or revision)


def all_revisions() -> list[str]:
    """Return every revision, the first one first."""
    return sorted(
        script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()
    )


def migrate_to(revision: str, url: str) -> None:
    """Bring an empty database to a revision."""
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).touch()
    engine = create_engine(
        re.sub("^postgresql://", "postgresql+psycopg://", url), poolclass=NullPool
    )
    settings = config()
    with engine.connect() as connection, connection.begin():
        settings.attributes["connection"] = connection
        command.upgrade(settings, revision)
    engine.dispose()
