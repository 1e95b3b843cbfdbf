"""`agent doctor`: checks everything, and says what to do about each problem."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.cli.commands.doctor_checks.deep_check import DeepCheck
    from agent.config.loader import Configuration
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database
    from agent.workflows.directory import Entry

_PROBE_SECONDS = 10.0
"""How long the artifact store may take to answer."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: `state` is ok, warning or error."""

    what: str
    state: str
    message: str
    task: str | None = None
    step: str | None = None


def doctor(
    *,
    deep: Annotated[bool, Option("--deep", help="Also check the whole database.")] = False,
    since: Annotated[
        str | None,
        Option(
            "--since",
            metavar="2d|TIME",
            help="With --deep: skip tasks that ended before this.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check configuration, workflows, database and agent."""
    from agent.cli.commands.doctor_checks.deep_check import DeepCheck
    from agent.cli.commands.tasks import instant_of
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal

    if since is not None and not deep:
        raise CommandError("--since needs --deep")
    deep_check = DeepCheck(since=instant_of(since), is_quiet=as_json) if deep else None
    results = []
    for result in _check_all(deep_check):
        results.append(result)
        if not as_json:
            mark, style = _MARKS[result.state]
            terminal.print_line(f"{mark} {result.what}: {result.message}", style)
    is_well = all(result.state != "error" for result in results)
    if as_json:
        terminal.print_json({"ok": is_well, "findings": [asdict(result) for result in results]})
    if not is_well:
        raise SystemExit(int(_exit_code(results, Exit.REFUSED, Exit.NO_DATABASE)))


_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


def _exit_code(results: list[CheckResult], otherwise: int, no_database: int) -> int:
    broken = {result.what for result in results if result.state == "error"}
    return no_database if "database" in broken else otherwise


def _check_all(deep_check: "DeepCheck | None") -> Iterator[CheckResult]:
    import platform

    from agent import __version__, bootstrap
    from agent.cli import other_agents
    from agent.cli.errors import CommandError
    from agent.store.db.database import StoreError

    yield CheckResult("program", "ok", f"agent {__version__} on Python {platform.python_version()}")
    session.require_local()
    configuration = session.configuration()
    settings = configuration.settings
    # The checker searches the database for the secrets that the configuration names.
    bootstrap.redact_configured_secrets(settings)
    where = configuration.place.describe()
    yield CheckResult("configuration", "ok", f"{where}; home is {settings.home}")
    yield from _check_instance(configuration)
    yield from _check_files(settings)
    yield from _check_workflows(settings)
    yield from _check_libraries(settings)
    yield from _check_executors(settings)
    yield from _check_mail(settings)
    yield from _check_secrets(settings)
    yield from _check_artifacts(settings)
    yield from _check_telemetry(settings)
    try:
        database = other_agents.open_database(settings)
        with database.connect("reader") as connection:
            yield from _check_database(settings, database, connection)
            yield from _check_isolation(settings, database, connection)
            yield from _check_backups(settings, database)
            if deep_check is not None:
                for task_id, step, state, message in deep_check.results(connection):
                    yield CheckResult("contents", state, message, task_id, step)
            yield from _check_triggers(database, connection)
            yield from _check_channels(settings, database, connection)
    except (StoreError, CommandError) as error:
        yield CheckResult("database", "error", str(error))


def _check_instance(configuration: "Configuration") -> Iterator[CheckResult]:
    """Report where the running agent has another program than is installed, or other settings than the file."""
    from agent.cli.commands import status
    from agent.config.reloading import split
    from agent.daemon.instance_file import running_instance

    instance = running_instance(configuration.settings.home)
    if instance is None:
        return
    if instance.has_old_program:
        text = f"the program in {instance.program} was replaced since the agent started: restart it"
        yield CheckResult("program", "warning", f"{text} (`agent stop`, then `agent up`)")
    for what in status.degraded(instance.api):
        # The store of large values and the disk have checks of their own.
        if what in status.DEGRADED:
            yield CheckResult(what, "warning", status.DEGRADED[what])
    file = configuration.settings.file
    if instance.configuration != (None if file is None else str(file)):
        used = instance.configuration or "no configuration"
        yield CheckResult("configuration", "warning", f"the running agent uses {used}")
        return
    reloaded, restarted = split(instance.outdated_keys(configuration))
    for keys, remedy in (
        (reloaded, "`agent reload` applies them"),
        (restarted, "they need a restart of the agent"),
    ):
        if keys:
            yield CheckResult(
                "configuration",
                "warning",
                f"the running agent has older settings than the file: {', '.join(keys)}; {remedy}",
            )


def _check_files(settings: "Settings") -> Iterator[CheckResult]:
    from agent.cli.commands.doctor_checks.file_checks import file_checks

    for what, state, message in file_checks(settings):
        yield CheckResult(what, state, message)


def _check_workflows(settings: "Settings") -> Iterator[CheckResult]:
    from agent.daemon import workflow_overview
    from agent.workflows.directory import NamedWorkflows

    directory = settings.workflow_directory
    if not directory.is_dir():
        yield CheckResult(
            "workflows", "warning", f"there is no directory {directory}: `agent init` creates it"
        )
        return
    entries = workflow_overview.scan(settings)
    broken = [entry for entry in entries if entry.problems]
    for entry in broken:
        yield CheckResult("workflows", "error", str(entry.problems[0]))
    if not broken:
        yield CheckResult("workflows", "ok", f"{len(entries)} in {directory}")
    known = NamedWorkflows.of(entries)
    for entry in entries:
        if not entry.problems:
            for remark in workflow_overview.remarks(entry, known, settings):
                yield CheckResult("workflows", "warning", f"{entry.name}: {remark}")
        yield from _check_webhook(entry)


def _check_secrets(settings: "Settings") -> Iterator[CheckResult]:
    """Report the references that lead to no secret; values are never shown."""
    from agent.cli.commands.secrets import references_in_use

    in_use = references_in_use(settings, reads_slow=True)
    for entry in in_use:
        # The check of webhooks reports its own.
        if entry.problem is not None and not all(map(_is_of_webhook, entry.used_by)):
            users = ", ".join(entry.used_by)
            yield CheckResult("secrets", "warning", f"{entry.problem} (used by {users})")
    if in_use and all(entry.problem is None for entry in in_use):
        count = f"{len(in_use)} reference{'' if len(in_use) == 1 else 's'}"
        yield CheckResult("secrets", "ok", f"{count}: each leads to a secret")


def _is_of_webhook(user: str) -> bool:
    return user.endswith("on.webhook.secret")


def _check_webhook(entry: "Entry") -> Iterator[CheckResult]:
    """Check the secret of a workflow's webhook."""
    from agent.channels.secret_ref import SecretError, read_secret
    from agent.server.access.webhook_signatures import check_secret

    keys = entry.workflow.graph.on.get("webhook") if entry.workflow is not None else None
    if keys is None:
        return
    try:
        check_secret(keys.get("verify", "standard"), read_secret(keys["secret"]))
    except SecretError as error:
        yield CheckResult("webhooks", "error", f"webhook of {entry.name}: {error}")


def _check_libraries(settings: "Settings") -> Iterator[CheckResult]:
    from agent.cli.commands.doctor_checks.library_checks import library_checks

    for what, state, message in library_checks(settings):
        yield CheckResult(what, state, message)


def _check_executors(settings: "Settings") -> Iterator[CheckResult]:
    from agent.cli.commands.doctor_checks.executor_checks import executor_checks
    from agent.daemon import workflow_overview

    entries = workflow_overview.scan(settings) if settings.workflow_directory.is_dir() else ()
    for what, state, message in executor_checks(settings, entries):
        yield CheckResult(what, state, message)


def _check_mail(settings: "Settings") -> Iterator[CheckResult]:
    from agent.cli.commands.doctor_checks.mail_checks import mail_checks
    from agent.daemon import workflow_overview

    entries = workflow_overview.scan(settings) if settings.workflow_directory.is_dir() else ()
    for what, state, message in mail_checks(settings, entries):
        yield CheckResult(what, state, message)


def _check_artifacts(settings: "Settings") -> Iterator[CheckResult]:
    from agent import bootstrap
    from agent.store.db.database import StoreError

    url = settings.artifacts_url
    if url:
        seconds = min(settings.artifacts.timeout_seconds, _PROBE_SECONDS)
        try:
            bootstrap.blob_stores_of(settings).probe(url, seconds)
        except StoreError as error:
            yield CheckResult("artifacts", "error", f"{error}; steps that need it wait")
        else:
            yield CheckResult(
                "artifacts", "ok", f"stored at {url}: writing, reading and removing work"
            )


def _check_telemetry(settings: "Settings") -> Iterator[CheckResult]:
    """Report traces that cannot be sent for want of a library."""
    from importlib.util import find_spec

    if not settings.telemetry.endpoint:
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        from agent.bootstrap import MISSING_OTEL

        yield CheckResult("traces", "error", MISSING_OTEL.rstrip("; "))
    else:
        yield CheckResult("traces", "ok", f"sent to {settings.telemetry.endpoint}")


def _check_database(
    settings: "Settings", database: "Database", connection: "Connection"
) -> Iterator[CheckResult]:
    from agent.cli.commands.doctor_checks.database_checks import database_checks, space_checks

    for what, state, message in database_checks(settings, database, connection):
        yield CheckResult(what, state, message)
    for what, state, message in space_checks(settings):
        yield CheckResult(what, state, message)


def _check_isolation(
    settings: "Settings", database: "Database", connection: "Connection"
) -> Iterator[CheckResult]:
    """Report a step that runs alone after a crash: other steps wait."""
    from agent.cli.output import terminal
    from agent.tasks.read_models import isolated_steps

    solo_seconds, now = settings.engine.solo_seconds, database.clock.now()
    isolated = isolated_steps.isolation(connection, solo_seconds, now)
    if isolated is not None:
        text = isolated_steps.words(isolated, terminal.short, terminal.moment)
        yield CheckResult("steps", "warning", text, isolated["task"], isolated["step"])


def _check_channels(
    settings: "Settings", database: "Database", connection: "Connection"
) -> Iterator[CheckResult]:
    from agent import bootstrap
    from agent.channels.health_checks import channel_checks
    from agent.cli.commands.doctor_checks.message_checks import message_checks
    from agent.daemon import workflow_overview

    is_running = bootstrap.holder_of(database) is not None
    for what, state, message in channel_checks(settings, connection, is_running=is_running):
        yield CheckResult(what, state, message)
    graphs = workflow_overview.graphs_of(workflow_overview.scan(settings)).values()
    for what, state, message in message_checks(settings, connection, graphs):
        yield CheckResult(what, state, message)


def _check_triggers(database: "Database", connection: "Connection") -> Iterator[CheckResult]:
    from agent import bootstrap
    from agent.triggers.health_checks import trigger_checks

    is_running = bootstrap.holder_of(database) is not None
    for state, message in trigger_checks(connection, database.clock.now(), is_running=is_running):
        yield CheckResult("triggers", state, message)


def _check_backups(settings: "Settings", database: "Database") -> Iterator[CheckResult]:
    """Report the newest backup, and the tasks that a restore still holds."""
    from agent.cli.commands.doctor_checks.backup_checks import backup_checks

    for what, state, message in backup_checks(settings, database):
        yield CheckResult(what, state, message)
