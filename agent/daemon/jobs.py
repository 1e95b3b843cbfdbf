"""Periodic jobs of the daemon, each an asyncio task beside the worker."""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from agent.config.settings import Settings
from agent.daemon import workflow_sync
from agent.store.db.database import Database

if TYPE_CHECKING:
    from agent.server.server_thread import Server

log = structlog.get_logger(__name__)

WORKFLOW_SYNC_SECONDS: Final = 2.0


async def sync_workflows(settings: Settings, database: Database, server: "Server | None") -> None:
    """Record changed workflow files every few seconds; start the server after the first try.

    A client that calls at once then finds the workflows of all files. If the first try fails, the
    server starts anyway and answers 503 for a name that it does not know yet.
    """
    sync = workflow_sync.WorkflowSync(settings)
    is_first, is_serving = True, False
    if server is not None:
        server.startup.has_workflows = False
    while True:
        try:
            changes = await asyncio.to_thread(sync.sync, database)
        except Exception as error:
            # A missing directory or a lost database may come back; tasks go on without them.
            log.warning("workflows could not be read", error=str(error))
        else:
            _log_changes(changes, is_first=is_first)
            is_first = False
            if server is not None:
                server.startup.has_workflows = True
        if server is not None and not is_serving:
            server.start()
            is_serving = True
        await asyncio.sleep(WORKFLOW_SYNC_SECONDS)


def _log_changes(changes: list[workflow_sync.WorkflowChange], *, is_first: bool) -> None:
    for change in changes:
        if change.event == "workflow.broken":
            log.warning(change.event, **change.details)
        elif is_first:
            # The greeting lists all workflows.
            log.debug(change.event, **change.details)
        else:
            log.info(change.event, **change.details)
