"""`agent mcp`: the tools of this agent for a client that starts this program."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from agent.cli import invocation, session
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.approvals.permission import Principal
    from agent.config.settings import Settings
    from agent.daemon.workflow_sync import WorkflowSync
    from agent.store.db.database import Database

_SYNC_SECONDS = 2.0
_SCOPES = ("read", "operate", "approve", "admin")


def mcp(
    scope: Annotated[
        list[str] | None,
        Option(
            "--scope",
            help="What its tools may do: read, operate (default), approve, or work:QUEUE or admin of a"
            " running agent; may be repeated.",
        ),
    ] = None,
    *,
    allow_answers: Annotated[
        bool,
        Option("--allow-answers", help="Let the client answer questions: adds approve."),
    ] = False,
) -> None:
    """Serve tools for MCP clients, such as coding agents."""
    from agent.cli.errors import CommandError
    from agent.mcp import sdk

    principal = _principal([*(scope or ["operate"]), *(["approve"] if allow_answers else [])])
    try:
        sdk.load()
    except sdk.MissingSdkError as error:
        raise CommandError(str(error)) from None
    # A thread waits for standard input, which Python's own handler would let finish.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    url = _agent_url(principal)
    if url is None:
        _require_agent()
    asyncio.run(_serve_remote(url, principal) if url else _serve_local(principal))


def _principal(names: list[str]) -> "Principal":
    """Return the caller that the client is: of this machine, with the chosen scopes."""
    from agent.approvals.permission import Principal
    from agent.cli.errors import CommandError
    from agent.core.scopes import implied, is_work_scope, work_scopes
    from agent.mcp.api_calls import CHANNEL

    for name in names:
        if name not in _SCOPES and not is_work_scope(name):
            raise CommandError(f"--scope {name}: choose {', '.join(_SCOPES)} or work:QUEUE")
    if "approve" in implied(names):
        session.require_person("answer questions")
    return Principal(CHANNEL, invocation.user(), implied(names), queues=work_scopes(names))


def _agent_url(principal: "Principal") -> str | None:
    """Return the address of the agent whose tools these are; None: the database of this machine.

    Leases are parts of a daemon's commits, so claiming work needs a running agent.
    """
    from agent.cli.client.address import running_agent

    url = invocation.server_url()
    return running_agent(session.settings()) if url is None and principal.queues else url


def _require_agent() -> None:
    """Refuse a directory without an agent: its new database would go unseen, and stay empty.

    Clients start this program in a directory of their choice. A database that was named is meant.
    """
    from agent import bootstrap
    from agent.cli import other_agents
    from agent.cli.errors import CommandError, Exit

    configuration = session.configuration()
    is_named = "database.url" in {*configuration.variables, *configuration.options}
    if configuration.place.file or is_named or bootstrap.has_database(configuration.settings):
        return
    program = invocation.program()
    raise CommandError(
        f"there is no agent in {configuration.place.base} or above: name its configuration,"
        f" as in `{program} --config FILE mcp`; `{program} init` creates an agent in a directory,"
        f" `{program} init --user` your own, which is used wherever there is no other"
        f"{other_agents.elsewhere(configuration.settings, has_last=True)}",
        Exit.NO_DATABASE,
    )


async def _serve_remote(url: str, principal: "Principal") -> None:
    """Serve the tools of the agent at an address; its token decides what they may do as well."""
    from agent.cli.client.address import remote_agent
    from agent.cli.output import terminal
    from agent.mcp import local_routes, stdio
    from agent.mcp.api_calls import at_address
    from agent.server.requests.openapi import describe

    base, token, is_here = remote_agent(url, session.any_settings(), terminal.note)
    description = describe(local_routes.described_routes())
    await stdio.serve(at_address(base, token, principal, is_here=is_here), description)


async def _serve_local(principal: "Principal") -> None:
    """Serve the tools of the agent whose database the configuration names."""
    from agent import bootstrap
    from agent.cli import private_files
    from agent.cli.output import terminal
    from agent.core.logs import audit
    from agent.daemon.workflow_sync import WorkflowSync
    from agent.mcp import local_routes, stdio
    from agent.mcp.api_calls import in_process
    from agent.server.access.grants import TokenGrant
    from agent.server.requests.openapi import describe

    settings = session.settings()
    private_files.require(settings, terminal.note)
    if line := bootstrap.describe_new_database(settings):
        terminal.note(line)
    database = bootstrap.open_database(settings, create=True)
    audit.configure(settings.home)
    worker = bootstrap.build_worker(settings, database)
    sync = WorkflowSync(settings)
    await asyncio.to_thread(_sync, sync, database)
    routes, close = local_routes.open_routes(settings, database, worker)
    api = in_process(routes, TokenGrant(principal.identity, principal.scopes, ""), None)
    api.notice = _notice(settings, database)
    syncing = asyncio.create_task(_keep_synced(sync, database))
    try:
        await stdio.serve(api, describe(routes))
    finally:
        syncing.cancel()
        with suppress(asyncio.CancelledError):
            await syncing
        close()


async def _keep_synced(sync: "WorkflowSync", database: "Database") -> None:
    while True:
        await asyncio.sleep(_SYNC_SECONDS)
        await asyncio.to_thread(_sync, sync, database)


def _sync(sync: "WorkflowSync", database: "Database") -> None:
    """Record changed workflow files, unless a daemon does."""
    from agent import bootstrap
    from agent.store.db.database import StoreError

    # The next one tries again.
    with suppress(StoreError):
        if bootstrap.holder_of(database) is None:
            sync.sync(database)


def _notice(settings: "Settings", database: "Database") -> Callable[[], str | None]:
    """Return a function that says where nothing runs tasks."""
    from agent import bootstrap
    from agent.cli import other_agents

    def notice() -> str | None:
        if bootstrap.holder_of(database) is not None:
            return None
        return other_agents.no_agent(settings, "runs its tasks")

    return notice
