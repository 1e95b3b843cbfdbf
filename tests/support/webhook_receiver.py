"""A program on loopback that takes webhooks, and believes only what is signed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@dataclass
class Receiver:
    """What came, and how the next deliveries are answered."""

    url: str = ""
    taken: list[dict[str, Any]] = field(default_factory=list)
    """The documents that were taken, in their order."""
    ids: list[str] = field(default_factory=list)
    """The ids of all that came, taken or not."""
    statuses: list[int] = field(default_factory=list)
    """What the next ones are answered; 0 hangs up. Then all are taken."""

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status of an answer; raise unless the signature fits."""
        document = Webhook(SECRET).verify(body, headers)
        self.ids.append(headers["webhook-id"])
        status = self.statuses.pop(0) if self.statuses else 204
        if 200 <= status < 300:
            self.taken.append(document)
        return status


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run the program for as long as the block lasts."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.take(headers, body)
            self.close_connection = True
            if status == 0:
                return
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "1")
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/notices"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
