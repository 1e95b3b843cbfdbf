"""The composition root: builds the database and the worker from the settings.

No package below reads the configuration to build itself. The CLI, the daemon and tests call this
module; it may import everything below the server.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import __version__
from agent.config.locations import INSTANCE_FILE
from agent.core import local_zone
from agent.core.files.process_lock import Lock, LockHolder
from agent.core.logs import audit
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.steps.attempt.services import Limits
    from agent.store.artifacts.blobs import BlobStores
    from agent.tasks.worker.worker import Worker
    from agent.telemetry.spans import SpanSink

PRIVATE_MODE = 0o700
"""Of directories that only the user of the agent may read."""
MISSING_OTEL = (
    "traces need a library: python -m pip install opentelemetry-exporter-otlp-proto-http; "
)


class MissingDatabaseError(StoreError):
    """There is no SQLite file where the configuration has it."""


def open_database(
    settings: "Settings",
    *,
    create: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> Database:
    """Return the database, its schema checked; `create` creates or upgrades it, with notes on that."""
    from agent.store.schema import migrate

    database = configured_database(settings)
    if create:
        upgrade_database(settings, database, on_note=on_note)
    else:
        if database.path is not None and not database.path.exists():
            raise MissingDatabaseError(
                Fault.LOST, f"there is no database at {database.path}: `agent init` creates one"
            )
        migrate.check(database)
    database.set_clock()
    return database


def upgrade_database(
    settings: "Settings",
    database: Database | None = None,
    *,
    must_fence: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Create the database, or upgrade it to this program's schema."""
    from agent import upgrade

    database = database or configured_database(settings)
    if database.path is not None:
        _make_directory(database.path.parent)
    lock = lock_of(database)
    upgrade.upgrade(
        database,
        lease_seconds=settings.engine.lease_seconds,
        holder=None if lock is None else lock.holder(),
        must_fence=must_fence,
        on_note=on_note,
        backups=lambda: settings.backup_directory if settings.backup.before_upgrade else None,
    )


def configured_database(settings: "Settings") -> Database:
    """Return the configured database; it need not exist, and its schema is not checked."""
    database = Database(
        settings.database_url, timeout_seconds=min(15.0, settings.engine.lease_seconds / 4)
    )
    database.directory = database.directory or settings.home
    register_secret_sources(settings)
    database.make_blob_stores = lambda: blob_stores_of(settings)
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


def blob_stores_of(settings: "Settings") -> "BlobStores":
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
        # The messages of the driver contain the address, and with it the password.
        everywhere.hide(unquote(password), "the password in artifacts.url")
    seconds = settings.artifacts.timeout_seconds
    return BlobStores(
        settings.artifacts_url, options, seconds, secrets.redact, jobs_url=settings.jobs_url
    )


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(Fault.LOST, f"the directory {path} cannot be created: {reason}") from None


def has_database(settings: "Settings") -> bool:
    """Whether a SQLite file exists; True for PostgreSQL, where connecting decides."""
    url = settings.database_url
    return not url.startswith("sqlite:") or Path(url.removeprefix("sqlite:///")).exists()


def describe_new_database(settings: "Settings") -> str | None:
    """Return a line about the SQLite file that is going to be created; None where there is one."""
    if has_database(settings):
        return None
    path = settings.database_url.removeprefix("sqlite:///")
    if settings.file is None:
        return (
            f"creating the database {path}: there is no configuration here or above, and `agent init`"
            " writes one"
        )
    return f"creating the database {path}, as {settings.file} says"


def lock_of(database: Database) -> Lock | None:
    """Return the lock of the process that runs a SQLite database's tasks; None for PostgreSQL."""
    return None if database.path is None else Lock(database.path)


def holder_of(database: Database) -> LockHolder | None:
    """Return the process that runs this database's tasks, as far as this machine can tell."""
    lock = lock_of(database)
    if lock is not None:
        return lock.holder()
    import socket

    from agent.steps.process.processes import is_running
    from agent.store.engine import workers

    with database.connect("reader") as connection:
        live_workers = workers.live_workers(connection)
    for _, _, host, process_id, started in live_workers:
        # The database takes a killed worker for alive until its lease ends; on this machine its process decides.
        if host != socket.gethostname() or is_running(process_id, started):
            return LockHolder(process_id, "daemon")
    return None


def collect_garbage_seldom() -> None:
    """Exclude loaded modules from garbage collection, and collect less often.

    A commit creates thousands of objects that reference counting frees. The default collects after
    every 700 of them, which costs time and finds next to nothing.
    """
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def register_secret_sources(settings: "Settings") -> None:
    """Register where this process reads secrets from; nothing is loaded before the first secret."""
    from agent.steps.attempt.secret_sources import sources

    sources.set_up_with(lambda: _set_up_secret_sources(settings))


def _set_up_secret_sources(settings: "Settings") -> None:
    from agent.config.file_exposure import trust_of
    from agent.core.files.environment_file import EnvironmentFile
    from agent.steps.attempt.secret_sources import sources

    path = settings.environment_file.absolute()
    if sources.environment_file is None or sources.environment_file.path != path:
        sources.environment_file = EnvironmentFile(path, lambda: trust_of(settings))
    slow, configured = sources.slow, settings.secrets
    slow.timeout_seconds = configured.timeout_seconds
    slow.cache_seconds = configured.cache_seconds
    slow.readers = {"keyring": _read_keyring, "exec": lambda name: _read_command(settings, name)}


def _read_keyring(name: str) -> str:
    from agent.steps.attempt.keyring_entries import read_entry

    return read_entry(name)


def _read_command(settings: "Settings", name: str) -> str:
    from agent.steps.process.secret_command import SecretCommands

    configured = settings.secrets
    inherit = (*settings.shell.inherit, *configured.inherit)
    base = str(settings.base.absolute())
    return SecretCommands(configured.exec, configured.timeout_seconds, inherit, base).read(name)


def redact_configured_secrets(settings: "Settings") -> None:
    """Redact the secrets that the configuration references in everything this process writes."""
    from agent.steps.attempt.secrets import secret_watcher

    register_secret_sources(settings)
    secret_watcher.add(settings.model_dump(mode="json"))


def build_worker(settings: "Settings", database: Database) -> "Worker":
    """Return a worker for this database, not yet running."""
    from agent.channels.messages.messenger import ChannelMessenger
    from agent.models.registry import registry_of
    from agent.tasks.worker.worker import Worker
    from agent.tool_services.engine_control import EngineControl
    from agent.tool_services.memories import Memories
    from agent.tool_services.tool_memory import ToolMemory

    redact_configured_secrets(settings)
    local_zone.configure(settings.agent.timezone)
    models = registry_of(settings.models, settings.llm, settings.budget)
    clock = database.clock
    worker = Worker(
        database,
        settings.engine,
        clock,
        limits_of(settings),
        models=models,
        mcp=settings.mcp_servers,
        mail=settings.mail,
    )
    worker.services.spans = open_telemetry(settings)
    _set_executors(worker, settings)
    worker.services.messenger = ChannelMessenger(settings, database)
    worker.services.memory = ToolMemory(Memories(database, clock))
    worker.services.engine = EngineControl(database, clock, settings.engine.steps_per_task)
    return worker


def reconfigure_worker(worker: "Worker", old: "Settings", settings: "Settings") -> None:
    """Let a running worker use changed settings; attempts in flight keep what they have read."""
    from agent.channels.messages.messenger import ChannelMessenger
    from agent.models.registry import registry_of

    redact_configured_secrets(settings)
    if old.secrets != settings.secrets:
        from agent.steps.attempt.secret_sources import sources

        sources.slow.clear()
    services = worker.services
    services.models.replace_with(registry_of(settings.models, settings.llm, settings.budget))
    services.limits = limits_of(settings)
    services.mcp = settings.mcp_servers
    services.mail = settings.mail
    _set_executors(worker, settings)
    if (old.channels, old.notify) != (settings.channels, settings.notify):
        if services.messenger is not None:
            # Steps may still send through the old one: it is closed when the worker ends.
            services.resources[f"messenger {id(services.messenger)}"] = services.messenger
        services.messenger = ChannelMessenger(settings, worker.database)
    worker.apply(settings.engine)


def _set_executors(worker: "Worker", settings: "Settings") -> None:
    from agent.steps.executors.registry import Executors

    services = worker.services
    services.is_default_executor_remote = settings.steps.executor != "local"
    services.executors = Executors(
        settings.steps.executor,
        settings.executors,
        settings.jobs_url,
        lambda: blob_stores_of(settings),
        f"{run_job.__module__}:{run_job.__name__}",
    )


def run_job(spec_address: str, settings: "Settings | None" = None) -> int:
    """Run one job by the address of its specification; return the exit code.

    A launcher on another machine calls this, where the configuration of that machine counts: only the
    options of the store and the sources of secrets are read from it.
    """
    import asyncio

    from agent.config.loader import load
    from agent.steps.executors import job_objects, job_runner

    settings = settings or load()
    register_secret_sources(settings)
    stores = blob_stores_of(settings)
    objects = job_objects.of_spec(spec_address, lambda: stores.options(spec_address))
    return asyncio.run(job_runner.run(objects))


def open_telemetry(settings: "Settings") -> "SpanSink | None":
    """Return where spans are sent; None without a receiver, or without the library.

    Tasks run without traces too, so a missing library is only logged; `agent doctor` reports it.
    """
    if not settings.telemetry.endpoint:
        return None
    try:
        from agent.telemetry.otlp import OtlpSink
    except ImportError as error:
        import structlog

        structlog.get_logger(__name__).warning(
            "traces.unavailable", error=MISSING_OTEL + str(error)
        )
        return None
    import socket

    return OtlpSink(settings.telemetry, __version__, {"host.name": socket.gethostname()})


def limits_of(settings: "Settings") -> "Limits":
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
        inherit=tuple(settings.shell.inherit),
        send_window_seconds=settings.steps.send_window_seconds,
        call_seconds=settings.steps.call_seconds,
        attempt_seconds=settings.steps.attempt_seconds,
        items_per_group=settings.engine.items_per_group,
        attach_from=settings.attach_from,
        own_urls=own_urls(settings),
        directory=str(settings.base.absolute()),
        private_files=private_files(settings),
    )


def own_urls(settings: "Settings") -> tuple[str, ...]:
    """Return the addresses of this agent's API, by which people answer approvals."""
    port = settings.server.port
    hosts = {settings.server.host, "localhost", "127.0.0.1", "::1"}
    urls = {f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host in hosts}
    urls |= {settings.channels.webhook.link_base_url, settings.server.public_url} - {""}
    return tuple(sorted(urls))


def private_files(settings: "Settings") -> tuple[str, ...]:
    """Return what this agent writes itself, files and directories, and its configuration.

    With each, what is named after it is private (`PrivateFiles`).
    """
    from agent.config.file_exposure import secret_files
    from agent.tasks.rescue import spilled_results

    home, secret = settings.home.absolute(), list(secret_files(settings))
    paths = [*secret, settings.backup_directory.absolute(), settings.environment_file.absolute()]
    paths += [home / name for name in (audit.NAME, INSTANCE_FILE)]
    paths += {path.parent / spilled_results.STEM for path in secret}
    stores = (settings.artifacts_url, settings.jobs_url)
    paths += [Path(url) for url in stores if url and "://" not in url]
    if settings.file is not None:
        paths.append(settings.file.absolute())
    return tuple(map(str, paths))
