"""A stand-in for the network to PostgreSQL, which loses an answer on demand."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


class Proxy:
    """Forwards everything until the server sends the answer that is to be lost."""

    def __init__(self, server: Path, directory: Path) -> None:
        self._server = server
        self.lose: bytes | None = None
        """An answer that the client will not get: the connection breaks instead."""
        self.may_answer = threading.Event()
        """Answers wait for this."""
        self.may_answer.set()
        self._accepted = 0
        self._deaf = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / server.name))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def deafen(self) -> None:
        """Drop everything that the newest connection sends from now on."""
        self._deaf = self._accepted

    def close(self) -> None:
        """Take no more connections; those that are open end by themselves."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._accepted += 1
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            for source, target, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._pass_on,
                    args=(source, target, is_answer, self._accepted),
                    daemon=True,
                ).start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, is_answer: bool, number: int
    ) -> None:
        with source, target, contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer:
                    self.may_answer.wait(60)
                    if self.lose is not None and self.lose in data:
                        break
                elif number == self._deaf:
                    continue
                target.sendall(data)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxied(url: str, directory: Path) -> Iterator[tuple[Proxy, str]]:
    """Put a proxy before a server; yields it and the address to use instead."""
    base, _, host = url.partition("?host=")
    proxy = Proxy(Path(host) / ".s.PGSQL.5432", directory)
    try:
        yield proxy, f"{base}?host={directory}"
    finally:
        proxy.close()
