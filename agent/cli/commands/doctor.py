"""`agent doctor`: what is well, what is not, and what to do about it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import session
from agent.cli.options import JsonOption

if TYPE_CHECKING:
    from agent.cli.commands.deep_check import Reading
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database
    from agent.workflows.directory import Entry

_LITTLE_SPACE_BYTES = 500 * 1024 * 1024
_NO_SPACE_BYTES = 64 * 1024
_LONG_TRANSACTION_SECONDS = 300.0
_PROBE_SECONDS = 10.0
"""How long the store of large values may take to answer."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `state` is ok, warning or error."""

    what: str
    state: str
    message: str
    task: str | None = None
    step: str | None = None


def doctor(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also read the whole database.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="2d|TIME",
            help="With --deep: leave out tasks that ended before this.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check configuration, workflows, database and agent."""
    from agent.cli.commands.deep_check import Reading, instant_of
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal

    if since is not None and not deep:
        raise CommandError("--since is about what --deep reads: give both")
    reading = Reading(since=instant_of(since), is_quiet=as_json) if deep else None
    findings = []
    for finding in _findings(reading):
        findings.append(finding)
        if not as_json:
            mark, style = _MARKS[finding.state]
            terminal.print_line(f"{mark} {finding.what}: {finding.message}", style)
    is_well = all(finding.state != "error" for finding in findings)
    if as_json:
        terminal.print_json({"ok": is_well, "findings": [asdict(found) for found in findings]})
    if not is_well:
        raise typer.Exit(int(_worst(findings, Exit.REFUSED, Exit.NO_DATABASE)))


_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


def _worst(findings: list[Finding], otherwise: int, no_database: int) -> int:
    broken = {finding.what for finding in findings if finding.state == "error"}
    return no_database if "database" in broken else otherwise


def _findings(reading: "Reading | None") -> Iterator[Finding]:
    import platform

    from agent import __version__, bootstrap
    from agent.store.db.database import StoreError

    yield Finding("program", "ok", f"agent {__version__} on Python {platform.python_version()}")
    settings = session.settings()
    # The checker looks for what the configuration names.
    bootstrap.hide_secrets(settings)
    yield Finding("configuration", "ok", f"home is {settings.home}")
    yield from _files(settings)
    yield from _workflows(settings)
    yield from _artifacts(settings)
    try:
        database = bootstrap.open_database(settings)
        with database.connect("reader") as connection:
            yield from _database(database, connection)
            if reading is not None:
                for task_id, step, state, message in reading.findings(connection):
                    yield Finding("contents", state, message, task_id, step)
            yield from _channels(settings, database, connection)
    except StoreError as error:
        yield Finding("database", "error", str(error))


def _files(settings: "Settings") -> Iterator[Finding]:
    from agent.cli.commands.file_findings import file_findings

    for what, state, message in file_findings(settings):
        yield Finding(what, state, message)


def _workflows(settings: "Settings") -> Iterator[Finding]:
    from agent.daemon import workflow_overview

    directory = settings.workflow_directory
    if not directory.is_dir():
        yield Finding(
            "workflows", "warning", f"there is no directory {directory}: `agent init` makes one"
        )
        return
    found = workflow_overview.scan(settings)
    broken = [entry for entry in found if entry.problems]
    for entry in broken:
        yield Finding("workflows", "error", str(entry.problems[0]))
    if not broken:
        yield Finding("workflows", "ok", f"{len(found)} in {directory}")
    for entry in found:
        yield from _webhook(entry)


def _webhook(entry: "Entry") -> Iterator[Finding]:
    """Say what keeps the webhook of a workflow from being taken."""
    from agent.channels.secret_ref import SecretError, read_secret
    from agent.server.webhook_signatures import check_secret

    keys = entry.workflow.graph.on.get("webhook") if entry.workflow is not None else None
    if keys is None:
        return
    try:
        check_secret(keys.get("verify", "standard"), read_secret(keys["secret"]))
    except SecretError as error:
        yield Finding("webhooks", "error", f"webhook of {entry.name}: {error}")


def _artifacts(settings: "Settings") -> Iterator[Finding]:
    from agent import bootstrap
    from agent.store.db.database import StoreError

    url = settings.artifacts_url
    if url:
        seconds = min(settings.artifacts.timeout_seconds, _PROBE_SECONDS)
        try:
            bootstrap.blob_stores_of(settings).probe(url, seconds)
        except StoreError as error:
            yield Finding("artifacts", "error", f"{error}; steps that need it wait")
        else:
            yield Finding("artifacts", "ok", f"are kept at {url}: written, read and removed there")


def _database(database: "Database", connection: "Connection") -> Iterator[Finding]:
    from agent import bootstrap
    from agent.cli.output import terminal
    from agent.store.read import health
    from agent.store.schema import migrate

    version = "PostgreSQL"
    if database.path is not None:
        version = f"SQLite {health.sqlite_version(connection)}, {database.path}"
    yield Finding("database", "ok", f"{version}, schema {migrate.HEAD}")
    if connection.is_pooled:
        yield Finding(
            "database",
            "ok",
            "reached through a connection pooler: statements are not prepared, and work of other"
            " processes is found by polling",
        )
    yield from _writing(database)
    yield from _space(database)
    holder = bootstrap.holder_of(database)
    if holder is None:
        yield Finding("agent", "warning", "none is running: `agent up` starts it")
    else:
        which = f" as process {holder.process_id}" if holder.process_id else ""
        yield Finding("agent", "ok", f"running{which}")
    counts = health.task_counts(connection)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    yield Finding("tasks", "ok", told or "none yet")
    for task_id, step, action in health.unknown_calls(connection):
        short = terminal.short(task_id)
        yield Finding(
            "unknown",
            "warning",
            f"{action} of step {step} in task {short}: say what became of it with"
            f" `agent resolve {short} {step} --done|--retry|--fail`",
        )
    for task_id in health.stuck_tasks(connection):
        yield Finding("tasks", "error", f"task {task_id} runs, but nothing will wake it")
    age = health.oldest_transaction_seconds(connection)
    if age > _LONG_TRANSACTION_SECONDS:
        told = terminal.duration(age)
        yield Finding("database", "warning", f"a transaction has been open for {told}")


def _channels(
    settings: "Settings", database: "Database", connection: "Connection"
) -> Iterator[Finding]:
    from agent import bootstrap
    from agent.cli.commands.channel_findings import channel_findings

    is_running = bootstrap.holder_of(database) is not None
    for what, state, message in channel_findings(settings, connection, is_running=is_running):
        yield Finding(what, state, message)


def _writing(database: "Database") -> Iterator[Finding]:
    from agent.store.db.database import StoreError
    from agent.store.read import health

    try:
        with database.connect("writer") as connection, connection.transaction():
            health.try_writing(connection)
    except StoreError as error:
        yield Finding("database", "error", str(error))


def _space(database: "Database") -> Iterator[Finding]:
    import shutil

    if database.path is None:
        return
    free = shutil.disk_usage(database.path.parent).free
    if free < _NO_SPACE_BYTES:
        yield Finding(
            "disk", "error", f"no room is left in {database.path.parent}: no task is created or run"
        )
    elif free < _LITTLE_SPACE_BYTES:
        yield Finding("disk", "warning", f"only {free // 1024 // 1024} MB are free")
