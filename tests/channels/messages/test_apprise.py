"""Messages to an address of Apprise, sent to a server on loopback."""

import asyncio
import base64

import pytest

from agent.channels.messages.messenger import ChannelMessenger
from agent.config.settings import Settings
from agent.steps.types.attachment import Attachment
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.messages import MessagePart, Recipient, Sending
from agent.store.db.database import Database
from tests.support.apprise_receiver import AppriseReceiver

TO = Recipient("apprise", "env:ALERTS")


def _send(database: Database, part: MessagePart) -> object:
    messenger = ChannelMessenger(Settings(), database)
    return asyncio.run(messenger.send(Sending(TO, part, "key", "task")))


def test_a_message_arrives_as_plain_text(
    apprise: AppriseReceiver, sqlite_database: Database
) -> None:
    """Marks are gone, and nothing in it can mention anyone."""
    _send(sqlite_database, MessagePart("**Backup** done @everyone [log](https://example.com/l)"))
    (given,) = apprise.received
    assert given["message"] == "Backup done @\u2060everyone log (https://example.com/l)"


def test_a_file_arrives(apprise: AppriseReceiver, sqlite_database: Database) -> None:
    """With its name and its content."""
    _send(sqlite_database, MessagePart("", attachment=Attachment("a.csv", b"1,2")))
    (given,) = apprise.received
    (file,) = given["attachments"]
    assert file["filename"] == "a.csv"
    assert base64.b64decode(file["base64"]) == b"1,2"


def test_a_failure_is_unknown_and_shows_no_address(
    apprise: AppriseReceiver, sqlite_database: Database
) -> None:
    """Apprise says only that it did not work: the message may have arrived."""
    apprise.status = 500
    with pytest.raises(UnknownOutcomeError) as raised:
        _send(sqlite_database, MessagePart("hello"))
    assert "secret-path" not in str(raised.value)


@pytest.mark.parametrize("address", [None, "no address at all"])
def test_an_address_that_cannot_be_used_is_refused(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """It is missing, or Apprise does not know its service; a retry would not help."""
    monkeypatch.delenv("ALERTS", raising=False)
    if address is not None:
        monkeypatch.setenv("ALERTS", address)
    with pytest.raises(DefiniteFailure) as raised:
        _send(sqlite_database, MessagePart("hello"))
    assert not raised.value.may_retry
    assert "ALERTS" in raised.value.error.message
    assert "no address at all" not in raised.value.error.message
