"""A bare HTTP client on kept connections: what it uses of the machine, the server does not have."""

import asyncio
import json
from typing import Any, Final, Self

_MOST_HEADER_BYTES: Final = 64 * 1024


class Answer:
    """What came back."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        """Return the document."""
        return json.loads(self.body)


class Wire:
    """One connection, for one request at a time."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._lead = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, document: Any = None, key: str | None = None
    ) -> Answer:
        """Send a request and read its answer; a connection that was closed is opened again."""
        body = b"" if document is None else json.dumps(document).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._lead}"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if key is not None:
            head += f"Idempotency-Key: {key}\r\n"
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                self._host, self._port, limit=_MOST_HEADER_BYTES
            )
        reader, writer = self._streams
        try:
            writer.write(head.encode() + b"\r\n" + body)
            return await self._read(reader)
        except BaseException:
            self.close()
            raise

    async def _read(self, reader: asyncio.StreamReader) -> Answer:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in lines[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(lines[0].split(" ")[1]), headers, body)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Wires:
    """As many connections as were needed at once, up to a number."""

    def __init__(self, host: str, port: int, token: str, most: int) -> None:
        self._given = (host, port, token)
        self._free: list[Wire] = []
        self._places = asyncio.Semaphore(most)

    async def ask(self, *given: Any, **more: Any) -> Answer:
        """Send a request on a free connection; wait for one when all are in use."""
        async with self._places:
            wire = self._free.pop() if self._free else Wire(*self._given)
            try:
                return await wire.ask(*given, **more)
            finally:
                self._free.append(wire)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for wire in self._free:
            wire.close()
