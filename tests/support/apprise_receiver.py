"""A server on loopback that the `json://` service of Apprise posts to."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class AppriseReceiver:
    """Takes what Apprise posts."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                receiver.received.append(json.loads(self.rfile.read(length)))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()
        self.address = f"json://127.0.0.1:{self._server.server_address[1]}/secret-path"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def apprise(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppriseReceiver]:
    """Return a server whose address is in the environment, as `env:ALERTS`."""
    server = AppriseReceiver()
    monkeypatch.setenv("ALERTS", server.address)
    yield server
    server.close()
