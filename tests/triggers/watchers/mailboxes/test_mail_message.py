import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.store.db.json_values import encode
from agent.triggers.watchers.mailboxes.mail_message import describe

_lines = st.sampled_from(
    [
        b"Subject: =?utf-8?b?w4Q=?= =?x-unknown?q?=ff?=",
        b"From: =?utf-8?q?J=C3=B6?= <joerg@example.org>, <<>>, a b c",
        b"Date: Tue, 99 Mar 2026 10:00:00 +9999",
        b"Date: Tue, 03 Mar 2026 10:00:00 -0000",
        b"References: <1@a> <2@b>",
        b'Content-Type: multipart/mixed; boundary="x"',
        b"Content-Type: text/plain; charset=undefined",
        b"Content-Type: text/plain; charset*=utf-7''x",
        b"Content-Transfer-Encoding: base64",
        b"Content-Disposition: attachment; filename*0*=utf-8''%ff%00; filename*1=b",
        b"",
        b"--x",
        b"--x--",
        b"w4Q=",
    ]
)
_messages = st.lists(_lines | st.binary(max_size=40), max_size=30).map(b"\r\n".join)


@settings(max_examples=60)
@given(_messages, st.booleans(), st.integers(0, 200))
def test_any_message_becomes_plain_json(raw: bytes, has_body: bool, missing_bytes: int) -> None:
    """Whatever was sent, an item has all its fields, and the database stores it."""
    data = describe("INBOX", 7, raw, size=len(raw) + missing_bytes, has_body=has_body)
    assert data["uid"] == 7
    assert {"subject", "from", "to", "cc", "date", "text", "attachments"} <= data.keys()
    encode(data, "item")
    assert "\0" not in json.dumps(data, ensure_ascii=False)


def test_a_message_that_cannot_be_parsed() -> None:
    """Messages in messages without end break the standard parser; the item keeps its UID."""
    raw = b"Content-Type: message/rfc822\r\n\r\n" * 1500
    data = describe("INBOX", 7, raw, size=len(raw), has_body=True)
    assert data["uid"] == 7
    assert data["error"].startswith("the message cannot be parsed: RecursionError")
    assert data["subject"] == ""


def test_everything_is_bounded() -> None:
    """No header, list or text grows beyond its limit."""
    addresses = ", ".join(f"Name {number} <{number}@example.org>" for number in range(5000))
    references = " ".join(f"<{number}@example.org>" for number in range(5000))
    raw = (
        f"Subject: {'s' * 5000}\r\nTo: {addresses}\r\nReferences: {references}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\n\r\n{'ä' * 80_000}"
    ).encode()
    data = describe("INBOX", 7, raw, size=len(raw), has_body=True)
    assert len(data["subject"]) == 1000
    assert len(data["to"]) == 100
    assert len(data["references"]) == 50
    assert data["references"][0] == "<0@example.org>"
    assert data["references"][-1] == "<4999@example.org>"
    assert len(data["text"].encode()) == 50_000
    assert data["is_complete"] is False


def test_a_cut_attachment_has_no_size() -> None:
    """The size of what was fetched in part is unknown."""
    raw = (
        b'Content-Type: multipart/mixed; boundary="x"\r\n\r\n'
        b"--x\r\nContent-Type: image/png; name=one.png\r\n\r\n1234\r\n"
        b"--x\r\nContent-Type: image/png; name=two.png\r\n\r\n12345678\r\n"
    )
    data = describe("INBOX", 7, raw, size=len(raw) + 10, has_body=True)
    assert data["attachments"] == [
        {"name": "one.png", "type": "image/png", "size": 4},
        {"name": "two.png", "type": "image/png", "size": None},
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Tue, 03 Mar 2026 10:00:00 +0100", "2026-03-03T10:00:00+01:00"),
        ("Tue, 03 Mar 2026 10:00:00 -0000", "2026-03-03T10:00:00+00:00"),
        ("soon", None),
    ],
)
def test_dates(written: str, expected: str | None) -> None:
    """A date has the sender's offset; one that cannot be read is null."""
    raw = f"Date: {written}\r\n\r\n".encode()
    assert describe("INBOX", 7, raw, size=len(raw), has_body=True)["date"] == expected


def test_an_item_always_fits() -> None:
    """A message with every field at its limit still makes an item that can be stored."""
    addresses = ", ".join(f'"{"n" * 990}{number}" <{number}@example.org>' for number in range(200))
    raw = (
        f"To: {addresses}\r\nCc: {addresses}\r\n"
        'Content-Type: multipart/alternative; boundary="x"\r\n\r\n'
        "--x\r\nContent-Type: text/plain\r\n\r\n" + '"\x01' * 50_000 + "\r\n"
        "--x\r\nContent-Type: text/html\r\n\r\n" + '"\x01' * 50_000 + "\r\n--x--\r\n"
    ).encode()
    data = describe("INBOX", 7, raw, size=len(raw), has_body=True)
    assert len(encode({"1:7": data}, "item")) <= 262_144
    assert data["is_complete"] is False
    assert data["text"]
    assert data["to"]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Auto-Submitted: auto-replied (vacation)", True),
        ("Auto-Submitted: no", False),
        ("Precedence: bulk", True),
        ("List-Id: <announce.example.org>", True),
        ("X-Other: 1", False),
    ],
)
def test_a_message_of_a_program_is_marked(header: str, expected: bool) -> None:
    """An answer to such a message may never end, so that workflows can leave it out."""
    raw = f"From: bob@example.org\r\n{header}\r\n\r\nHello".encode()
    data = describe("INBOX", 7, raw, size=len(raw), has_body=True)
    assert data["is_automatic"] is expected
