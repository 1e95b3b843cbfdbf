"""A real HTTP server on loopback that answers as a test wants, or breaks as it wants."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Respond = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Keeps what arrived, and answers each path by its own function."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.routes: dict[str, Respond] = {}
        self.port = 0
        self._answering: set[asyncio.Task[Any]] = set()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """Return the address of a path."""
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        answering = asyncio.current_task()
        assert answering is not None
        self._answering.add(answering)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            method, target, _ = first.split(" ", 2)
            pairs = (line.split(":", 1) for line in lines)
            headers = {name.lower(): value.strip() for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            received = Received(method, target, headers, body)
            self.received.append(received)
            await self.routes[target.split("?")[0]](received, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass
        finally:
            self._answering.discard(answering)
            writer.close()

    def end_answers(self) -> None:
        """Close the connections of requests that have no response yet."""
        for answering in self._answering:
            answering.cancel()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Run a server for as long as the block lasts."""
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        try:
            yield server
        finally:
            # From Python 3.12 on, the end of the outer block waits for every connection to close.
            server.end_answers()


def answer(status: int = 200, body: Any = None, headers: dict[str, str] | None = None) -> Respond:
    """Return what answers with a status and a body, as JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **(headers or {})}
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in given.items()]

    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if received.method != "HEAD":
            writer.write(data)

    return respond


def redirect(status: int, location: str) -> Respond:
    """Return what sends elsewhere."""
    return answer(status, b"", {"Location": location})


async def hang_up(received: Received, writer: asyncio.StreamWriter) -> None:
    """Close the connection without a response."""


async def truncate(received: Received, writer: asyncio.StreamWriter) -> None:
    """Promise more than is sent."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")


async def stall(received: Received, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.sleep(600)


def in_turn(*responds: Respond) -> Respond:
    """Return a responder that answers each request differently; the last one stays."""
    left = list(responds)

    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(received, writer)

    return respond
