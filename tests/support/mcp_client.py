"""The SDK's own client of the MCP server, for tests that are not coroutines."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.support.cli import ROOT

T = TypeVar("T")

PATIENCE_SECONDS = 60.0

Connect = Callable[[], AbstractAsyncContextManager[Client]]


class McpClient:
    """A connected client, in a thread with its own event loop, for the duration of a block."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mcp client", daemon=True)
        self._is_ready = threading.Event()
        self._closing: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._client: Client | None = None

    def __enter__(self) -> "McpClient":
        self._thread.start()
        assert self._is_ready.wait(PATIENCE_SECONDS)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._closing is not None
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def run(self, use: Callable[[Client], Awaitable[T]]) -> T:
        """Run a coroutine function with the client."""

        async def bounded() -> T:
            assert self._client is not None
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await use(self._client)

        return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()

    def tools(self) -> dict[str, Any]:
        """Return the tools by name."""
        return {tool.name: tool for tool in self.run(lambda client: client.list_tools()).tools}

    def result(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool."""
        return self.run(lambda client: client.call_tool(name, arguments))

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool that succeeds, and return its structured result."""
        result = self.result(name, arguments)
        assert not result.is_error, (name, text_of(result))
        return result.structured_content

    def refused(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that refuses, and return why."""
        result = self.result(name, arguments)
        assert result.is_error, (name, result.structured_content)
        return text_of(result)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._hold_open())
        except BaseException as error:
            self._error = error
        finally:
            self._is_ready.set()
            self._loop.close()

    async def _hold_open(self) -> None:
        self._closing = asyncio.Event()
        async with self._connect() as self._client:
            self._is_ready.set()
            await self._closing.wait()


def text_of(result: CallToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def over_http(url: str, token: str, **options: Any) -> Connect:
    """Return how to connect to a daemon."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS, verify=False) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), **options) as client,
        ):
            yield client

    return connect


def over_stdio(
    directory: Path, *arguments: str, env: dict[str, str] | None = None, **options: Any
) -> Connect:
    """Return how to connect to `agent ARGUMENTS`, as a program of the client's own."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Client]:
        program = StdioServerParameters(
            command=sys.executable,
            args=["-m", "agent.cli", *arguments],
            cwd=str(directory),
            env={"PYTHONPATH": str(ROOT), **(env or {})},
        )
        async with Client(stdio_client(program), **options) as client:
            yield client

    return connect
