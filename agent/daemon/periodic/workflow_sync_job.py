"""Records changed workflow files while the daemon runs.

`JobScheduler` runs it; tests and the simulator call it without a scheduler.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import structlog

from agent.config.settings import Settings
from agent.daemon import workflow_sync
from agent.daemon.workflow_sync import WorkflowChange
from agent.store.db.database import Database

if TYPE_CHECKING:
    from agent.server.server_thread import Server

log = structlog.get_logger(__name__)

WORKFLOW_SYNC_SECONDS: Final = 2.0

InThread = Callable[..., Awaitable[Any]]
OnFirstSync = Callable[[], Awaitable[None]]
OnSync = Callable[[list[WorkflowChange]], Awaitable[None]]


class WorkflowSyncJob:
    """Records changed workflow files; starts the server after the first try.

    A client that calls at once then finds the workflows of all files. If the first try fails, the
    server starts anyway and answers 503 for a name that it does not know yet.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        server: "Server | None",
        *,
        on_first_sync: OnFirstSync | None = None,
        on_sync: OnSync | None = None,
        in_thread: InThread = asyncio.to_thread,
    ) -> None:
        """`on_first_sync` is called after the first sync that succeeds, before `on_sync`.

        `on_sync` gets the changes of each sync that found some, the first included. If one of the two
        fails, the next run calls it again, with all changes since.
        """
        self._database = database
        self._server = server
        self._sync = workflow_sync.WorkflowSync(settings)
        self._on_first_sync = on_first_sync
        self._on_sync = on_sync
        self._in_thread = in_thread
        self._is_first = True
        self._is_serving = False
        self._changes: list[WorkflowChange] = []
        """Changes that `on_sync` has not received yet."""
        if server is not None:
            server.startup.has_workflows = False

    def apply(self, settings: Settings) -> None:
        """Follow the workflow directory of changed settings from the next run on."""
        if not self._sync.follows(settings):
            self._sync = workflow_sync.WorkflowSync(settings)

    async def run(self) -> None:
        """Record the changes since the last run."""
        try:
            changes = await self._in_thread(self._sync.sync, self._database)
        except Exception as error:
            # A missing directory or a lost database may come back; tasks go on without them.
            log.warning("workflows.unreadable", error=str(error))
            self._start_server()
            return
        _log_changes(changes, is_first=self._is_first)
        self._is_first = False
        self._changes += changes
        if self._server is not None:
            self._server.startup.has_workflows = True
        self._start_server()
        await self._call_back()

    def _start_server(self) -> None:
        if self._server is not None and not self._is_serving:
            self._server.start()
            self._is_serving = True

    async def _call_back(self) -> None:
        if self._on_first_sync is not None:
            await self._on_first_sync()
            self._on_first_sync = None
        if self._on_sync is not None and self._changes:
            await self._on_sync(list(self._changes))
        self._changes.clear()


def _log_changes(changes: list[WorkflowChange], *, is_first: bool) -> None:
    for change in changes:
        if change.event == "workflow.broken":
            log.warning(change.event, **change.details)
        elif is_first:
            # The greeting lists all workflows.
            log.debug(change.event, **change.details)
        else:
            log.info(change.event, **change.details)
