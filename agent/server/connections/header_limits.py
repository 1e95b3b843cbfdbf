"""Limits on connections: idle time, size of headers, unread responses, orderly close, their number.

uvicorn limits none of these. A client that never ends its headers or trailers, never reads, or sends
requests without end before it reads, would hold a connection forever and fill the memory before any
token is checked. When there are too many connections, one without a token that does not read is
closed, or else the one that has been idle longest.
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
WRITE_SECONDS: Final = 30.0
"""How long a client may read nothing of what was written for it."""
CONNECTION: Final = "agent.connection"
"""The key of the connection in a request's ASGI scope."""
_SLICE_BYTES: Final = 16_384
_UNREAD_BYTES: Final = 32_768
"""A response waits while more than this is unread; a part that is written at once may be larger."""
_FIELD_BYTES: Final = 4
"""The colon, space and line end of each header."""
_LINE_BYTES: Final = 16
"""The method, version and line end of a request line."""


class HeadTooLargeError(Exception):
    """The headers and trailers of a request exceed `HEAD_BYTES`."""


class TooManyRequestsError(Exception):
    """A client has sent a request while one of its requests is in progress and another one waits."""


class Connection(HttpToolsProtocol):
    """One connection of a client; `limited_to` returns the class that a server uses."""

    max_connections: ClassVar[int]
    idle: "ClassVar[OrderedDict[Connection, None]]"
    """Connections that wait for a request, the longest idle first."""
    strangers: "ClassVar[OrderedDict[Connection, None]]"
    """Connections without a token that do not wait for one: first those whose client does not read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs while the connection waits for headers."""
        self._write_timer: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._is_known = False
        """Whether a request on this connection had a valid token."""
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
        self._is_deaf = False
        """Whether what still arrives is discarded: the connection ends after the requests before it."""
        self._lingered_bytes: int | None = None
        """Bytes received after `end` was called; None before that."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; above the limit, close another connection."""
        self._socket = transport
        transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        super().connection_made(_LingeringTransport(transport, self))  # type: ignore[arg-type]
        self._await_head(FIRST_BYTE_SECONDS)
        if len(self.connections) > self.max_connections:
            self._make_room()

    def _make_room(self) -> None:
        """Close the connection that is missed least; this one if all others have a token and are busy."""
        stranger = next(iter(self.strangers), self)
        longest_idle = next(iter(self.idle))
        is_blocked = stranger._write_timer is not None
        (stranger if is_blocked or longest_idle is self else longest_idle).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self.resume_writing()
        self.strangers.pop(self, None)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self.strangers.pop(self, None)
        self.connections.discard(self)
        self._socket.abort()

    def know(self) -> None:
        """Note that a request had a valid token."""
        self._is_known = True
        self.strangers.pop(self, None)

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
            if self._is_deaf or self.transport.is_closing() or self.parser is None:
                return
            piece = data[start : start + _SLICE_BYTES] if len(data) > _SLICE_BYTES else data
            self._head_bytes += len(piece)
            self._unseen_bytes += len(piece)
            super().data_received(piece)
            size = self._head_bytes if self._is_in_head else self._field_bytes + self._unseen_bytes
            if size > HEAD_BYTES and not self._is_deaf:
                self._is_too_large = True
                self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Refuse input that cannot be parsed, after the responses to the requests before it, and close."""
        self._is_deaf = True
        if self._is_too_large:
            msg = f"The headers of a request may have at most {HEAD_BYTES} bytes."
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            super().send_400_response(msg)
        elif not cycle.more_body:
            # The newest request is whole.
            cycle.keep_alive = False
        elif self.pipeline:
            # The newest request is the broken one, and its turn has not come.
            self.abort()
        else:
            # To the request in progress, the client has gone.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
            else:
                super().send_400_response(msg)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        """Begin the headers of a request."""
        if self.pipeline:
            raise TooManyRequestsError
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
        if not self._is_known:
            self.strangers[self] = None
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
        if not self.cycle.response_complete:
            return
        if self._is_deaf:
            self.transport.close()
        if self.transport.is_closing():
            return
        if self._write_timer is None:
            self.strangers.pop(self, None)
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

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Note that the client has read most of what was written."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
            if self in self.strangers:
                self.strangers.move_to_end(self)

    def _await_reader(self) -> None:
        unread_bytes = self._socket.get_write_buffer_size()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self._check_reader, unread_bytes)
        if not self._is_known:
            self.strangers[self] = None
            self.strangers.move_to_end(self, last=False)

    def _check_reader(self, unread_bytes: int) -> None:
        """Go on waiting for a client that has read something, however slowly."""
        if self._socket.get_write_buffer_size() < unread_bytes:
            self._await_reader()
        else:
            self.abort()

    @property
    def has_unread_body(self) -> bool:
        """Whether the newest request is incomplete, or something after it was discarded."""
        return self._is_deaf or (self.cycle is not None and self.cycle.more_body)

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
        if self.is_ending:
            return
        if not self.has_unread_body:
            self._socket.close()
        else:
            self._lingered_bytes = 0
            try:
                self._socket.write_eof()
            except OSError:
                # The client has closed the connection already.
                self.abort()
                return
            self._socket.resume_reading()
            self._await_head(LINGER_SECONDS)
            self.idle.move_to_end(self, last=False)
        if self._write_timer is None and self._socket.get_write_buffer_size():
            self._await_reader()


class _LingeringTransport:
    """The transport that uvicorn sees: `close` calls `Connection.end`."""

    __slots__ = ("_connection", "_socket")

    def __init__(self, socket: asyncio.Transport, connection: Connection) -> None:
        self._socket = socket
        self._connection = connection

    def write(self, data: bytes) -> None:
        # The application may still respond after the connection has begun to end.
        if not self._connection.is_ending:
            self._socket.write(data)

    def close(self) -> None:
        self._connection.end()

    def is_closing(self) -> bool:
        return self._connection.is_ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def limited_to(max_connections: int) -> type[Connection]:
    """Return the class of connections of one server, with its own limit and lists."""

    class LimitedConnection(Connection):
        pass

    LimitedConnection.max_connections = max_connections
    LimitedConnection.idle = OrderedDict()
    LimitedConnection.strangers = OrderedDict()
    return LimitedConnection
