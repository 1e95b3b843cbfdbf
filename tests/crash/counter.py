"""The outside world as a separate process: it records every request before it answers.

It serves one request after another. A response means that every earlier request is recorded.
It can delay its responses, so that the caller is often killed in between.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Counter(BaseHTTPRequestHandler):
    """Appends (path, key) of each request to a file."""

    record: Path
    pause_seconds = 0.0
    # A client that connects and sends nothing must not block the others.
    timeout = 60

    def do_POST(self) -> None:
        """Count one effect."""
        length = int(self.headers.get("Content-Length") or 0)
        if len(self.rfile.read(length)) < length:
            return
        key = self.headers.get("Idempotency-Key") or "-"
        with self.record.open("a", encoding="utf-8") as record:
            record.write(f"{self.path} {key}\n")
        if self.path != "/settled":
            time.sleep(self.pause_seconds)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"counted": true}')

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(HTTPServer):
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Ignore clients that were killed while they were served."""


def serve(record: Path, address: Path) -> None:
    """Count until killed; the port is written to a file once it is open."""
    Counter.record = record
    record.touch()
    with _Server(("127.0.0.1", 0), Counter) as server:
        unfinished = address.with_suffix(".new")
        unfinished.write_text(str(server.server_port))
        unfinished.rename(address)
        server.serve_forever()


if __name__ == "__main__":
    Counter.pause_seconds = float(sys.argv[3])
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
