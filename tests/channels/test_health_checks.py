"""What `agent doctor` says of channels."""

from pathlib import Path

import pytest

from agent.channels.health_checks import channel_checks
from agent.config.channels import ChannelSettings, WebhookSettings
from agent.config.settings import ServerSettings, Settings
from agent.store.channels import cursors as store
from agent.store.db.database import Database


def _found(database: Database, settings: Settings) -> list[tuple[str, str, str]]:
    with database.connect("reader") as connection:
        return list(channel_checks(settings, connection, is_running=True))


def test_how_a_channel_fares(sqlite_database: Database, tmp_path: Path) -> None:
    """Doctor shows whether a channel is unused, in trouble, failing or well."""
    webhook = WebhookSettings(url="https://example.com", secret="env:HOOK")
    settings = Settings(base=tmp_path, channels=ChannelSettings(webhook=webhook))
    ((_, state, message),) = _found(sqlite_database, settings)
    assert (state, message) == ("warning", "not used yet")
    with sqlite_database.connect("writer") as tx, tx.transaction():
        store.start(tx, "webhook", 1)
    assert _found(sqlite_database, settings)[0][1:] == ("ok", "everything is delivered")
    with sqlite_database.connect("writer") as tx, tx.transaction():
        store.fail(tx, "webhook", "it answered 500", 2_000_000, 1)
    ((_, state, message),) = _found(sqlite_database, settings)
    assert state == "error"
    assert "failed 1 times" in message
    assert "it answered 500" in message
    with sqlite_database.connect("writer") as tx, tx.transaction():
        store.set_trouble(tx, "webhook", "it cannot be opened", 1)
    assert _found(sqlite_database, settings)[0][1:] == ("error", "it cannot be opened")


@pytest.mark.parametrize(("allowed", "count"), [([], 1), (["agent.example.com"], 0)])
def test_links_that_the_door_would_refuse(
    sqlite_database: Database, tmp_path: Path, allowed: list[str], count: int
) -> None:
    """A host that people are sent to must be one that the server answers to."""
    webhook = WebhookSettings(secret="env:HOOK", link_base_url="https://agent.example.com")
    settings = Settings(
        base=tmp_path,
        channels=ChannelSettings(webhook=webhook),
        server=ServerSettings(allowed_hosts=allowed),
    )
    found = [each for each in _found(sqlite_database, settings) if each[0] == "channel webhook"]
    assert [message.startswith("links lead to") for _, _, message in found] == [True] * count
