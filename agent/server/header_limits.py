"""A connection: bounded in how long it may idle, how large its heads are, and how it ends.

uvicorn bounds none of these. A client that never ends its headers, or that sends trailers without
end, would hold a connection for good and fill the memory before it was asked for a token. All
connections together are bounded as well: where there are too many, the one that has waited longest
for a request is closed.
"""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS: Final = 30.0
"""From the opening of a connection, or the end of its last answer, to the end of the next head."""
FIRST_BYTE_SECONDS: Final = 10.0
"""From the opening of a connection to its first byte."""
HEAD_BYTES: Final = 65_536
"""Of the request line, the headers and the trailers of one request together."""
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 1_048_576
"""How long, and how much, a refused request may go on before its connection is cut."""
CONNECTION: Final = "agent.connection"
"""Under which name a request's scope has its connection."""
_SLICE_BYTES: Final = 16_384
_FIELD_BYTES: Final = 4
"""Of the colon, the space and the line's end of each header."""
_LINE_BYTES: Final = 16
"""Of the method, the version and the line's end of a request line."""


class HeadTooLargeError(Exception):
    """The headers and trailers of a request are larger than they may be."""


class Connection(HttpToolsProtocol):
    """One connection of a client; `bounded` returns the class that a server uses."""

    most_connections: ClassVar[int]
    idle: "ClassVar[OrderedDict[Connection, None]]"
    """Those that wait for a head, the one that has waited longest first."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._patience: asyncio.TimerHandle | None = None
        """Runs while the next head is awaited."""
        self._is_silent = True
        """Until its first byte."""
        self._is_in_head = False
        self._head_bytes = 0
        """How much has come of a head that is not whole yet."""
        self._field_bytes = 0
        """How large the fields of the head and of the trailers are that have come whole."""
        self._unseen_bytes = 0
        """How much the parser has taken since it last reported anything: a part of a field."""
        self._is_too_large = False
        self._lingered_bytes: int | None = None
        """How much came after the end of a connection was begun; None before that."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request; above the bound, close the longest idle one."""
        self._socket = transport
        super().connection_made(_GentleTransport(transport, self))  # type: ignore[arg-type]
        self._await_head(FIRST_BYTE_SECONDS)
        if len(self.connections) > self.most_connections:
            # This one itself if all others are at work.
            longest_idle = next(iter(self.idle))
            longest_idle.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop_waiting()
        super().connection_lost(exc)

    def cut(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self.connections.discard(self)
        self._socket.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came, in slices; a head, or trailers, beyond the bound end the connection."""
        if self._lingered_bytes is not None:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > LINGER_BYTES:
                self.cut()
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
            taken = self._head_bytes if self._is_in_head else self._field_bytes + self._unseen_bytes
            if taken > HEAD_BYTES:
                self._is_too_large = True
                self.send_400_response("")
                return

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed, and close."""
        if self._is_too_large:
            msg = f"The headers of a request may have at most {HEAD_BYTES} bytes."
        super().send_400_response(msg)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Take the beginning of a head."""
        self._is_in_head = True
        self._field_bytes = _LINE_BYTES
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is counted and dropped, since the headers were checked before."""
        self._count(len(name) + len(value) + _FIELD_BYTES)
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Take a whole head."""
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._unseen_bytes = 0
        self._is_in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._unseen_bytes = 0
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Take the beginning of a chunk."""
        self._unseen_bytes = 0

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        # What follows in the same slice is the next head.
        self._head_bytes = self._unseen_bytes = self._field_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, unless it is here already."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head(HEAD_SECONDS)

    def _count(self, size: int) -> None:
        self._unseen_bytes = 0
        self._field_bytes += size
        if self._field_bytes > HEAD_BYTES:
            self._is_too_large = True
            raise HeadTooLargeError

    # Waiting, and the end.

    def _await_head(self, seconds: float) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(seconds, self._lose_patience)
        self.idle[self] = None

    def _lose_patience(self) -> None:
        if self._lingered_bytes is None:
            self.timeout_keep_alive_handler()
        else:
            self.cut()

    def _stop_waiting(self) -> None:
        self.idle.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @property
    def has_unread_body(self) -> bool:
        """Whether a part of the newest request is still to come."""
        return self._is_too_large or (self.cycle is not None and self.cycle.more_body)

    def awaits_body_of(self, scope: Any) -> bool:
        """Whether a part of this request is still to come, and not of one that follows it."""
        return self.has_unread_body and self.cycle.scope is scope

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is answered here."""
        return self._lingered_bytes is not None or self._socket.is_closing()

    def end(self) -> None:
        """Close the connection, so that its last answer arrives.

        A socket that is closed while the client still sends resets the connection, and the client
        may lose the answer. So the sending side is closed first, and what comes is dropped for a
        short while.
        """
        if not self.has_unread_body:
            self._socket.close()
        elif not self.is_ending:
            self._lingered_bytes = 0
            self._socket.write_eof()
            self._socket.resume_reading()
            self._await_head(LINGER_SECONDS)
            self.idle.move_to_end(self, last=False)


class _GentleTransport:
    """The transport that uvicorn sees: closing it ends the connection as `Connection.end` does."""

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


def bounded(most_connections: int) -> type[Connection]:
    """Return the class of connections of one server, which has at most so many of them."""

    class Bounded(Connection):
        pass

    Bounded.most_connections = most_connections
    Bounded.idle = OrderedDict()
    return Bounded
