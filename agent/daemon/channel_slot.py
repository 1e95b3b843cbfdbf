"""The channels of a daemon, which a reload of the settings replaces."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent import bootstrap
from agent.config.channels import NOTIFIED_EVENTS, delivering
from agent.config.settings import Settings
from agent.store.db.database import Database

if TYPE_CHECKING:
    from agent.channels.supervisor import Channels


class ChannelSlot:
    """Holds the channels that the settings turn on, or none."""

    event_types: Final = frozenset(NOTIFIED_EVENTS)

    def __init__(
        self,
        settings: Settings,
        database: Database,
        worker_id: Callable[[], str],
        server_url: str | None = None,
    ) -> None:
        """Open the channels; `server_url` is where the dashboard is served, if it is."""
        self._worker_id = worker_id
        self._database = database
        self._server_url = server_url
        self._channels = self._open(settings)

    def start(self) -> None:
        """Start to deliver and to receive."""
        if self._channels is not None:
            self._channels.start()

    def wake_for(self, events: list[tuple[Any, ...]]) -> None:
        """Wake the channels for these events; any thread may call this."""
        if (channels := self._channels) is not None:
            channels.wake_for(events)

    async def replace(self, settings: Settings) -> None:
        """Close the channels and open those of changed settings.

        Two connections of one bot would take messages from each other: the old one is closed first.
        """
        self.stop()
        await self.closed()
        self._channels = self._open(settings)
        self.start()

    def stop(self) -> None:
        """Request the end; `closed` waits for it."""
        if self._channels is not None:
            self._channels.stop()

    async def closed(self) -> None:
        """Wait a bounded time until the channels have stopped."""
        if self._channels is not None:
            await self._channels.closed()

    def _open(self, settings: Settings) -> "Channels | None":
        if not delivering(settings.channels, settings.notify):
            return None
        # Imported only where there are channels: the HTTP client takes a while to load.
        from agent.channels.supervisor import Channels
        from agent.triggers.check import check_watcher

        link_of = None
        if self._server_url is not None:
            from agent.server.access.one_time_links import chat_links

            link_of = chat_links(settings, self._server_url)
        limits, clock = bootstrap.limits_of(settings), self._database.clock
        check = partial(check_watcher, self._database, clock, limits)
        return Channels(settings, self._database, link_of, check, self._worker_id)
