"""What a failed call of a platform means: certainly not sent, or unknown."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.channels.channel import DeliveryError, Notification
from agent.channels.chat.chat_error import UNTRUSTED_SECONDS
from agent.channels.messages.messenger import ChannelMessenger
from agent.channels.supervisor import open_channel
from agent.config.channels import (
    TEST_NOTICE,
    ChannelSettings,
    SlackSettings,
    TelegramSettings,
    WebhookSettings,
)
from agent.config.settings import Settings
from agent.steps.types.attachment import Attachment
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.messages import MessagePart, Recipient, Sending
from agent.store.db.database import Database
from tests.support.chat_server import Failure, Peer
from tests.support.slack_server import SlackServer
from tests.support.telegram_server import BotServer
from tests.support.untrusted_server import untrusted_server
from tests.support.webhook_receiver import SECRET


@pytest.fixture(params=["telegram", "slack"], scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """Return the other side of a chat, one for all tests."""
    directory = Path(tmp_path_factory.mktemp("chat"))
    peer: Peer = SlackServer(directory) if request.param == "slack" else BotServer(directory)
    yield peer
    peer.close()


def _send(
    channels: ChannelSettings, database: Database, to: Recipient, part: MessagePart
) -> object:
    messenger = ChannelMessenger(Settings(channels=channels), database)

    async def send() -> object:
        try:
            return await messenger.send(Sending(to, part, "key", "task"))
        finally:
            await messenger.aclose()

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("failure", "error", "may_retry"),
    [
        (Failure(429, "slow down", 7), DefiniteFailure, True),
        (Failure(403, "channel_not_found"), DefiniteFailure, False),
        (Failure(500), UnknownOutcomeError, None),
        (Failure(502), UnknownOutcomeError, None),
        (Failure(0), UnknownOutcomeError, None),
    ],
)
def test_failures_are_told_apart(
    server: Peer,
    sqlite_database: Database,
    failure: Failure,
    error: type[Exception],
    may_retry: bool | None,
) -> None:
    """A refusal was not sent; an answer that never came, or an error of the server, is unknown."""
    server.fail("send", failure)
    to = Recipient(server.name, server.identity(1))
    with pytest.raises(error) as raised:
        _send(server.settings(), sqlite_database, to, MessagePart("hello"))
    if isinstance(raised.value, DefiniteFailure):
        assert raised.value.may_retry is may_retry
        assert raised.value.delay_seconds == (7.0 if failure.status == 429 else None)


def test_a_refused_connection_was_not_sent(
    server: Peer, sqlite_database: Database, tmp_path: Path
) -> None:
    """A channel that cannot be reached is tried again, and its call is not unknown."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    channels = server.settings()
    one = getattr(channels, server.name).model_copy(update={"api_url": f"http://127.0.0.1:{port}"})
    closed = channels.model_copy(update={server.name: one})
    to = Recipient(server.name, server.identity(1))
    with pytest.raises(DefiniteFailure) as raised:
        _send(closed, sqlite_database, to, MessagePart("hello"))
    assert raised.value.may_retry
    assert raised.value.error.code == "unreachable"


def test_a_text_that_is_refused_as_malformed_is_sent_as_plain_text(
    server: Peer, sqlite_database: Database
) -> None:
    """The look is lost, and not the message."""
    what = "invalid_blocks" if server.name == "slack" else "Bad Request: can't parse entities: no"
    server.fail("send", Failure(403 if server.name == "slack" else 400, what))
    to = Recipient(server.name, server.identity(2))
    _send(server.settings(), sqlite_database, to, MessagePart("a **bold** word"))
    assert server.messages[-1].text == "a bold word"


@pytest.mark.parametrize("name", ["report.csv", "chart.png"])
def test_files_arrive(server: Peer, sqlite_database: Database, name: str) -> None:
    """A file arrives with its name and its content; a picture may be one, or a file."""
    to = Recipient(server.name, server.identity(3))
    part = MessagePart("", attachment=Attachment(name, b"\x00\x01content"))
    _send(server.settings(), sqlite_database, to, part)
    file = server.files[-1]
    assert (file.recipient, file.name, file.content) == (to.id, name, b"\x00\x01content")


def test_a_channel_that_is_not_configured_says_so(sqlite_database: Database) -> None:
    """A message to it fails for good, with the section of the configuration to fill in."""
    with pytest.raises(DefiniteFailure, match=r"\[channels.slack\]") as raised:
        _send(ChannelSettings(), sqlite_database, Recipient("slack", "U1"), MessagePart("hello"))
    assert not raised.value.may_retry


def test_a_thread_is_written_in(server: Peer, sqlite_database: Database) -> None:
    """Of Slack by its first message, of Telegram by the number of its topic."""
    identity = server.identity(4)
    thread = f"D{identity}:12.5" if server.name == "slack" else "12"
    to = Recipient(server.name, identity, thread)
    _send(server.settings(), sqlite_database, to, MessagePart("hello"))
    assert server.messages[-1].thread == ("12.5" if server.name == "slack" else "12")


@pytest.mark.parametrize("channel", ["telegram", "slack"])
def test_a_message_to_an_untrusted_service_is_not_tried_again(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    """Its certificate would be the same; and nothing was sent."""
    monkeypatch.setenv("TOKEN", "the-token")
    to = Recipient(channel, "1" if channel == "telegram" else "U0123")
    with untrusted_server() as server:
        settings = ChannelSettings(
            telegram=TelegramSettings(token="env:TOKEN", api_url=server.url),
            slack=SlackSettings(bot_token="env:TOKEN", app_token="env:TOKEN", api_url=server.url),
        )
        with pytest.raises(DefiniteFailure) as raised:
            _send(settings, sqlite_database, to, MessagePart("hello"))
    assert not raised.value.may_retry
    assert "certificate" in raised.value.error.message
    assert server.connections == 1


@pytest.mark.parametrize("name", ["webhook", "notify:telegram:1"])
def test_a_notice_to_an_untrusted_receiver_waits_for_the_one_who_mends_it(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is not lost, and the receiver is asked seldom."""
    monkeypatch.setenv("TOKEN", SECRET)

    async def deliver(url: str) -> None:
        settings = ChannelSettings(
            webhook=WebhookSettings(url=url, secret="env:TOKEN"),
            telegram=TelegramSettings(token="env:TOKEN", api_url=url),
        )
        channel = open_channel(name, Settings(channels=settings), sqlite_database)
        try:
            await channel.deliver(Notification("id", TEST_NOTICE, 0, None))
        finally:
            await channel.close()

    with untrusted_server() as server, pytest.raises(DeliveryError) as raised:
        asyncio.run(deliver(server.url))
    assert "certificate" in str(raised.value)
    assert raised.value.retry_after_seconds == UNTRUSTED_SECONDS
    assert raised.value.max_attempts is None
