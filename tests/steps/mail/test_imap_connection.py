import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from agent.steps.mail.imap_connection import MOST_ANSWER_BYTES, ImapConnection, MailboxError
from agent.triggers.watchers.mailboxes import imap_fetch
from tests.support.imap_server import PASSWORD, mail_keys

ANY_HOST = ("127.0.0.0/8",)


class HostileServer:
    """Logs everyone in, and repeats one piece without an end as the answer to a command."""

    def __init__(self, command: bytes, piece: bytes, pieces: int | None) -> None:
        self._command, self._piece, self._pieces = command, piece, pieces
        self.sent_bytes = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def run(self) -> None:
        """Serve one connection; the body of a thread."""
        with suppress(OSError):
            connection, _ = self.listening.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(b"* OK ready\r\n")
                for line in lines:
                    tag, command = line.split()[:2]
                    if command == b"CAPABILITY":
                        connection.sendall(b"* CAPABILITY IMAP4rev1 IDLE\r\n")
                    if command == b"IDLE":
                        connection.sendall(b"+ go on\r\n")
                    if command == self._command:
                        self._flood(connection)
                    connection.sendall(tag + b" OK done\r\n")

    def _flood(self, connection: socket.socket) -> None:
        left = self._pieces
        while left is None or left > 0:
            connection.sendall(self._piece)
            self.sent_bytes += len(self._piece)
            left = None if left is None else left - 1


@contextmanager
def hostile(command: bytes, piece: bytes, pieces: int | None = None) -> Iterator[HostileServer]:
    """Run a hostile server for one connection."""
    server = HostileServer(command, piece, pieces)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.listening.close()
        thread.join(10)


def connection_to(server: HostileServer, monkeypatch: pytest.MonkeyPatch) -> ImapConnection:
    """Return a connection that opens no folder."""
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    return ImapConnection(mail_keys(server.port, folder=""), ANY_HOST, 10.0)


def search(connection: ImapConnection) -> None:
    """Ask for something, as every command does."""
    connection.mailbox.client.state = "SELECTED"
    connection.mailbox.client.uid("SEARCH", "ALL")


def idle(connection: ImapConnection) -> None:
    """Wait for changes, as the listener of a watcher does."""
    connection.mailbox.idle.start()
    connection.mailbox.idle.poll(60.0)


@pytest.mark.parametrize(
    ("command", "piece", "use"),
    [
        (b"UID", b"* 1 EXPUNGE\r\n" * 5_000, search),
        (b"UID", b"* SEARCH" + b" 1" * 30_000 + b"\r\n", search),
        (b"UID", b"* 1 FETCH (BODY[] {60000}\r\n" + b"x" * 60_000 + b")\r\n", search),
        (b"UID", b"* 1 FETCH (BODY[] {0}\r\n)\r\n" * 2_000, search),
        (b"IDLE", b"* 7 EXISTS\r\n" * 5_000, idle),
    ],
    ids=["lines", "long-lines", "values", "empty-values", "idle"],
)
def test_an_answer_without_an_end_is_cut_off(
    command: bytes,
    piece: bytes,
    use: Callable[[ImapConnection], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer to one command is bounded in total, with what its parts take in memory."""
    with hostile(command, piece) as server:
        connection = connection_to(server, monkeypatch)
        with pytest.raises(MailboxError, match="more than 16,777,216 bytes as one answer"):
            connection.session(lambda: use(connection))
    assert server.sent_bytes < 2 * MOST_ANSWER_BYTES


def test_answers_that_nothing_asked_for_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of days holds the answers to its last command only."""
    with hostile(b"NOOP", b"* 1 EXPUNGE\r\n" * 100, pieces=1) as server:
        connection = connection_to(server, monkeypatch)

        def many() -> int:
            for _ in range(5):
                connection.mailbox.client.noop()
            return len(connection.mailbox.client.untagged_responses["EXPUNGE"])

        assert connection.session(many) == 100


def test_an_answer_that_is_not_imap_is_a_problem_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no defect of the agent, and leaves no traceback."""
    with hostile(b"UID", b"* SEARCH 1 x\r\n", pieces=1) as server:
        connection = connection_to(server, monkeypatch)

        def uids() -> list[int]:
            connection.mailbox.client.state = "SELECTED"
            return [int(uid) for uid in connection.mailbox.uids("ALL")]

        with pytest.raises(MailboxError, match="sent an answer that is not IMAP"):
            connection.session(uids)


@pytest.mark.parametrize("line", [b"BODY[", b'\\"', b'"\\', b"BODY[] ", b"BODY[]<1", b"UID 1 "])
def test_a_line_that_was_made_to_be_slow_is_read_in_linear_time(line: bytes) -> None:
    """A server may send a megabyte of anything; patterns hold the interpreter's lock."""
    started = time.process_time()
    imap_fetch.read_responses([b'1 (UID 7 "' + line * (1_000_000 // len(line))])
    assert time.process_time() - started < 2.0


def test_a_value_longer_than_was_asked_for_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a poll keeps is bounded by what it asked for, not by what the server sends."""
    piece = b"* 1 FETCH (UID 5 BODY[]<0> {5000}\r\n" + b"x" * 5_000 + b")\r\n"
    with hostile(b"UID", piece, pieces=1) as server:
        connection = connection_to(server, monkeypatch)

        def fetch() -> int:
            connection.mailbox.client.state = "SELECTED"
            headers = [imap_fetch.Fetched(5, 10, b"")]
            return len(imap_fetch.fetch(connection, headers, 1_000)[5].raw)

        assert connection.session(fetch) == 1_000
