"""Notices to a program: signed as others verify, retried, in order, none missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.channels.link_signing import key_of
from agent.channels.secret_ref import SecretError
from agent.config.channels import ChannelSettings, WebhookSettings
from agent.config.settings import Settings
from agent.store.channels import cursors as store
from agent.store.engine import outages
from tests.support.approvals import MESSAGE, asked, gated, say, token
from tests.support.chat import Open
from tests.support.engine import Engine, eventually, graph, step
from tests.support.webhook_receiver import SECRET, Receiver, receiving


@pytest.fixture
def receiver(engine: Engine, open_channels: Open, tmp_path: Path) -> Iterator[Receiver]:
    """Return a program that gets every notification of a running channel."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    with receiving() as receiver:
        webhook = WebhookSettings(
            url=receiver.url,
            secret=f"file:{secret}",
            link_base_url="https://agent.example.com/",
        )
        open_channels(Settings(base=tmp_path, channels=ChannelSettings(webhook=webhook)))
        _wait_until_begun(engine)
        yield receiver


def _wait_until_begun(engine: Engine) -> None:
    """Wait until the channel delivers what happens next: a new one skips the past."""

    def has_begun() -> bool:
        with engine.database.connect("reader") as connection:
            cursor = store.cursor(connection, "webhook")
        return cursor is not None and cursor.position != store.NOT_BEGUN

    eventually(has_begun)


def _types(receiver: Receiver) -> list[str]:
    return [document["type"] for document in receiver.taken]


def test_a_question_and_its_answer(engine: Engine, receiver: Receiver) -> None:
    """What is asked comes in full, with a link; what was decided comes after it."""
    task_id, approval = asked(engine, gated("pay", token()))
    # A question that is decided before it is delivered has no link.
    eventually(lambda: receiver.taken)
    say(engine, approval, "deny", comment="not today")
    engine.wait(task_id, "failed")
    eventually(lambda: len(receiver.taken) == 3, lambda: receiver.taken)
    asking, decided, failed = receiver.taken
    assert _types(receiver) == ["approval.requested", "approval.decided", "task.failed"]
    assert asking["data"]["approval"]["message"] == MESSAGE
    assert asking["data"]["approval"]["request"]["config"]["with"]["value"] == 12
    assert asking["data"]["task"]["id"] == task_id
    assert asking["data"]["link"].startswith("https://agent.example.com/links/" + approval["id"])
    assert asking["timestamp"].endswith("Z")
    assert decided["data"]["approval"]["decision"]["comment"] == "not today"
    assert "link" not in decided["data"]
    assert failed["data"]["task"]["error"]["message"].endswith("not today")


def test_undelivered_notifications_are_retried_in_order(engine: Engine, receiver: Receiver) -> None:
    """After any response but 2xx it is sent again with the same id, and nothing overtakes it."""
    receiver.statuses += [500, 0, 429, 302]
    first, _ = asked(engine, gated("pay", token()))
    second, _ = asked(engine, gated("pay", token()))
    eventually(lambda: len(receiver.taken) == 2)
    assert [document["data"]["task"]["id"] for document in receiver.taken] == [first, second]
    assert receiver.ids[:5] == [receiver.ids[0]] * 5
    assert len(set(receiver.ids)) == 2
    # A receiver of several agents' notifications can tell them apart by this id alone.
    assert first in receiver.ids[0]
    assert second in receiver.ids[-1]


def test_a_refused_notification_does_not_hold_up_the_rest(
    engine: Engine, receiver: Receiver
) -> None:
    """A notification that its receiver refuses five times is recorded and dropped."""
    receiver.statuses += [400] * 5
    asked(engine, gated("pay", token()))
    second, _ = asked(engine, gated("pay", token()))
    eventually(lambda: receiver.taken)
    assert [document["data"]["task"]["id"] for document in receiver.taken] == [second]
    events = engine.rows("SELECT data FROM events WHERE type = 'delivery.failed' ORDER BY id")
    assert ['"given_up": true' in data for (data,) in events] == [False, True]
    with engine.database.connect("reader") as connection:
        cursor = store.cursor(connection, "webhook")
    assert cursor is not None
    assert cursor.trouble is None


def test_only_the_configured_events_are_delivered(
    engine: Engine, open_channels: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`events` chooses."""
    monkeypatch.setenv("HOOK", SECRET)
    with receiving() as receiver:
        webhook = WebhookSettings(url=receiver.url, secret="env:HOOK", events=["task.succeeded"])
        open_channels(Settings(base=tmp_path, channels=ChannelSettings(webhook=webhook)))
        _wait_until_begun(engine)
        engine.run(graph(step("bad", "fail")), "failed")
        done = engine.run(graph(step("fine")), "succeeded")
        eventually(lambda: receiver.taken)
        assert [document["data"]["task"]["id"] for document in receiver.taken] == [done["id"]]


def test_a_channel_opens_once_its_secret_is_there(
    engine: Engine, open_channels: Open, tmp_path: Path
) -> None:
    """A missing secret is on record, without itself; the channel opens when it comes."""
    secret = tmp_path / "secret"
    with receiving() as receiver:
        webhook = WebhookSettings(url=receiver.url, secret=f"file:{secret}")
        open_channels(Settings(base=tmp_path, channels=ChannelSettings(webhook=webhook)))

        def trouble() -> str | None:
            with engine.database.connect("reader") as connection:
                cursor = store.cursor(connection, "webhook")
            return None if cursor is None else cursor.trouble

        eventually(lambda: "cannot be read" in (trouble() or ""))
        secret.write_text("too short")
        eventually(lambda: "must be whsec_ and" in (trouble() or ""))
        secret.write_text(SECRET)
        asked(engine, gated("pay", token()))
        eventually(lambda: receiver.taken)
        eventually(lambda: trouble() is None)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "whsec_???"])
def test_secrets_that_protect_nothing_are_refused(secret: str) -> None:
    """A secret must be base64 of enough bytes."""
    with pytest.raises(SecretError, match="must be whsec_ and"):
        key_of(secret)


def test_a_webhook_needs_a_secret_and_events_that_exist() -> None:
    """Mistakes in the configuration are reported at once."""
    with pytest.raises(ValueError, match="url needs secret"):
        WebhookSettings(url="https://example.com")
    with pytest.raises(ValueError, match=r"'task\.exploded' is not an event"):
        WebhookSettings(events=["task.exploded"])


def test_an_outage_and_its_end_are_delivered_once(engine: Engine, receiver: Receiver) -> None:
    """A store of large values that does not answer is news, and so is one that does again."""
    outage = {"outage": "1", "store": "s3://bucket", "error": "connection refused"}
    outages.record(engine.database, "artifacts.unreachable", outage)
    outages.record(engine.database, "artifacts.reachable", {"outage": "1", "store": "s3://bucket"})
    eventually(lambda: len(receiver.taken) == 2, lambda: receiver.taken)
    assert _types(receiver) == ["artifacts.unreachable", "artifacts.reachable"]
    assert receiver.taken[0]["data"] == {"task": None, "outage": outage}


def test_a_notice_about_a_trigger_is_delivered(engine: Engine, receiver: Receiver) -> None:
    """A program gets the data of the event."""
    data = {"trigger": "backup:nightly", "workflow": "backup", "count": 2, "reason": "asleep"}
    outages.record(engine.database, "schedule.missed", data)
    eventually(lambda: len(receiver.taken) == 1, lambda: receiver.taken)
    assert _types(receiver) == ["schedule.missed"]
    assert receiver.taken[0]["data"] == {"task": None, "trigger": data}


def test_notices_about_disk_and_backups_are_delivered(engine: Engine, receiver: Receiver) -> None:
    """A program gets the data of the event."""
    low = {"path": "/data", "host": "home", "free_bytes": 1, "total_bytes": 2, "level": "low"}
    outages.record(engine.database, "disk.low", low)
    outages.record(engine.database, "backup.failed", {"directory": "/b", "error": "no room"})
    eventually(lambda: len(receiver.taken) == 2, lambda: receiver.taken)
    assert _types(receiver) == ["disk.low", "backup.failed"]
    assert receiver.taken[0]["data"] == {"task": None, "upkeep": low}
