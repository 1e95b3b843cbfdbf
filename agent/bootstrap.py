"""The composition root: from settings to a database, a worker and the workflows it knows.

Nothing below builds itself from the configuration; everything is put together here.
"""

import gc
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config.settings import Settings
from agent.core.process_lock import Holder, Lock
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault

if TYPE_CHECKING:
    from agent.steps.attempt.services import Limits
    from agent.store.artifacts.blobs import BlobStores
    from agent.tasks.worker.worker import Worker

PRIVATE = 0o700


def open_database(settings: Settings, *, create: bool = False) -> Database:
    """Return the database, checked to be of this program's schema; `create` makes or upgrades it."""
    from agent.store.schema import migrate

    database = _database_of(settings)
    if create:
        upgrade_database(settings, database)
    else:
        if database.path is not None and not database.path.exists():
            raise StoreError(
                Fault.LOST,
                f"there is no database at {database.path}:"
                " `agent init` makes one, and so does `agent up`",
            )
        migrate.check(database)
    database.set_clock()
    return database


def upgrade_database(
    settings: Settings,
    database: Database | None = None,
    *,
    must_fence: bool = False,
    on_wait: Callable[[str], None] | None = None,
) -> None:
    """Make the database or bring it to this program's schema."""
    from agent import upgrade

    database = database or _database_of(settings)
    if database.path is not None:
        _make_directory(database.path.parent)
    lock = lock_of(database)
    upgrade.upgrade(
        database,
        lease_seconds=settings.engine.lease_seconds,
        holder=None if lock is None else lock.holder(),
        must_fence=must_fence,
        on_wait=on_wait,
    )


def _database_of(settings: Settings) -> Database:
    database = Database(
        settings.database_url, timeout_seconds=min(15.0, settings.engine.lease_seconds / 4)
    )
    database.directory = database.directory or settings.home
    database.vaults = vaults_of(settings)
    _check_name(database)
    return database


def _check_name(database: Database) -> None:
    """Refuse a hard link to a database that is in use under another name."""
    lock = lock_of(database)
    if lock is not None and lock.is_held_under_another_name():
        raise StoreError(
            Fault.READONLY,
            f"{database.path} is another name (a hard link) of a database that an agent is using:"
            " use the name that the agent was started with",
        )


def vaults_of(settings: Settings) -> "BlobStores":
    """Return the places for large values; secrets of theirs are read when they are used."""
    from urllib.parse import unquote, urlsplit

    from agent.core.redaction import everywhere
    from agent.steps.attempt.secrets import Secrets, references
    from agent.steps.types.errors import DefiniteFailure
    from agent.store.artifacts.blobs import BlobStores

    secrets = Secrets()

    def options() -> dict[str, Any]:
        given = settings.artifacts.storage_options()
        try:
            found: dict[str, Any] = secrets.resolve(given, frozenset(references(given)))
        except DefiniteFailure as error:
            raise StoreError(Fault.UNREACHABLE, error.error.message) from None
        return found

    if password := urlsplit(settings.artifacts_url).password:
        # It stands in every address, and so in every message of the driver.
        everywhere.hide(unquote(password), "the password in artifacts.url")
    seconds = settings.artifacts.timeout_seconds
    return BlobStores(settings.artifacts_url, options, seconds, secrets.redact)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(Fault.LOST, f"the directory {path} cannot be made: {reason}") from None


def has_database(settings: Settings) -> bool:
    """Whether there is a database to look into; a PostgreSQL server is asked by connecting."""
    url = settings.database_url
    return not url.startswith("sqlite:") or Path(url.removeprefix("sqlite:///")).exists()


def lock_of(database: Database) -> Lock | None:
    """Return the lock that says who runs a SQLite database's tasks; PostgreSQL needs none."""
    return None if database.path is None else Lock(database.path)


def holder_of(database: Database) -> Holder | None:
    """Return who runs this database's tasks at the moment, as far as can be told from here."""
    lock = lock_of(database)
    if lock is not None:
        return lock.holder()
    from agent.steps.process.processes import is_running
    from agent.store.engine import workers

    with database.connect("reader") as connection:
        living = workers.living(connection)
    for _, _, host, process_id, started in living:
        # A worker of this machine that was killed is still on record as living for one lease.
        if host != socket.gethostname() or is_running(process_id, started):
            return Holder(process_id, "daemon")
    return None


def collect_garbage_seldom() -> None:
    """Let the garbage collector pass over what a long-lived process has loaded, and look seldom.

    A turn makes thousands of objects that go by themselves when it ends. The default looks through
    them at every 700th, which takes its time and finds next to nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def hide_secrets(settings: Settings) -> None:
    """Keep what the configuration names by reference out of all that this process writes."""
    from agent.steps.attempt.secrets import secret_watcher

    secret_watcher.add(settings.model_dump(mode="json"))


def build_worker(settings: Settings, database: Database) -> "Worker":
    """Return a worker for this database, not yet running."""
    from agent.models.registry import registry_of
    from agent.tasks.worker.worker import Worker

    hide_secrets(settings)
    models = registry_of(settings.models, settings.llm, settings.budget)
    return Worker(
        database,
        settings.engine,
        database.clock,
        limits_of(settings),
        models=models,
        mcp=settings.mcp_servers,
    )


def limits_of(settings: Settings) -> "Limits":
    """Return the bounds on steps that the configuration sets."""
    from agent.steps.attempt.services import Limits

    return Limits(
        output_bytes=settings.steps.output_bytes,
        inline_bytes=settings.engine.inline_output_bytes,
        artifacts_url=settings.artifacts_url,
        log_bytes=settings.steps.log_bytes,
        response_bytes=settings.http.response_bytes,
        max_redirects=settings.http.max_redirects,
        allow_private=tuple(settings.http.allow_private),
        kill_grace_seconds=settings.shell.kill_grace_seconds,
        inherit=tuple(settings.shell.inherit),
        send_window_seconds=settings.steps.send_window_seconds,
        call_seconds=settings.steps.call_seconds,
        attempt_seconds=settings.steps.attempt_seconds,
        items_per_group=settings.engine.items_per_group,
    )
