"""`agent status`: the agent at a glance, with the next command for each thing that needs a person."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from agent.cli import invocation, session
from agent.cli.errors import Exit
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.config.loader import Configuration
    from agent.daemon.instance_file import Instance
    from agent.store.db.database import Database

Document = dict[str, Any]
Row = tuple[str, str, str, str | None]
"""One line of the status: subject, text, next command and colour."""
_INDENT: Final = 16
_PROBE_SECONDS: Final = 2.0
DEGRADED: Final = {
    "threads": "functions outlive their attempts in threads, which keep slots until they return"
    " (`executor: process` would end them)",
}
_WIDEST: Final = 52
"""The column of commands begins there at the latest."""


def status(
    *,
    pid: Annotated[
        bool, Option("--pid", help="Print the agent's process id and nothing else.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the agent at a glance, and what needs you.

    The exit code is 3 where no agent is running.
    """
    from agent.cli.output import terminal

    connection = session.remote()
    if connection is None:
        document = _local(session.configuration())
    else:
        status_document = connection.get("status")
        connection.close()
        about = {name: status_document.pop(name) for name in ("version", "started_at")}
        document = {"agent": about | {"running": True}, **status_document}
    if pid:
        if process_id := document["agent"].get("process_id"):
            print(process_id)
    elif as_json:
        terminal.print_json(document)
    else:
        _print(document)
    if not document["agent"]["running"]:
        raise SystemExit(int(Exit.REFUSED))


def _local(configuration: "Configuration") -> Document:
    from agent import bootstrap, overview
    from agent.daemon.instance_file import running_instance

    settings = configuration.settings
    instance = running_instance(settings.home)
    document: Document = {
        "agent": {"running": False},
        "configuration": configuration.place.describe(),
        "database": None,
    }
    if not bootstrap.has_database(settings):
        return document
    database = bootstrap.open_database(settings)
    document["agent"] = _agent(database, instance)
    document["database"] = "PostgreSQL" if database.path is None else str(database.path)
    if instance is not None:
        document["outdated_settings"] = instance.outdated_keys(configuration)
        document["outdated_program"] = instance.has_old_program
        document["degraded"] = degraded(instance.api)
    with database.connect("reader") as connection, connection.snapshot():
        now = database.clock.now()
        return document | overview.overview_document(connection, settings, now)


def degraded(api: str | None) -> list[str]:
    """Return what limits the running agent: only its process knows."""
    import json
    from contextlib import closing, suppress
    from http.client import HTTPConnection, HTTPException
    from urllib.parse import urlsplit

    parts = urlsplit(api or "")
    if parts.scheme != "http":
        return []
    connection = HTTPConnection(parts.netloc, timeout=_PROBE_SECONDS)
    with closing(connection), suppress(OSError, HTTPException, ValueError):
        connection.request("GET", "/readyz")
        return list(json.loads(connection.getresponse().read()).get("because", ()))
    return []


def _agent(database: "Database", instance: "Instance | None") -> Document:
    from agent import bootstrap

    if instance is not None:
        return {
            "running": True,
            "process_id": instance.process_id,
            "version": instance.version,
            "started_at": instance.started_at,
            "api": instance.api,
        }
    holder = bootstrap.holder_of(database)
    if holder is None:
        return {"running": False}
    if holder.role != "daemon":
        return {"running": False, "process_id": holder.process_id}
    return {"running": True, "process_id": holder.process_id}


def _print(document: Document) -> None:
    from agent.cli.output import terminal

    agent = document["agent"]
    terminal.print_line(_headline(agent), "bold" if agent["running"] else "yellow")
    rows = [*_places(document), *(_overview(document) if "tasks" in document else ())]
    for line, style in lines(rows, invocation.program(), terminal.width()):
        terminal.print_line(line, style)


def lines(rows: list[Row], program: str, width: int | None) -> Iterator[tuple[str, str | None]]:
    """Yield rows as lines with their colours: the commands in one column, or where they fit."""
    texts = [
        text
        for _, text, command, _ in rows
        if command and (width is None or _INDENT + len(f"{text}  {program} {command}") <= width)
    ]
    column = min(max(map(len, texts), default=0), _WIDEST)
    for what, text, command, style in rows:
        line = f"  {what:<{_INDENT - 2}}{text}"
        follow = f"{program} {command}"
        if not command:
            yield line, style
        elif width is None or max(len(line), _INDENT + column) + len(follow) + 2 <= width:
            yield f"{line:<{_INDENT + column}}  {follow}", style
        elif len(line) + len(follow) + 2 <= width:
            yield f"{line}  {follow}", style
        else:
            yield line, style
            yield " " * _INDENT + follow, style


def _headline(agent: Document) -> str:
    from agent.cli import other_agents
    from agent.cli.output import terminal

    if not agent["running"]:
        return other_agents.no_agent(session.any_settings(), "starts one")
    version = f" {agent['version']}" if agent.get("version") else ""
    since = ""
    if agent.get("started_at"):
        took = terminal.duration(terminal.seconds_between(agent["started_at"], None))
        since = f" since {terminal.moment(agent['started_at'])} ({took})"
    process = f", process {agent['process_id']}" if agent.get("process_id") else ""
    return f"agent{version} is running{since}{process}"


def _places(document: Document) -> Iterator[Row]:
    if api := document["agent"].get("api"):
        yield "HTTP API", api, "", None
    if "configuration" in document:
        yield "configuration", document["configuration"], "", None
        yield "database", document["database"] or "none yet", "", None
    if document.get("outdated_program"):
        yield "program", "replaced since the agent started: restart it", "stop", "yellow"
    for what in document.get("degraded", ()):
        yield "degraded", DEGRADED.get(what, what), "", "yellow"
    if outdated := document.get("outdated_settings"):
        from agent.config.reloading import split

        reloaded, restarted = split(outdated)
        if reloaded:
            yield "settings", f"older than the file: {', '.join(reloaded)}", "reload", "yellow"
        if restarted:
            text = f"older than the file until the agent is restarted: {', '.join(restarted)}"
            yield "settings", text, "", "yellow"


def _overview(document: Document) -> Iterator[Row]:
    from agent.cli.output import terminal

    # A process without an agent is a command that runs tasks.
    is_served = "process_id" in document["agent"]
    text = ", ".join(
        f"{count} {terminal.activity_of(activity, is_served=is_served)}"
        for activity, count in document["tasks"].items()
    )
    text = text or "none running"
    yield "tasks", text, "tasks", None
    if isolated := document.get("isolated"):
        yield "isolated", _isolated(isolated), f"show {isolated['task'][-8:]}", "yellow"
    yield from _attention(document)
    schedules = document["schedules"]
    if schedules["count"]:
        yield "next", _next(schedules["first"]), "schedules", None
    yield "spend today", _spend(document["spend"]), "budget", None
    if reason := document.get("no_notices"):
        yield "notices", f"no one is notified: {reason}", "", "yellow"


def _attention(document: Document) -> Iterator[Row]:
    """Yield the counts of what needs a person, with a command for the first of each kind."""
    from agent.cli.output.terminal import counted, one_line, quoted_step, short
    from agent.core.waits import headline

    if first := document["questions"]["first"]:
        text = (
            f"{document['questions']['count']} open: {one_line(headline(first[0]['message']), 36)}"
        )
        yield "questions", text, f"approvals {short(first[0]['id'])}", "yellow"
    if first := document["unknown"]["first"]:
        task, step = short(first[0]["task"]), quoted_step(first[0]["step"])
        effects = counted(document["unknown"]["count"], "effect")
        text = f"{effects}: {one_line(first[0]['action'], 30)}"
        yield "unknown", text, f"resolve {task} {step} --done|--retry|--fail", "yellow"
    if first := document["failed"]["first"]:
        text = f"{document['failed']['count']} in the last day: {first[0]['workflow']}"
        yield "failed", text, f"show {short(first[0]['id'])}", "red"
    if first := document["broken"]["first"]:
        text = (
            f"{document['broken']['count']}: {first[0]['id']}: {one_line(first[0]['problem'], 30)}"
        )
        yield "broken", text, f"{_command_of(first[0])} show {first[0]['id']}", "red"
    # An agent of an earlier version does not report it.
    if first := document.get("paused", {}).get("first"):
        text = (
            f"{document['paused']['count']}: {first[0]['id']}: {one_line(first[0]['reason'], 30)}"
        )
        yield "paused", text, f"{_command_of(first[0])} resume {first[0]['id']}", "red"


def _command_of(trigger: Document) -> str:
    return "schedules" if trigger["kind"] == "schedule" else "watchers"


def _isolated(isolated: Document) -> str:
    from agent.cli.output.terminal import moment, one_line

    step = f"step {one_line(isolated['step'], 30)}"
    if isolated["until"] is None:
        return f"new steps wait: {step} must run alone after a crash"
    until = f"until {moment(isolated['until'])} at the latest"
    then = f", then {isolated['following']} more" if isolated["following"] else ""
    return f"new steps wait: {step} runs alone after a crash, {until}{then}"


def _next(schedules: list[Document]) -> str:
    from agent.cli.output import terminal

    return ", ".join(
        f"{schedule['id']} in {terminal.duration(terminal.seconds_until(schedule['next_at']))}"
        for schedule in schedules[:2]
    )


def _spend(day: Document) -> str:
    usd = f"${day['usd']:.2f}" + (f" of ${day['usd_limit']:.2f}" if day["usd_limit"] else "")
    limit = f" of {day['tokens_limit']:,}" if day["tokens_limit"] else ""
    return f"{usd}, {day['tokens']:,}{limit} tokens"
