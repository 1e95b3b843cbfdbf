"""What is Slack's own: its commands, its connection, strangers from elsewhere."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.channels.channel import ReceiveError
from agent.channels.supervisor import MissingLibraryError, open_channel
from agent.config.channels import ChannelSettings, SlackSettings
from agent.config.settings import Settings
from agent.store.db.database import Database
from tests.support.chat import Chat
from tests.support.chat_server import received
from tests.support.engine import eventually
from tests.support.http_server import Received, answer, redirect, serving
from tests.support.slack_server import TEAM, SlackServer


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[SlackServer]:
    """Return the stand-in for Slack alone."""
    server = SlackServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def slack(peer: SlackServer, chat: Chat) -> SlackServer:
    """Return the stand-in for Slack, with the channel running."""
    return peer


def test_slash_commands_are_answered_where_they_were_given(chat: Chat, slack: SlackServer) -> None:
    """`/agent status` and a registered `/status` are the same; who is not paired gets nothing."""
    ada = chat.pair()
    for who, command, text in (
        (ada, "/agent", "status"),
        (ada, "/status", ""),
        (ada, "/agent", ""),
        (slack.identity(2), "/agent", "status"),
    ):
        slack.bring(
            "slash_commands",
            {"team_id": TEAM, "user_id": who, "command": command, "text": text},
        )
    eventually(lambda: len(slack.replies) == 4)
    replies = [reply["text"] for reply in slack.replies]
    assert replies[0] == replies[1] == "tasks: none yet\nopen questions: 0"
    assert "/run WORKFLOW" in replies[2]
    assert "not paired" in replies[3]


def test_words_without_a_slash_are_commands(chat: Chat, slack: SlackServer) -> None:
    """Slack keeps what begins with a slash for itself; a command's name is enough."""
    ada = chat.pair()
    slack.write(ada, "status")
    received(slack, ada, "open questions: 0")


def test_others_are_not_heard(chat: Chat, slack: SlackServer) -> None:
    """Bots, edits, channels and people of other workspaces get no answer, not even a code."""
    stranger = slack.identity(5)
    others: tuple[dict[str, Any], ...] = (
        {"bot_id": "B1"},
        {"subtype": "message_changed"},
        {"channel_type": "channel"},
        {"user_team": "T9999"},
    )
    for more in others:
        slack.write(stranger, "hello", **more)
    slack.bring("something_new", {})
    ada = chat.pair()
    assert {each.recipient for each in slack.messages} == {ada}


def test_a_new_connection_is_made_when_asked_for(chat: Chat, slack: SlackServer) -> None:
    """Slack asks for a new connection now and then; nothing is missed."""
    ada = chat.pair()
    for _ in range(3):
        slack.ask_for_a_new_connection()
        slack.messages.clear()
        slack.write(ada, "status")
        received(slack, ada, "open questions")


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, sqlite_database: Database, tmp_path: Path
) -> None:
    """The error names the libraries to install."""
    monkeypatch.delitem(sys.modules, "agent.channels.slack", raising=False)
    monkeypatch.delitem(sys.modules, "agent.channels.slack_api", raising=False)
    monkeypatch.setitem(sys.modules, "slack_sdk", None)
    monkeypatch.setitem(sys.modules, "slack_sdk.errors", None)
    settings = Settings(base=tmp_path)

    async def begin() -> None:
        open_channel("slack", settings, sqlite_database)

    with pytest.raises(MissingLibraryError, match="pip install slack-sdk aiohttp"):
        asyncio.run(begin())


@pytest.mark.parametrize("where", ["api", "socket"])
def test_redirects_are_not_followed(sqlite_database: Database, tmp_path: Path, where: str) -> None:
    """Another host gets neither a token nor a message, whatever Slack's address answers."""
    for name in ("bot", "app"):
        (tmp_path / name).write_text("xoxb-secret")

    async def receive() -> list[Received]:
        async with serving() as elsewhere, serving() as server:
            server.routes = {
                "/api/auth.test": answer(200, {"ok": True, "team_id": TEAM}),
                "/api/apps.connections.open": answer(
                    200, {"ok": True, "url": server.url("/socket").replace("http:", "ws:")}
                ),
            }
            redirected = "/api/auth.test" if where == "api" else "/socket"
            server.routes[redirected] = redirect(307, elsewhere.url("/stolen"))
            tokens = {f"{name}_token": f"file:{tmp_path}/{name}" for name in ("bot", "app")}
            settings = SlackSettings(**tokens, api_url=server.url("/api"))
            channels = ChannelSettings(slack=settings)
            slack = open_channel(
                "slack", Settings(base=tmp_path, channels=channels), sqlite_database
            )
            with pytest.raises(ReceiveError, match=r"[Rr]edirect"):
                await slack.receive()
            await slack.close()
            assert server.received[-1].target == redirected
            return elsewhere.received

    assert asyncio.run(receive()) == []


def test_both_tokens_are_needed() -> None:
    """One token alone is a mistake in the configuration."""
    with pytest.raises(ValueError, match="go together"):
        SlackSettings(bot_token="env:BOT")
