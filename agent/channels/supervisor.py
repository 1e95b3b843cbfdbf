"""The channels of a daemon, in a thread and an event loop of their own beside the worker."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import structlog

from agent.approvals.permission import Principal
from agent.channels.channel import Channel
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.chat.trigger_commands import CheckWatcher
from agent.channels.delivery_loop import DeliveryLoop
from agent.channels.failure_hook import FailureHook
from agent.channels.link_signing import key_of
from agent.channels.operator_notices import OperatorNotices
from agent.channels.receive_loop import record_trouble
from agent.channels.secret_ref import SecretError, prefetch_secrets, read_secret
from agent.channels.telegram.telegram import Telegram
from agent.channels.telegram.telegram_api import BotApi
from agent.channels.webhook import Webhook
from agent.config.channels import FAILURE_HOOK, NOTIFIED_EVENTS, NOTIFY_PREFIX, delivering
from agent.config.settings import Settings
from agent.core.backoff import Backoff
from agent.store.db.database import Database, StoreError

log = structlog.get_logger(__name__)

GRACE_SECONDS: Final = 5.0
"""How long channels may take to close when the daemon stops."""
_FIRST_PAUSE_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 300.0


LinkOf = Callable[[Principal], str]
"""Makes the reply to a person who asks for a link to the dashboard."""


class MissingLibraryError(Exception):
    """A channel needs a library that is not installed."""


def open_channel(
    name: str,
    settings: Settings,
    database: Database,
    link_of: LinkOf | None = None,
    check_watcher: CheckWatcher | None = None,
) -> Channel:
    """Return a channel; raise `SecretError` or `MissingLibraryError` where it cannot be opened."""
    steps_per_task = settings.engine.steps_per_task
    if name.startswith(NOTIFY_PREFIX):
        return OperatorNotices(name.removeprefix(NOTIFY_PREFIX), settings, database)
    if name == FAILURE_HOOK:
        workflow = settings.notify.failure_workflow
        assert workflow is not None
        return FailureHook(name, workflow, database, steps_per_task)
    if name == "telegram":
        bot = settings.channels.telegram
        return Telegram(
            database,
            BotApi(bot.api_url, read_secret(bot.token)),
            CommandHandler(database, steps_per_task, link_of, check_watcher),
            bot.poll_seconds,
        )
    if name == "slack":
        handler = CommandHandler(database, steps_per_task, link_of, check_watcher)
        return _open_slack(settings, database, handler)
    hook = settings.channels.webhook
    telemetry = settings.telemetry
    return Webhook(
        hook,
        key_of(read_secret(hook.secret)),
        database.clock,
        telemetry.sample_ratio if telemetry.endpoint else None,
    )


def _secret_refs(name: str, settings: Settings) -> list[str]:
    """Return the references that a channel's section of the configuration has."""
    section = getattr(settings.channels, name, None)
    values = {} if section is None else section.model_dump()
    return [value for value in values.values() if isinstance(value, str)]


def _open_slack(settings: Settings, database: Database, handler: CommandHandler) -> Channel:
    try:
        from agent.channels.slack import Slack
    except ImportError as error:
        raise MissingLibraryError(
            f"Slack needs two libraries: python -m pip install slack-sdk aiohttp ({error})"
        ) from None
    app = settings.channels.slack
    return Slack(
        database,
        handler,
        api_url=app.api_url,
        bot_token=read_secret(app.bot_token),
        app_token=read_secret(app.app_token),
    )


class Channels:
    """Runs every configured channel; the worker's event loop calls `start` and `stop`."""

    event_types: Final = frozenset(NOTIFIED_EVENTS)
    """The types of events that a channel may deliver."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        link_of: LinkOf | None = None,
        check_watcher: CheckWatcher | None = None,
        worker_id: Callable[[], str] = str,
    ) -> None:
        """Set up the channels; `link_of` answers `/open`, and `check_watcher` `/watchers check`.

        `worker_id` is the identity under which deliveries are leased.
        """
        self._worker_id = worker_id
        self._settings = settings
        self._check_watcher = check_watcher
        self._link_of = link_of
        self._database = database
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = threading.Event()
        self._stopped: asyncio.Event | None = None
        self._loops: list[DeliveryLoop] = []
        self._thread = threading.Thread(target=self._run, name="channels", daemon=True)

    def start(self) -> None:
        """Start to deliver and to receive."""
        self._thread.start()

    def wake_for(self, events: list[tuple[Any, ...]]) -> None:
        """Wake the delivery loops if an event is for them; may be called twice for the same event."""
        loop = self._loop
        if loop is None or not any(event[2] in self.event_types for event in events):
            return
        # The loop may have ended already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._wake)

    def stop(self) -> None:
        """Request the end; `closed` waits for it."""
        self._is_stopping.set()
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end)

    async def closed(self) -> None:
        """Wait a bounded time until the channels have stopped."""
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, 2 * GRACE_SECONDS)

    def _wake(self) -> None:
        for loop in self._loops:
            loop.wake()

    def _end(self) -> None:
        assert self._stopped is not None
        self._stopped.set()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            # Tasks run on without channels.
            log.exception("channels.ended")

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_stopping.is_set():
            return
        running = [
            asyncio.create_task(self._keep_open(name))
            for name in delivering(self._settings.channels, self._settings.notify)
        ]
        await self._stopped.wait()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=GRACE_SECONDS)
        log.info("channels.stopped")

    async def _keep_open(self, name: str) -> None:
        """Run one channel; after a failure, record it and open the channel again with backoff."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            pause = backoff.next_seconds()
            try:
                await prefetch_secrets(*_secret_refs(name, self._settings))
                channel = self._open(name)
                await self._run_channel(channel)
            except (SecretError, MissingLibraryError) as error:
                trouble = f"cannot be opened: {error}"
                log.error("channel.not_opened", channel=name, error=str(error), retry_seconds=pause)
            except Exception as error:
                trouble = f"an internal error: {type(error).__name__}"
                log.exception("channel.ended", channel=name, retry_seconds=pause)
            try:
                await asyncio.to_thread(record_trouble, self._database, name, trouble)
            except StoreError as error:
                log.warning("channel.no_database", channel=name, error=str(error))
            await asyncio.sleep(pause)

    def _open(self, name: str) -> Channel:
        return open_channel(
            name, self._settings, self._database, self._link_of, self._check_watcher
        )

    async def _run_channel(self, channel: Channel) -> NoReturn:
        """Deliver and receive until cancelled."""
        loop = DeliveryLoop(self._database, channel, self._worker_id)
        self._loops.append(loop)
        log.info("channel.opened", channel=channel.name)
        try:
            await loop.run()
        finally:
            self._loops.remove(loop)
            await channel.close()
