"""Connection poolers in transaction mode: a small one of our own, and PgBouncer where installed.

Ours gives consecutive transactions of a client to different server sessions, as often as it can.
"""

import contextlib
import os
import pwd
import secrets
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_SSL, _GSS = 80877103, 80877104
_PROTOCOL = 196608
_SESSIONS = 3
_PATIENCE_SECONDS = 30.0


class _Session:
    """One connection to the server, shared by all clients in turn."""

    def __init__(self, path: Path, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        words = b"user\0agent\0database\0" + name.encode() + b"\0\0"
        self.socket.sendall(struct.pack("!ii", len(words) + 8, _PROTOCOL) + words)
        self.greeting = b""
        self.buffer = b""
        for kind, message in self._until_ready():
            if kind == b"S":
                self.greeting += message

    def _until_ready(self) -> Iterator[tuple[bytes, bytes]]:
        while True:
            for kind, message in self.received():
                yield kind, message
                if kind == b"Z":
                    return

    def received(self) -> Iterator[tuple[bytes, bytes]]:
        """Read once and yield the whole messages that came; end with OSError when it is gone."""
        data = self.socket.recv(65536)
        if not data:
            raise OSError
        messages, self.buffer = _split(self.buffer + data)
        yield from messages


def _split(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return (type, whole message) of what is there, and the rest."""
    messages = []
    while len(data) >= 5 and len(data) > (size := struct.unpack("!i", data[1:5])[0]):
        messages.append((data[:1], data[: size + 1]))
        data = data[size + 1 :]
    return messages, data


class Pooler:
    """A few sessions for any number of clients: each keeps one for one transaction."""

    def __init__(self, server: Path, name: str, directory: Path) -> None:
        self._free = deque(_Session(server, name) for _ in range(_SESSIONS))
        self._has_free = threading.Condition()
        self._is_closed = False
        self.switches = 0
        """How often a client went on with another session than before."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / server.name))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more clients and let the sessions go."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._has_free:
            self._is_closed = True
            for session in self._free:
                session.socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _take(self) -> _Session:
        with self._has_free:
            assert self._has_free.wait_for(lambda: bool(self._free), _PATIENCE_SECONDS)
            return self._free.popleft()

    def _give_back(self, session: _Session) -> None:
        with self._has_free:
            self._free.append(session)
            if self._is_closed:
                session.socket.close()
            self._has_free.notify()

    def _greet(self, client: socket.socket) -> None:
        while True:
            size, code = struct.unpack("!ii", _exactly(client, 8))
            _exactly(client, size - 8)
            if code not in (_SSL, _GSS):
                break
            client.sendall(b"N")
        session = self._take()
        self._give_back(session)
        # As poolers do: a key for cancelling that is the client's own, not a session's.
        key = struct.pack("!iii", 12, secrets.randbits(31), secrets.randbits(31))
        client.sendall(
            b"R" + struct.pack("!ii", 8, 0) + session.greeting + b"K" + key + b"Z\0\0\0\5I"
        )

    def _serve(self, client: socket.socket) -> None:
        session: _Session | None = None
        last: _Session | None = None
        unanswered, pending = 0, b""
        with client, contextlib.suppress(OSError, struct.error):
            self._greet(client)
            while True:
                watched = [client] + ([session.socket] if session else [])
                ready, _, _ = select.select(watched, [], [])
                if client in ready:
                    data = client.recv(65536)
                    messages, pending = _split(pending + data)
                    if not data or any(kind == b"X" for kind, _ in messages):
                        break
                    if messages and session is None:
                        session = self._take()
                        self.switches += last not in (None, session)
                        last = session
                    unanswered += sum(kind in (b"S", b"Q") for kind, _ in messages)
                    if session is not None:
                        session.socket.sendall(b"".join(message for _, message in messages))
                elif session is not None:
                    is_idle = False
                    for kind, message in session.received():
                        client.sendall(message)
                        unanswered -= kind == b"Z"
                        is_idle = kind == b"Z" and message[5:] == b"I"
                    if is_idle and unanswered == 0 and not pending:
                        self._give_back(session)
                        session = None
        if session is not None:
            # In the middle of a transaction: it ends with its session.
            session.socket.close()


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise OSError
        data += more
    return data


@contextlib.contextmanager
def pooled(url: str, directory: Path) -> Iterator[tuple[Pooler, str]]:
    """Put our pooler before a database; yields it and the address to use instead."""
    base, _, host = url.partition("?host=")
    pooler = Pooler(Path(host) / ".s.PGSQL.5432", base.rpartition("/")[2], directory)
    try:
        yield pooler, f"{base}?host={directory}"
    finally:
        pooler.close()


def _accepts(path: Path) -> bool:
    """Whether a server accepts connections on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def pgbouncer(url: str, directory: Path) -> Iterator[str | None]:
    """Put PgBouncer before a database; yields its address, or None where it is not installed."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        yield None
        return
    base, _, host = url.partition("?host=")
    settings = directory / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={host} user=agent\n[pgbouncer]\nlisten_addr =\n"
        f"unix_socket_dir = {directory}\nlisten_port = 5432\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = {_SESSIONS}\n"
        f"logfile = {directory}/pgbouncer.log\n"
    )
    # It refuses to run as root, and its user must reach its files.
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(directory, entry.pw_uid, entry.pw_gid)
    process = subprocess.Popen(
        [program, str(settings)], user=user, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        # The file exists a moment before connections are accepted.
        while not _accepts(directory / ".s.PGSQL.5432") and time.monotonic() < deadline:
            assert process.poll() is None, (directory / "pgbouncer.log").read_text()
            time.sleep(0.02)
        yield f"{base}?host={directory}"
    finally:
        process.kill()
        process.wait()
