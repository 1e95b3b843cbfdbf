"""Fixtures of the channels' tests: an engine, and a chat on loopback with people in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.channels import delivery_loop, receive_loop, supervisor
from agent.channels.supervisor import Channels
from agent.config.settings import Settings
from agent.store.db.database import Database
from tests.support.apprise_receiver import apprise  # noqa: F401  (a fixture by its name)
from tests.support.chat import Chat, Open, close
from tests.support.chat_server import Peer
from tests.support.cli import cli  # noqa: F401  (a fixture by its name)
from tests.support.engine import Engine
from tests.support.engine_fixtures import (  # noqa: F401  (fixtures by their names)
    checked,
    engine,
    postgres_database,
    start,
)
from tests.support.slack_server import SlackServer
from tests.support.telegram_server import BotServer


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    """Return a database: SQLite, unless a test asks for another by its name."""
    name = getattr(request, "param", "sqlite")
    found = request.getfixturevalue(f"{name}_database")
    assert isinstance(found, Database)
    return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll often, and wait shortly after a failure."""
    monkeypatch.setattr(delivery_loop, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(delivery_loop, "FIRST_DELAY_SECONDS", 0.05)
    monkeypatch.setattr(receive_loop, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture
def open_channels(engine: Engine) -> Iterator[Open]:  # noqa: F811
    """Return a function that runs channels beside the engine; all are ended."""
    opened: list[Channels] = []

    def begin(settings: Settings) -> Channels:
        channels = Channels(settings, engine.database)
        engine.worker.commit_listeners.append(channels.wake_for)
        engine.tail.subscribe(channels.wake_for, channels.event_types)
        channels.start()
        opened.append(channels)
        return channels

    yield begin
    for channels in opened:
        close(channels)


@pytest.fixture(params=["telegram", "slack"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    """Return the other side of a chat: each test that asks for it runs with every chat."""
    server: Peer = SlackServer(tmp_path) if request.param == "slack" else BotServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def chat(peer: Peer, engine: Engine, open_channels: Open, tmp_path: Path) -> Chat:  # noqa: F811
    """Return a chat beside a running engine."""
    return Chat(peer, engine, open_channels, tmp_path)
