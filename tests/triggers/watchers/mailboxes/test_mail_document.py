import pytest

from agent.triggers.watchers.mailboxes import mail_document
from agent.triggers.watchers.mailboxes.mail_document import parse

FINE = b"Subject: fine\r\n\r\nHello.\r\n"


def hostile() -> bytes:
    """Return a message whose parts are nested so that the parser checks each line many times."""
    nested = b"".join(
        b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (depth, depth)
        for depth in range(100)
    )
    return nested + b"\r\n" + b"a\r\n" * 300_000


def test_a_message_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an item with an error, and the message after it is parsed."""
    monkeypatch.setattr(mail_document, "_MESSAGE_SECONDS", 0.2)
    messages = [FINE, hostile(), FINE]
    found = parse(
        b"".join(messages),
        {
            "folder": "INBOX",
            "seconds": 20.0,
            "messages": [
                {"uid": uid, "size": len(raw), "has_body": True, "length": len(raw)}
                for uid, raw in enumerate(messages, 1)
            ],
        },
    )
    assert [data["uid"] for data in found] == [1, 2, 3]
    assert [data["subject"] for data in found] == ["fine", "", "fine"]
    assert found[1]["error"] == "the message cannot be parsed: it takes longer than 0.2 s"


def test_many_messages_that_take_too_long() -> None:
    """Once their time is used up each gets little, so that a poll always ends."""
    raw = hostile()
    count = 6
    found = parse(
        raw * count + FINE,
        {
            "folder": "INBOX",
            "seconds": 0.4,
            "messages": [
                {"uid": uid, "size": len(raw), "has_body": True, "length": len(raw)}
                for uid in range(count)
            ]
            + [{"uid": count, "size": len(FINE), "has_body": True, "length": len(FINE)}],
        },
    )
    assert all("error" in data for data in found[:count])
    assert found[count - 1]["error"].endswith("it takes longer than 0.05 s")
    assert found[count]["text"] == "Hello.\n"
