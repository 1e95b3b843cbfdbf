"""The composition root: builds the database and the worker from the settings.

No package below reads the configuration to build itself. The CLI, the daemon and tests call this
module; it may import everything below the server.
"""

import gc
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config.settings import Settings
from agent.core import audit
from agent.core.process_lock import Lock, LockHolder
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault

if TYPE_CHECKING:
    from agent.steps.attempt.services import Limits
    from agent.store.artifacts.blobs import BlobStores
    from agent.tasks.worker.worker import Worker

PRIVATE = 0o700


def open_database(settings: Settings, *, create: bool = False) -> Database:
    """Return the database, its schema checked; `create` creates or upgrades it."""
    from agent.store.schema import migrate

    database = _database_of(settings)
    if create:
        upgrade_database(settings, database)
    else:
        if database.path is not None and not database.path.exists():
            raise StoreError(
                Fault.LOST,
                f"there is no database at {database.path}: `agent init` or `agent up` creates one",
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
    """Create the database, or upgrade it to this program's schema."""
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
    database.blob_stores = blob_stores_of(settings)
    _check_name(database)
    return database


def _check_name(database: Database) -> None:
    """Refuse a hard link to a database that an agent uses under another name."""
    lock = lock_of(database)
    if lock is not None and lock.is_held_under_another_name():
        raise StoreError(
            Fault.READONLY,
            f"{database.path} is another name (a hard link) of a database that an agent is using:"
            " use the name that the agent was started with",
        )


def blob_stores_of(settings: Settings) -> "BlobStores":
    """Return the stores of large values; their secrets are read when they are used."""
    from urllib.parse import unquote, urlsplit

    from agent.core.redaction import everywhere
    from agent.steps.attempt.secrets import Secrets, references
    from agent.steps.types.errors import DefiniteFailure
    from agent.store.artifacts.blobs import BlobStores

    secrets = Secrets()

    def options() -> dict[str, Any]:
        configured = settings.artifacts.storage_options()
        try:
            resolved: dict[str, Any] = secrets.resolve(
                configured, frozenset(references(configured))
            )
        except DefiniteFailure as error:
            raise StoreError(Fault.UNREACHABLE, error.error.message) from None
        return resolved

    if password := urlsplit(settings.artifacts_url).password:
        # The password is part of every address, and so of every message of the driver.
        everywhere.hide(unquote(password), "the password in artifacts.url")
    seconds = settings.artifacts.timeout_seconds
    return BlobStores(settings.artifacts_url, options, seconds, secrets.redact)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(Fault.LOST, f"the directory {path} cannot be created: {reason}") from None


def has_database(settings: Settings) -> bool:
    """Whether a SQLite file exists; True for PostgreSQL, where connecting decides."""
    url = settings.database_url
    return not url.startswith("sqlite:") or Path(url.removeprefix("sqlite:///")).exists()


def lock_of(database: Database) -> Lock | None:
    """Return the lock of the process that runs a SQLite database's tasks; None for PostgreSQL."""
    return None if database.path is None else Lock(database.path)


def holder_of(database: Database) -> LockHolder | None:
    """Return the process that runs this database's tasks, as far as this machine can tell."""
    lock = lock_of(database)
    if lock is not None:
        return lock.holder()
    from agent.steps.process.processes import is_running
    from agent.store.engine import workers

    with database.connect("reader") as connection:
        live_workers = workers.live_workers(connection)
    for _, _, host, process_id, started in live_workers:
        # A killed worker of this machine counts as alive in the database for one lease.
        if host != socket.gethostname() or is_running(process_id, started):
            return LockHolder(process_id, "daemon")
    return None


def collect_garbage_seldom() -> None:
    """Exclude loaded modules from garbage collection, and collect less often.

    A commit creates thousands of objects that reference counting frees. The default collects after
    every 700 of them, which costs time and finds next to nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def hide_secrets(settings: Settings) -> None:
    """Redact the secrets that the configuration references in everything this process writes."""
    from agent.steps.attempt.secrets import secret_watcher

    secret_watcher.add(settings.model_dump(mode="json"))


def build_worker(settings: Settings, database: Database) -> "Worker":
    """Return a worker for this database, not yet running."""
    from agent.channels.messages.messenger import ChannelMessenger
    from agent.models.registry import registry_of
    from agent.tasks.worker.worker import Worker
    from agent.tool_services.engine_control import EngineControl
    from agent.tool_services.memories import Memories
    from agent.tool_services.tool_memory import ToolMemory

    hide_secrets(settings)
    models = registry_of(settings.models, settings.llm, settings.budget)
    clock = database.clock
    worker = Worker(
        database,
        settings.engine,
        clock,
        limits_of(settings),
        models=models,
        mcp=settings.mcp_servers,
    )
    worker.services.memory = ToolMemory(Memories(database, clock))
    worker.services.engine = EngineControl(database, clock, settings.engine.steps_per_task)
    worker.services.messenger = ChannelMessenger(settings, database)
    return worker


def limits_of(settings: Settings) -> "Limits":
    """Return the limits on steps that the configuration sets."""
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
        attach_from=settings.attach_from,
        inherit=tuple(settings.shell.inherit),
        send_window_seconds=settings.steps.send_window_seconds,
        call_seconds=settings.steps.call_seconds,
        attempt_seconds=settings.steps.attempt_seconds,
        items_per_group=settings.engine.items_per_group,
        own_urls=own_urls(settings),
        private_files=private_files(settings),
    )


def own_urls(settings: Settings) -> tuple[str, ...]:
    """Return the addresses of this agent's API, by which people answer approvals."""
    port = settings.server.port
    hosts = {settings.server.host, "localhost", "127.0.0.1", "::1"}
    urls = {f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host in hosts}
    if settings.channels.webhook.link_base_url:
        urls.add(settings.channels.webhook.link_base_url)
    return tuple(sorted(urls))


def private_files(settings: Settings) -> tuple[str, ...]:
    """Return the files of this agent that hold its tokens, its tasks, its audit log and its settings."""
    from agent.config.file_exposure import secret_files

    home = settings.home.absolute()
    paths = [*secret_files(settings), home / audit.NAME, home / f"{audit.NAME}.1"]
    if settings.file is not None:
        paths.append(settings.file.absolute())
    return tuple(map(str, paths))
