"""`agent up` and `agent worker`: the processes that run tasks."""

import os
from typing import TYPE_CHECKING, Annotated

from agent.cli import invocation, private_files, session
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.config.loader import Configuration
    from agent.config.settings import Settings
    from agent.store.db.database import Database
    from agent.workflows.directory import Entry


_MOST_NAMED = 3


def up(
    first: Annotated[
        str | None,
        Option("--run", metavar="FILE|NAME", help="Also start a task of this workflow, once."),
    ] = None,
) -> None:
    """Start the agent.

    It runs tasks until Ctrl-C or SIGTERM stops it.
    """
    session.require_local()
    _require_place()
    _serve(session.configuration(), first, is_worker=False)


def _require_place() -> None:
    """Refuse a directory in which no agent was set up, or ask: a second, empty one surprises."""
    import sys

    from agent.cli import other_agents

    settings = session.settings()
    if sys.stdin.isatty() and not other_agents.is_agents(settings):
        import typer

        if typer.confirm(f"{other_agents.none_in(settings)}. Create one here?"):
            return
    other_agents.require_agent(settings)


def worker() -> None:
    """Start one more worker, on PostgreSQL."""
    from agent.cli.errors import CommandError

    session.require_local()
    configuration = session.configuration()
    if configuration.settings.database_url.startswith("sqlite:"):
        raise CommandError(
            "`agent worker` needs PostgreSQL; on SQLite one process runs all tasks: `agent up`"
        )
    _serve(configuration, None, is_worker=True)


def _serve(configuration: "Configuration", first: str | None, *, is_worker: bool) -> None:
    from agent import bootstrap
    from agent.cli import other_agents
    from agent.cli.client.submission import local_submission
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal
    from agent.core import event_loop
    from agent.core.logs import logging
    from agent.daemon import daemon, database_lock, startup_retry
    from agent.server.connections.bind import check_bind

    settings = configuration.settings
    check_bind(settings.server)
    private_files.require(settings, terminal.note)
    first_task = None if first is None else local_submission(settings, first, {}, {})
    logging.configure(settings.log.format, settings.log.level)
    if line := bootstrap.describe_new_database(settings):
        terminal.note(line)
    database = startup_retry.open_database(settings, terminal.note)
    try:
        lock = database_lock.take_lock(database, "daemon")
    except database_lock.AlreadyRunningError as error:
        raise CommandError(str(error), Exit.REFUSED) from None
    bootstrap.redact_configured_secrets(settings)
    # Where the code of steps runs, whatever the directory of the terminal is.
    os.chdir(settings.base)

    async def ready(address: str | None) -> None:
        first_name, takes_text = _print_greeting(settings, database, is_worker=is_worker)
        if not is_worker:
            other_agents.remember(settings)
            _print_address(settings, address)
            await startup_retry.with_retries(
                lambda: _print_channels(settings, database), is_idempotent=True
            )
        task_id = None
        if first_task is not None:
            from agent.tasks.operator.operator import Operator

            operator = Operator(database, database.clock)
            task_id = await startup_retry.with_retries(
                lambda: operator.submit(first_task), is_idempotent=False
            )
        if not is_worker:
            name = first_name if first_task is None else first_task.graph.name
            _print_suggestions(task_id, name, takes_text=takes_text)
            # Last, where a person looks.
            await startup_retry.with_retries(lambda: _print_waiting(database), is_idempotent=True)

    try:
        event_loop.run(
            daemon.serve(
                settings,
                database,
                configuration=configuration,
                on_ready=ready,
                has_api=not is_worker,
                has_channels=not is_worker,
                runs_upkeep=not is_worker,
            )
        )
    finally:
        if lock is not None:
            lock.release()


def _print_greeting(
    settings: "Settings", database: "Database", *, is_worker: bool
) -> tuple[str, bool]:
    """Print what runs here; return the name of a workflow to suggest, and whether one takes free text."""
    from agent import __version__
    from agent.cli.output.terminal import print_line
    from agent.daemon import workflow_overview
    from agent.workflows.directory import NamedWorkflows

    where = "PostgreSQL" if database.path is None else str(database.path)
    name = "agent worker" if is_worker else "agent"
    print_line(f"{name} {__version__} is running on {where}; Ctrl-C stops it", "bold")
    if is_worker:
        return "NAME", False
    entries = workflow_overview.scan(settings)
    print_line(f"\nworkflows in {settings.workflow_directory}:" + ("" if entries else " none yet"))
    known = NamedWorkflows.of(entries)
    for entry in entries:
        _print_workflow(entry, workflow_overview.remarks(entry, known, settings))
    name = next((entry.name for entry in entries if entry.name and not entry.problems), "NAME")
    return name, any((graph.on.get("chat") or {}).get("text") for graph in known.graphs.values())


def _print_workflow(entry: "Entry", remarks: list[str]) -> None:
    """Print a workflow on one line, as far as the terminal is wide; remarks stay whole, below it."""
    from agent.cli.output.terminal import one_line, print_line, width

    name = f"{entry.name or entry.path.stem:<16} "
    if entry.problems:
        count = len(entry.problems)
        about = f"{count} problem{'s'[: count > 1]}: `{invocation.program()} validate` shows them"
        print_line(f"  {name}{about}", "red")
        return
    description = (entry.workflow.graph.description if entry.workflow is not None else None) or ""
    room = width()
    if room is not None:
        description = one_line(description, max(room - len(name) - 2, 1))
    print_line(f"  {name}{description}".rstrip())
    for remark in remarks:
        print_line(f"    {remark}", "yellow")


def _print_address(settings: "Settings", address: str | None) -> None:
    """Print how to open the dashboard, and the address of the HTTP API; or why there is none."""
    from agent.cli.output.terminal import print_line

    server = settings.server
    if address is not None:
        from agent.server.access.tokens import Tokens

        token = Tokens(settings.home).owner_file
        opening = f"{invocation.program()} open"
        print_line(f"\ndashboard: `{opening}` opens it in a browser, `{opening} --qr` on a phone")
        print_line(f"HTTP API: {address}/api/v1 (the token is in {token})")
    elif server.enabled:
        print_line(
            f"\nno dashboard and no HTTP API: port {server.port} of {server.host} is in use;"
            " set another `port` in [server]",
            "yellow",
        )


def _print_channels(settings: "Settings", database: "Database") -> None:
    """Print the configured channels, or that no notice reaches anyone."""
    from agent import overview
    from agent.cli.output.terminal import print_line
    from agent.config.channels import delivering

    with database.connect("reader") as connection:
        reason = overview.no_notices(connection, settings)
    if reason is not None:
        print_line(f"no one is notified of questions and failures: {reason}", "yellow")
    if names := delivering(settings.channels, settings.notify):
        print_line(
            f"channels: {', '.join(names)}; `{invocation.program()} doctor` shows their state"
        )


def _print_waiting(database: "Database") -> None:
    """Print what waits for a person."""
    from agent.cli.output.terminal import counted, print_line
    from agent.store.read import health

    with database.connect("reader") as connection, connection.snapshot():
        questions = health.open_questions(connection)
        unknown = health.unknown_steps(connection)
    parts = [counted(questions, "question")] if questions else []
    if unknown:
        named = ", ".join(dict.fromkeys(unknown[:_MOST_NAMED]))
        parts.append(f"{counted(len(unknown), 'unknown effect')} ({named})")
    if parts:
        print_line(
            f"waiting for you: {', '.join(parts)}: `{invocation.program()} approvals`", "yellow"
        )


def _print_suggestions(task_id: str | None, workflow: str, *, takes_text: bool) -> None:
    """Suggest commands for another terminal."""
    from agent.cli.output.terminal import print_line, short

    rows = [
        *([("chat", "talk to the assistant: type hello")] if takes_text else []),
        (f"run {workflow} --wait", "start a task and follow it"),
        ("tasks", "list tasks"),
        ("triggers", "list what starts by itself, and when"),
        ("events --follow", "print events as they happen"),
        ("--help", "list all commands"),
    ]
    if task_id is not None:
        rows.insert(0, (f"show {short(task_id)}", "show the task that was just started"))
    width = max(len(command) for command, _ in rows)
    print_line("\nin another terminal, try:")
    for command, about in rows:
        print_line(f"  {invocation.program()} {command:<{width}}   {about}")
    print_line("")
