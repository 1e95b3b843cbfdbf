"""A proxy on loopback that loses answers: the agent gets the request and acts, its client hears nothing."""

import socket
import threading
from typing import Any

from tests.support.server import PATIENCE_SECONDS


class LossyProxy:
    """Passes requests on to an agent, and closes the connection instead of an answer where a test wants it."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.lost: list[str] = []
        """The last part of the path of each request whose answer was lost."""
        self._verbs: list[str] = []
        self._to_lose: dict[str, int] = {}
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def lose(self, verb: str, times: int = 1) -> None:
        """Lose the next answers to requests whose path ends in a word."""
        self._to_lose[verb] = times

    def count(self, verb: str) -> int:
        """Return how many requests had a path that ends in a word."""
        return self._verbs.count(verb)

    def __enter__(self) -> "LossyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        agent = socket.create_connection(self._address)
        with client, agent:
            reader, answers = client.makefile("rb"), agent.makefile("rb")
            try:
                while (message := _read(reader)) is not None:
                    agent.sendall(message)
                    answer = _read(answers)
                    verb = message.split(b" ", 2)[1].rpartition(b"/")[2].decode()
                    self._verbs.append(verb)
                    if self._to_lose.get(verb, 0) > 0:
                        self._to_lose[verb] -= 1
                        self.lost.append(verb)
                        return
                    if answer is None:
                        return
                    client.sendall(answer)
            except OSError:
                return


def _read(stream: Any) -> bytes | None:
    """Return one request or response with its body; None at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body: bytes = stream.read(length)
    return head + body
