"""A server on loopback whose certificate no client trusts; it counts the connections."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CERTIFICATE = Path(__file__).parent / "tls" / "server.pem"


class UntrustedServer:
    """Offers TLS for `localhost`, signed by an authority that no client knows."""

    def __init__(self) -> None:
        self.connections = 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(_CERTIFICATE)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self.listening.getsockname()[1]}"

    def run(self) -> None:
        """Answer each connection with the certificate; the body of a thread."""
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                self.connections += 1
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    self._context.wrap_socket(connection, server_side=True).close()


@contextmanager
def untrusted_server() -> Iterator[UntrustedServer]:
    """Run the server for as long as the block lasts."""
    server = UntrustedServer()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        # `close` alone does not wake a thread that waits in `accept`.
        with suppress(OSError):
            server.listening.shutdown(socket.SHUT_RDWR)
        server.listening.close()
        thread.join(10)
