"""The messenger of a worker: it chooses the sender of a channel and opens it at the first message."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from agent.channels.chat.chat_error import ChatError
from agent.channels.messages import failures, plain_text, slack_blocks, telegram_html
from agent.channels.messages.split import split
from agent.channels.secret_ref import SecretError, prefetch_secrets, read_secret
from agent.config.settings import Settings
from agent.core.scopes import implied
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.messages import Recipient, Sending
from agent.store.channels import pairings
from agent.store.db.database import Database

_UNBOUNDED: Final = 200_000


class Sender(Protocol):
    """Sends to one channel."""

    async def send(self, sending: Sending) -> str:
        """Send one part and return the channel's id of the message."""

    async def close(self) -> None:
        """Close the connections."""


class ChannelMessenger:
    """Sends messages through the channels of the configuration, from any process."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._senders: dict[str, Sender] = {}

    async def operators(self) -> list[str]:
        """Return whom `operator` stands for: as configured, or every paired person who may operate."""
        if self._settings.notify.operator:
            return list(self._settings.notify.operator)
        return await asyncio.to_thread(self._paired_operators)

    def split(self, channel: str, text: str, *, is_markdown: bool) -> tuple[list[str], str | None]:
        """Return the parts in which a channel gets a text, and the whole for a file if it is cut."""
        limit, measure = _limit_of(channel)
        return split(text, limit, partial(measure, is_markdown=is_markdown))

    async def send(self, sending: Sending) -> str:
        """Send one part and return the channel's id of the message."""
        try:
            await self._prefetch(sending.recipient)
            return await self._sender(sending.recipient.channel).send(sending)
        except ChatError as error:
            raise failures.as_step_failure(error) from None

    async def aclose(self) -> None:
        """Close the connections."""
        while self._senders:
            _, sender = self._senders.popitem()
            await sender.close()

    async def _prefetch(self, recipient: Recipient) -> None:
        """Read secrets that take long off the loop; one that cannot be read fails where it is used."""
        channels = self._settings.channels
        references = {
            "telegram": channels.telegram.token,
            "slack": channels.slack.bot_token,
            "apprise": recipient.id,
        }
        await prefetch_secrets(references.get(recipient.channel, ""))

    def _sender(self, channel: str) -> Sender:
        sender = self._senders.get(channel)
        if sender is None:
            try:
                sender = self._senders[channel] = self._open(channel)
            except SecretError as error:
                raise DefiniteFailure(
                    str(error), code="secret_missing", kind="input", may_retry=False
                ) from None
        return sender

    def _open(self, channel: str) -> Sender:
        channels = self._settings.channels
        if channel == "terminal":
            from agent.channels.messages.terminal_sender import TerminalSender

            return TerminalSender(self._database)
        if channel == "apprise":
            from agent.channels.messages.apprise_sender import AppriseSender

            return AppriseSender()
        if channel not in channels.turned_on:
            raise failures.not_configured(channel)
        if channel == "telegram":
            from agent.channels.messages.telegram_sender import TelegramSender
            from agent.channels.telegram.telegram_api import BotApi

            token = read_secret(channels.telegram.token)
            return TelegramSender(BotApi(channels.telegram.api_url, token, reuses=False))
        return self._open_slack()

    def _open_slack(self) -> Sender:
        try:
            from agent.channels.messages.slack_sender import SlackSender
            from agent.channels.slack_api import SlackApi
        except ImportError as error:
            raise DefiniteFailure(
                f"Slack needs two libraries: python -m pip install slack-sdk aiohttp ({error})",
                code="no_library",
                kind="input",
                may_retry=False,
            ) from None
        app = self._settings.channels.slack
        return SlackSender(SlackApi(app.api_url, read_secret(app.bot_token), reuses=False))

    def _paired_operators(self) -> list[str]:
        with self._database.connect("reader") as connection:
            paired = pairings.listed(connection)
        used = self._settings.channels.turned_on
        return [
            f"{account.channel}:{account.identity}"
            for account in paired
            if account.channel in used and "operate" in implied(account.scopes)
        ]


def _limit_of(channel: str) -> tuple[int, Callable[..., int]]:
    """Return the limit of one message in a channel, and how it is measured."""
    if channel == "telegram":
        return telegram_html.MAX_LENGTH, telegram_html.measure
    if channel == "slack":
        return slack_blocks.MAX_LENGTH, slack_blocks.measure
    if channel == "apprise":
        return plain_text.MAX_LENGTH, plain_text.measure
    return _UNBOUNDED, lambda text, **_: len(text)
