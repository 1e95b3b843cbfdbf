"""Limits on connections: idle time, size of headers, orderly close, and their number.

uvicorn limits none of these. A client that never ends its headers or trailers would hold a
connection forever and fill the memory before any token is checked. When there are too many
connections, the one that has been idle longest is closed.
"""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS: Final = 30.0
"""From the start of a connection, or the end of its last response, to the end of the next headers."""
FIRST_BYTE_SECONDS: Final = 10.0
"""From the start of a connection to its first byte."""
HEAD_BYTES: Final = 65_536
"""The request line, headers and trailers of one request together."""
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 1_048_576
"""How long, and how much, a refused client may go on sending before its connection is aborted."""
CONNECTION: Final = "agent.connection"
"""The key of the connection in a request's ASGI scope."""
_SLICE_BYTES: Final = 16_384
_FIELD_BYTES: Final = 4
"""The colon, space and line end of each header."""
_LINE_BYTES: Final = 16
"""The method, version and line end of a request line."""


class HeadTooLargeError(Exception):
    """The headers and trailers of a request exceed `HEAD_BYTES`."""


class Connection(HttpToolsProtocol):
    """One connection of a client; `limited_to` returns the class that a server uses."""

    max_connections: ClassVar[int]
    idle: "ClassVar[OrderedDict[Connection, None]]"
    """Connections that wait for a request, the longest idle first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs while the connection waits for headers."""
        self._is_silent = True
        """True until the first byte."""
        self._is_in_head = False
        self._head_bytes = 0
        """Bytes received of incomplete headers."""
        self._field_bytes = 0
        """Bytes of the complete header and trailer fields."""
        self._unseen_bytes = 0
        """Bytes since the parser last called back: a part of a field."""
        self._is_too_large = False
        self._lingered_bytes: int | None = None
        """Bytes received after `end` was called; None before that."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; above the limit, close the longest idle connection."""
        self._socket = transport
        super().connection_made(_LingeringTransport(transport, self))  # type: ignore[arg-type]
        self._await_head(FIRST_BYTE_SECONDS)
        if len(self.connections) > self.max_connections:
            # This connection itself if all others are busy.
            longest_idle = next(iter(self.idle))
            longest_idle.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self.connections.discard(self)
        self._socket.abort()

    def data_received(self, data: bytes) -> None:
        """Parse data in slices; headers or trailers beyond the limit end the connection."""
        if self._lingered_bytes is not None:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > LINGER_BYTES:
                self.abort()
            return
        if self._is_silent:
            self._is_silent = False
            self._await_head(HEAD_SECONDS)
        for start in range(0, len(data), _SLICE_BYTES):
            piece = data[start : start + _SLICE_BYTES] if len(data) > _SLICE_BYTES else data
            self._head_bytes += len(piece)
            self._unseen_bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing() or self.parser is None:
                return
            size = self._head_bytes if self._is_in_head else self._field_bytes + self._unseen_bytes
            if size > HEAD_BYTES:
                self._is_too_large = True
                self.send_400_response("")
                return

    def send_400_response(self, msg: str) -> None:
        """Respond to a request that cannot be parsed, and close."""
        if self._is_too_large:
            msg = f"The headers of a request may have at most {HEAD_BYTES} bytes."
        super().send_400_response(msg)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        """Begin the headers of a request."""
        self._is_in_head = True
        self._field_bytes = _LINE_BYTES
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; drop a trailer, since the headers have been checked already."""
        self._count(len(name) + len(value) + _FIELD_BYTES)
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the headers of a request."""
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._unseen_bytes = 0
        self._is_in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        self._unseen_bytes = 0
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Begin a chunk of a body."""
        self._unseen_bytes = 0

    def on_message_complete(self) -> None:
        """End a request."""
        # The rest of the slice belongs to the next request.
        self._head_bytes = self._unseen_bytes = self._field_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived already."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head(HEAD_SECONDS)

    def _count(self, size: int) -> None:
        self._unseen_bytes = 0
        self._field_bytes += size
        if self._field_bytes > HEAD_BYTES:
            self._is_too_large = True
            raise HeadTooLargeError

    # Waiting and closing.

    def _await_head(self, seconds: float) -> None:
        self._stop_waiting()
        self._head_timer = self.loop.call_later(seconds, self._time_out)
        self.idle[self] = None

    def _time_out(self) -> None:
        if self._lingered_bytes is None:
            self.timeout_keep_alive_handler()
        else:
            self.abort()

    def _stop_waiting(self) -> None:
        self.idle.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @property
    def has_unread_body(self) -> bool:
        """Whether the newest request is incomplete."""
        return self._is_too_large or (self.cycle is not None and self.cycle.more_body)

    def awaits_body_of(self, scope: Any) -> bool:
        """Whether this request is incomplete, and not one that follows it."""
        return self.has_unread_body and self.cycle.scope is scope

    @property
    def is_ending(self) -> bool:
        """Whether the connection is being closed."""
        return self._lingered_bytes is not None or self._socket.is_closing()

    def end(self) -> None:
        """Close the connection so that the client receives the last response.

        Closing a socket while the client still sends resets the connection, and the client may lose
        the response. So the sending side is closed first, and incoming data is dropped for a while.
        """
        if not self.has_unread_body:
            self._socket.close()
        elif not self.is_ending:
            self._lingered_bytes = 0
            self._socket.write_eof()
            self._socket.resume_reading()
            self._await_head(LINGER_SECONDS)
            self.idle.move_to_end(self, last=False)


class _LingeringTransport:
    """The transport that uvicorn sees: `close` calls `Connection.end`."""

    __slots__ = ("_connection", "_socket", "write")

    def __init__(self, socket: asyncio.Transport, connection: Connection) -> None:
        self._socket = socket
        self._connection = connection
        self.write = socket.write

    def close(self) -> None:
        self._connection.end()

    def is_closing(self) -> bool:
        return self._connection.is_ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def limited_to(max_connections: int) -> type[Connection]:
    """Return the class of connections of one server, with its own limit and list of idle ones."""

    class LimitedConnection(Connection):
        pass

    LimitedConnection.max_connections = max_connections
    LimitedConnection.idle = OrderedDict()
    return LimitedConnection
