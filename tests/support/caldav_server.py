"""A real CalDAV server on loopback: Radicale, with accounts, in a thread of its own."""

import base64
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from radicale import config
from radicale.app import Application

USER, PASSWORD = "ann", "correct horse battery"


class CalDavServer:
    """One account, whose calendars a test fills."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[str, str]] = []

    def url(self, path: str = "/") -> str:
        """Return the address of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def request(self, method: str, path: str, body: str = "") -> None:
        """Send a request as the account's owner; it must succeed."""
        request = urllib.request.Request(self.url(path), body.encode() or None, method=method)
        credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request.add_header("Authorization", f"Basic {credentials}")
        request.add_header("Content-Type", "text/calendar; charset=utf-8")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def create_calendar(self, path: str, name: str, component: str = "VEVENT") -> None:
        """Create a calendar that takes events, or another kind of component."""
        body = (
            '<C:mkcalendar xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><set><prop>'
            f"<displayname>{name}</displayname><C:supported-calendar-component-set>"
            f'<C:comp name="{component}"/></C:supported-calendar-component-set>'
            "</prop></set></C:mkcalendar>"
        )
        self.request("MKCALENDAR", path, body)


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def caldav_server(folder: Path) -> Iterator[CalDavServer]:
    """Run a server for as long as the block lasts; its data is in a folder."""
    accounts = folder / "accounts"
    accounts.write_text(f"{USER}:{PASSWORD}\n", encoding="utf-8")
    configuration = config.load()
    configuration.update(
        {
            "auth": {
                "type": "htpasswd",
                "htpasswd_filename": str(accounts),
                "htpasswd_encryption": "plain",
                "delay": "0",
            },
            "storage": {"filesystem_folder": str(folder / "data"), "_filesystem_fsync": "False"},
            "logging": {"level": "error"},
        },
        "test",
        privileged=True,
    )
    application = Application(configuration)
    running: list[CalDavServer] = []

    def count(environ: dict[str, Any], start_response: Any) -> Any:
        running[0].requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return application(environ, start_response)

    with make_server("127.0.0.1", 0, count, WSGIServer, _Handler) as server:
        running.append(CalDavServer(server.server_port))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield running[0]
        finally:
            server.shutdown()
            thread.join(10)
