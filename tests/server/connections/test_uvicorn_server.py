"""uvicorn as the daemon runs it: few wake-ups, and an end without delay."""

import asyncio
import socket
import time
from typing import Any

import pytest
import uvicorn

from agent.server.connections.uvicorn_server import UvicornServer


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with an empty page."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class CountedServer(UvicornServer):
    """Counts how often it wakes up without a request."""

    ticks = 0

    async def on_tick(self, counter: int) -> bool:
        """Count."""
        self.ticks += 1
        return await super().on_tick(counter)


@pytest.mark.measured
def test_an_idle_server_wakes_once_a_second_and_ends_at_once() -> None:
    """Uvicorn's own loop wakes ten times a second; responses still have a Date."""

    async def story() -> tuple[bytes, int, float]:
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(application, lifespan="off", log_config=None, log_level="error")
        server = CountedServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await asyncio.sleep(0.5)
        ticks, began = server.ticks, time.monotonic()
        server.end()
        await serving
        return answer, ticks, time.monotonic() - began

    answer, ticks, seconds = asyncio.run(story())
    assert b"\r\ndate: " in answer.lower()
    # The first, and on a machine that stands still for a while one or two more.
    assert ticks < 4
    assert seconds < 0.9
