"""A connection: whoever opens one has to bring a request's head, whole, soon and within bounds.

uvicorn bounds neither: a client that never ends its headers would hold a connection for good, or as
much memory as it cares to fill, before anybody could ask it for a token.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS: Final = 30.0
"""From the opening of a connection, or the end of its last answer, to the end of the next head."""
HEAD_BYTES: Final = 65_536


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._patience: asyncio.TimerHandle | None = None
        """Runs while the next head is awaited."""
        self._head_bytes: int | None = None
        """How much has come of a head that is not whole yet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; what is still no whole head may not be longer than one may be."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Take the beginning of a head."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Take a whole head."""
        self._head_bytes = None
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, unless it is here already."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
