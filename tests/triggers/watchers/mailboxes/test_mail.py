import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from email.message import EmailMessage
from typing import Any
from uuid import uuid4

import pytest

from agent.core.clock import Clock
from agent.steps.attempt.services import Limits
from agent.triggers.watchers.mailboxes import mail
from agent.triggers.watchers.mailboxes.mail_message import describe, unparsed
from agent.triggers.watchers.source import Item, SourceError
from tests.support.imap_server import (
    PASSWORD,
    USER,
    ImapServer,
    imap_server,
    mail_keys,
    message,
)
from tests.support.watching import LOOPBACK, parse_here, poll, poll_context


@pytest.fixture(scope="module")
def server() -> Iterator[ImapServer]:
    """Run one server for all tests here."""
    with imap_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


@pytest.fixture(autouse=True)
def _parsed_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse without a process of its own, which takes most of a poll's time, unless asked for."""
    if "parsed_apart" not in request.fixturenames:
        parse_here(monkeypatch, mail)


@pytest.fixture
def parsed_apart() -> None:
    """Parse in a process of its own, as the agent does."""


@pytest.fixture
def folder(server: ImapServer) -> str:
    """Return an empty folder."""
    name = f"folder-{uuid4().hex[:8]}"
    with server.account() as box:
        box.folder.create(name)
    return name


def subjects(items: list[Item]) -> list[str]:
    """Return what identifies the messages of these tests."""
    return [item.data["subject"] for item in items]


def test_new_messages_are_items_once(server: ImapServer, folder: str) -> None:
    """The first poll shows what is there; the next one what came since; the one after, nothing."""
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(message("old"), folder=folder)
    first = poll(source)
    server.deliver(message("one"), message("two"), folder=folder)
    second = poll(source, first.cursor)
    third = poll(source, second.cursor)
    assert subjects(first.items) == ["old"]
    assert subjects(second.items) == ["one", "two"]
    assert third.items == []
    assert third.cursor == second.cursor
    assert len({item.key for item in first.items + second.items}) == 3
    uidvalidity = first.cursor["uidvalidity"]
    assert second.items[0].key == f"{uidvalidity}:{second.items[0].data['uid']}"


def test_an_empty_folder_is_a_baseline(server: ImapServer, folder: str) -> None:
    """What comes after the first poll of an empty folder is new."""
    source = mail.open_source(mail_keys(server.port, folder))
    first = poll(source)
    server.deliver(message("one"), folder=folder)
    assert first.items == []
    assert subjects(poll(source, first.cursor).items) == ["one"]


def test_messages_stay_unread(server: ImapServer, folder: str) -> None:
    """Neither the first poll nor a later one marks a message as read."""
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(message("old"), folder=folder)
    first = poll(source)
    server.deliver(message("new"), folder=folder)
    assert poll(source, first.cursor).items[0].data["text"] == "Hello.\n"
    with server.account() as box:
        box.folder.set(folder, readonly=True)
        flags = [each.flags for each in box.fetch(mark_seen=False)]
    assert len(flags) == 2
    assert all("\\Seen" not in each for each in flags)


def test_an_item_has_the_message(server: ImapServer, folder: str) -> None:
    """Headers, text, HTML and the list of attachments, without their contents."""
    written = EmailMessage()
    written["Message-ID"], written["In-Reply-To"] = "<2@example.org>", "<1@example.org>"
    written["References"] = "<0@example.org> <1@example.org>"
    written["Subject"] = "Überweisung fällig"
    written["From"] = "Jörg Öztürk <joerg@example.org>"
    written["Reply-To"] = "Office <office@example.org>"
    written["To"] = f"{USER}, Carl <carl@example.org>"
    written["Cc"] = "dora@example.org"
    written["Date"] = "Tue, 03 Mar 2026 10:00:00 +0100"
    written.set_content("Grüße\n")
    written.add_alternative("<p>Grüße</p>", subtype="html")
    written.add_attachment(b"x" * 3000, maintype="application", subtype="pdf", filename="Ä.pdf")
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(bytes(written), folder=folder)
    (item,) = poll(source).items
    data = {name: value for name, value in item.data.items() if name not in ("uid", "size")}
    assert data == {
        "folder": folder,
        "message_id": "<2@example.org>",
        "subject": "Überweisung fällig",
        "from": {"name": "Jörg Öztürk", "address": "joerg@example.org"},
        "reply_to": [{"name": "Office", "address": "office@example.org"}],
        "to": [{"name": "", "address": USER}, {"name": "Carl", "address": "carl@example.org"}],
        "cc": [{"name": "", "address": "dora@example.org"}],
        "date": "2026-03-03T10:00:00+01:00",
        "in_reply_to": "<1@example.org>",
        "references": ["<0@example.org>", "<1@example.org>"],
        "is_automatic": False,
        "text": "Grüße\n",
        "html": "<p>Grüße</p>\n",
        "attachments": [{"name": "Ä.pdf", "type": "application/pdf", "size": 3000}],
        "is_complete": True,
    }


def test_the_first_poll_of_a_large_folder_is_bounded(server: ImapServer, folder: str) -> None:
    """It shows the newest messages, the very newest with text; older ones never become items."""
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(*(message(f"{number:02}") for number in range(45)), folder=folder)
    first = poll(source, context=poll_context(most_items=30))
    assert subjects(first.items) == [f"{number:02}" for number in range(15, 45)]
    has_text = [item.data["text"] is not None for item in first.items]
    assert has_text == [False] * 10 + [True] * 20
    assert has_text == [item.data["is_complete"] for item in first.items]
    assert poll(source, first.cursor).items == []


def test_many_new_messages_come_in_pages(server: ImapServer, folder: str) -> None:
    """What one poll cannot return is left to the next one, at once, in order and without a gap."""
    source = mail.open_source(mail_keys(server.port, folder))
    cursor = poll(source).cursor
    server.deliver(*(message(f"{number:02}") for number in range(25)), folder=folder)
    seen: list[str] = []
    waits: list[float | None] = []
    for _ in range(3):
        page = poll(source, cursor, poll_context(most_items=10))
        cursor = page.cursor
        seen += subjects(page.items)
        waits.append(page.next_seconds)
    assert seen == [f"{number:02}" for number in range(25)]
    assert waits == [0.0, 0.0, None]


class _SlowClock(Clock):
    """Each reading is ten seconds later."""

    def __init__(self) -> None:
        super().__init__()
        self._readings = 0

    def monotonic(self) -> float:
        self._readings += 1
        return self._readings * 10.0


def test_a_poll_that_takes_long_returns_what_it_has(
    server: ImapServer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of its time gone, a poll returns the fetched messages; no poll ends without progress."""
    monkeypatch.setattr(mail, "_GROUP_BYTES", 4_000)
    source = mail.open_source(mail_keys(server.port, folder))
    cursor = poll(source).cursor
    large = "a" * 1_000
    server.deliver(*(message(f"{number}", text=large) for number in range(5)), folder=folder)
    first = poll(source, cursor, poll_context(_SlowClock()))
    second = poll(source, first.cursor, poll_context(_SlowClock()))
    assert subjects(first.items) == ["0", "1", "2"]
    assert first.next_seconds == 0.0
    assert subjects(second.items) == ["3", "4"]


def test_a_new_uidvalidity_is_a_new_baseline(server: ImapServer, folder: str) -> None:
    """After the server numbered the messages again, what is there counts as seen."""
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(message("old"), folder=folder)
    first = poll(source)
    with server.account() as box:
        box.folder.delete(folder)
        box.folder.create(folder)
    server.deliver(message("restored"), folder=folder)
    second = poll(source, first.cursor)
    assert second.new_baseline is not None
    assert "UIDVALIDITY changed" in second.new_baseline
    assert subjects(second.items) == ["restored"]
    assert second.items[0].key != first.items[0].key
    server.deliver(message("new"), folder=folder)
    third = poll(source, second.cursor)
    assert third.new_baseline is None
    assert subjects(third.items) == ["new"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"uid": 5000}, "older state"), ({"mailbox": "another"}, "read another before")],
)
def test_a_cursor_that_does_not_fit_is_a_new_baseline(
    server: ImapServer, folder: str, changed: dict[str, Any], reason: str
) -> None:
    """A server restored from a backup, and a trigger that reads another folder, start again."""
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(message("old"), folder=folder)
    again = poll(source, poll(source).cursor | changed)
    assert again.new_baseline is not None
    assert reason in again.new_baseline
    assert subjects(again.items) == ["old"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"sender": "BOB@example"}, ["Rechnung", 'a "quoted" \\ word']),
        ({"sender": "Jörg"}, ["Grüße aus Köln", "Rechnung 2"]),
        ({"subject": "rechnung"}, ["Rechnung", "Rechnung 2"]),
        ({"subject": "GRÜSSE"}, ["Grüße aus Köln"]),
        ({"subject": 'a "quoted" \\ word'}, ['a "quoted" \\ word']),
        ({"subject": "rechnung", "sender": "jörg"}, ["Rechnung 2"]),
        ({"subject": "%"}, []),
    ],
)
def test_filters(
    server: ImapServer, filtered: str, filters: dict[str, str], expected: list[str]
) -> None:
    """`sender` and `subject` are parts of the decoded headers, whatever their case."""
    source = mail.open_source(mail_keys(server.port, filtered, **filters))
    first = poll(source)
    uid = first.cursor["uid"] - 4
    later = poll(source, first.cursor | {"uid": uid})
    # The server's own search ignores only the case of ASCII.
    assert set(subjects(first.items)) <= set(expected)
    assert subjects(later.items) == expected
    assert poll(mail.open_source(mail_keys(server.port, filtered))).cursor == first.cursor


@pytest.fixture(scope="module")
def filtered(server: ImapServer) -> str:
    """Return a folder with messages to filter."""
    with server.account() as box:
        box.folder.create("filtered")
    server.deliver(
        message("Rechnung"),
        message("Grüße aus Köln", "Jörg <joerg@example.org>"),
        message('a "quoted" \\ word'),
        message("Rechnung 2", "Jörg <joerg@example.org>"),
        folder="filtered",
    )
    return "filtered"


def test_the_first_poll_searches_the_whole_folder(server: ImapServer, folder: str) -> None:
    """The newest message that passes the filter is shown, also when many others are newer."""
    server.deliver(message("wanted"), *(message("other") for _ in range(5)), folder=folder)
    source = mail.open_source(mail_keys(server.port, folder, subject="wanted"))
    first = poll(source, context=poll_context(most_items=3))
    assert subjects(first.items) == ["wanted"]
    assert poll(source, first.cursor).items == []


def test_messages_that_no_filter_can_read_are_named(
    server: ImapServer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no items, since the filter may not have meant them; the others are not affected."""
    source = mail.open_source(mail_keys(server.port, folder, subject="wanted"))
    cursor = poll(source).cursor
    server.deliver(message("wanted"), message("hostile"), message("wanted too"), folder=folder)

    def fail(folder: str, uid: int, raw: bytes, **options: Any) -> Any:
        if b"hostile" in raw:
            return unparsed(folder, uid, options["size"], "it was made to break parsers")
        return describe(folder, uid, raw, **options)

    monkeypatch.setattr(mail, "describe", fail)
    found = poll(source, cursor)
    assert subjects(found.items) == ["wanted", "wanted too"]
    assert (found.passed_over or "").startswith("the headers of the messages with UID ")
    assert poll(source, found.cursor).passed_over is None


@pytest.mark.usefixtures("parsed_apart")
def test_broken_messages_do_not_break_the_poll(server: ImapServer, folder: str) -> None:
    """What cannot be decoded is replaced; the other messages are not affected."""
    source = mail.open_source(mail_keys(server.port, folder))
    cursor = poll(source).cursor
    server.deliver(
        b"\xff\xfe\x00garbage without headers",
        b"Subject: =?x-unknown?b?!!!!?=\r\nDate: yesterday\r\nFrom: <<<>>>\r\n\r\n\xff\xfe",
        message("fine"),
        folder=folder,
    )
    items = poll(source, cursor).items
    assert len(items) == 3
    assert items[1].data["date"] is None
    assert items[2].data["subject"] == "fine"
    assert items[2].data["text"] == "Hello.\n"


def test_a_large_message_is_cut(
    server: ImapServer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the beginning of a large message is fetched, and of its text less."""
    monkeypatch.setattr(mail, "_MESSAGE_BYTES", 100_000)
    source = mail.open_source(mail_keys(server.port, folder))
    server.deliver(message("large", text="ä" * 100_000), folder=folder)
    (item,) = poll(source).items
    assert item.data["size"] > 200_000
    assert item.data["is_complete"] is False
    assert item.data["text"].startswith("ää")
    assert len(item.data["text"].encode()) <= 50_000


def test_a_wrong_password(server: ImapServer, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names server and user, not the password; the next try is minutes away."""
    monkeypatch.setenv("MAIL_PASSWORD", "not the password")
    with pytest.raises(SourceError, match=f"refused the login of {USER}") as caught:
        poll(mail.open_source(mail_keys(server.port, folder)))
    assert "not the password" not in str(caught.value)
    assert caught.value.retry_seconds is not None
    assert caught.value.retry_seconds >= 300


def test_a_missing_password(server: ImapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that leads nowhere is named."""
    monkeypatch.delenv("MAIL_PASSWORD")
    with pytest.raises(SourceError, match="MAIL_PASSWORD is not set"):
        poll(mail.open_source(mail_keys(server.port)))


def test_a_missing_folder(server: ImapServer, folder: str) -> None:
    """The message lists the folders that exist."""
    with pytest.raises(SourceError, match="'Nowhere'") as caught:
        poll(mail.open_source(mail_keys(server.port, "Nowhere")))
    assert "'INBOX'" in str(caught.value)
    assert folder in str(caught.value)


def test_the_address_policy_applies() -> None:
    """A private address is reached only where the configuration allows it; none is connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        keys = mail_keys(listening.getsockname()[1])
        with pytest.raises(SourceError, match="allow_private"):
            poll(mail.open_source(keys), context=poll_context(limits=Limits()))
        listening.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_without_tls_only_loopback_is_reached() -> None:
    """A password is never sent in the clear over a network."""
    limits = replace(LOOPBACK, allow_private=("10.0.0.0/8",))
    source = mail.open_source(mail_keys(143, host="10.0.0.1"))
    with pytest.raises(SourceError, match="is not this machine"):
        poll(source, context=poll_context(limits=limits))


@pytest.mark.parametrize(
    ("greeting", "match"),
    [
        (b"* BYE too many connections\r\n", "too many connections"),
        (b"", "closed the connection"),
        (b"220 mail.example.org ESMTP\r\n", "220 mail.example.org|refused a command|closed"),
    ],
)
def test_a_server_that_ends_the_connection(greeting: bytes, match: str) -> None:
    """What the server says is part of the message."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        source = mail.open_source(mail_keys(listening.getsockname()[1]))
        with pytest.raises(SourceError, match=match):
            poll(source)
        thread.join()


def test_a_server_that_does_not_answer() -> None:
    """A silent server ends the poll by its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        source = mail.open_source(mail_keys(listening.getsockname()[1]))
        with pytest.raises(SourceError, match="did not answer in time"):
            poll(source, context=poll_context(timeout_seconds=0.2))


def test_a_cancelled_poll_ends_its_connection() -> None:
    """The thread of a cancelled poll does not wait for the server any longer."""

    async def story(port: int) -> None:
        source = mail.open_source(mail_keys(port))
        polling = asyncio.create_task(source.poll(None, poll_context()))
        connection, _ = await asyncio.to_thread(listening.accept)
        with connection:
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            connection.settimeout(10)
            assert await asyncio.to_thread(connection.recv, 1) == b""

    with socket.create_server(("127.0.0.1", 0)) as listening:
        started = time.monotonic()
        asyncio.run(story(listening.getsockname()[1]))
        assert time.monotonic() - started < 10
