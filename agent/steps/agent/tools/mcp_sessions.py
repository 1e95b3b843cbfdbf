"""Connections to MCP servers: opened at the first use in an attempt, closed with it.

Each is kept by a task of its own, so that a server that dies takes nothing along but its connection.
A server is a program that is started for the attempt and ended with it, or an address.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.config.models import McpSettings
from agent.models.protocol import clean
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.secrets import references
from agent.steps.process.environment import environment_of
from agent.steps.types.errors import DefiniteFailure

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import Transport

T = TypeVar("T")

_MAX_PAGES: Final = 50
_LINE_BYTES: Final = 65_536


async def load_sdk() -> None:
    """Import the SDK, in a thread: it takes a second, in which the event loop would be blocked."""
    module = sys.modules.get("mcp")
    if module is None or getattr(module.__spec__, "_initializing", False):
        await asyncio.to_thread(import_module, "mcp")


class LostError(Exception):
    """The connection ended before the answer was there."""


class Sessions:
    """The connections of one attempt."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._open: dict[str, _Session] = {}

    async def ask(self, server: str, ask: "Callable[[Client], Awaitable[T]]") -> T:
        """Ask a server; raise `DefiniteFailure` if it was not reached, `LostError` if it is gone."""
        session = self._open.get(server)
        if session is None or session.is_over:
            session = self._open[server] = _Session(server, self._context)
        try:
            return await session.ask(ask)
        except BaseException:
            # Whoever does not answer in time, or was interrupted, is not asked anything more.
            if not session.is_well:
                del self._open[server]
                await session.aclose()
            raise

    def seconds_for(self, server: str) -> float:
        """Return how long a server may take to say what it has."""
        return _settings(server, self._context).timeout_seconds

    async def aclose(self) -> None:
        """Close all of them."""
        while self._open:
            _, session = self._open.popitem()
            await session.aclose()


class _Session:
    def __init__(self, name: str, context: StepContext) -> None:
        self._name = name
        self._context = context
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.is_well = True
        """Whether it may be asked again."""
        self._keeper = asyncio.create_task(self._keep())

    @property
    def is_over(self) -> bool:
        return self._keeper.done()

    async def ask(self, ask: "Callable[[Client], Awaitable[T]]") -> T:
        self.is_well = False
        client = await self._connected()
        asked: asyncio.Future[T] = asyncio.ensure_future(ask(client))
        try:
            both: set[asyncio.Future[Any]] = {asked, self._keeper}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise LostError(f"the connection to MCP server {self._name} is lost")
            found = asked.result()
        except Exception as problem:
            self.is_well = not (isinstance(problem, LostError) or is_lost(problem))
            raise
        finally:
            if not asked.done():
                asked.cancel()
                with suppress(BaseException):
                    await asked
        self.is_well = True
        return found

    async def aclose(self) -> None:
        self._closing.set()
        if not self._client.done():
            self._keeper.cancel()
        # The program's end is bounded: it is asked first, then made to.
        await asyncio.wait({self._keeper})
        if not self._keeper.cancelled():
            self._keeper.exception()

    async def _connected(self) -> "Client":
        settings = _settings(self._name, self._context)
        either: set[asyncio.Future[Any]] = {self._client, self._keeper}
        done, _ = await asyncio.wait(
            either, timeout=settings.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if self._client.done():
            return self._client.result()
        if not done:
            raise _unreached(self._name, f"no answer within {settings.timeout_seconds:g} s")
        problem = self._keeper.exception()
        if isinstance(problem, DefiniteFailure):
            raise problem
        raise _unreached(self._name, _reason(problem), is_final=_is_final(problem))

    async def _keep(self) -> None:
        await load_sdk()
        from mcp import Client

        async with (
            _transport(self._name, self._context) as transport,
            Client(transport, cache=None) as client,
        ):
            _accept_any_result(client)
            self._client.set_result(client)
            await self._closing.wait()


def _accept_any_result(client: "Client") -> None:
    """Keep the SDK from checking results against the server's own schema of them.

    It does so with patterns that backtrack, on the worker's loop: a server could stop the worker.
    Nothing here relies on the shape of a result; the model reads it as text.
    """

    async def accept(name: str, result: Any) -> None:
        return None

    client.session.validate_tool_result = accept  # type: ignore[method-assign]


@asynccontextmanager
async def _transport(name: str, context: StepContext) -> "AsyncIterator[Transport]":
    settings = _settings(name, context)
    # It writes what it received into the log, which may be a server's secret.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    values: dict[str, Any] = {"env": settings.env, "headers": settings.headers}
    values = context.secrets.resolve(values, frozenset(references(values)))
    if settings.url:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(settings.timeout_seconds, read=None)
        async with httpx2.AsyncClient(headers=values["headers"], timeout=timeout) as client:
            yield streamable_http_client(settings.url, http_client=client)
        return
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    program = StdioServerParameters(
        command=settings.command,
        args=settings.args,
        # What a command gets, marks included: if the agent is killed, the next one ends the server.
        # The library adds TERM by itself.
        env=environment_of(context.step_id, context.attempt, values["env"]),
        cwd=settings.cwd or None,
        encoding_error_handler="replace",
    )
    async with _complaints(name, context) as complaints:
        yield stdio_client(program, errlog=complaints)


@asynccontextmanager
async def _complaints(name: str, context: StepContext) -> AsyncIterator[Any]:
    """Give what a server writes on standard error to the step's log."""
    reading, writing = os.pipe()
    stream = asyncio.StreamReader(limit=_LINE_BYTES)
    pipe = os.fdopen(reading, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )

    async def tell() -> None:
        while part := await stream.read(_LINE_BYTES):
            context.log_text("stderr", f"{name}: {part.decode('utf-8', 'replace')}")

    teller = asyncio.create_task(tell())
    try:
        with os.fdopen(writing, "w") as complaints:
            yield complaints
        # The program has ended; what it left behind may hold the pipe open.
        await asyncio.wait({teller}, timeout=1)
    finally:
        teller.cancel()
        transport.close()


async def tools_of(sessions: Sessions, server: str) -> dict[str, Any]:
    """Return the tools of a server by their names."""

    async def listed(client: "Client") -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    seconds = sessions.seconds_for(server)
    try:
        async with asyncio.timeout(seconds):
            return await sessions.ask(server, listed)
    except DefiniteFailure:
        raise
    except TimeoutError:
        raise _unreached(server, f"no answer within {seconds:g} s") from None
    except Exception as problem:
        raise _unreached(server, _reason(problem)) from problem


def is_lost(problem: BaseException) -> bool:
    """Whether an exception says that no answer came, and not that one came which is an error."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    if isinstance(problem, MCPError):
        return problem.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT)
    return not isinstance(problem, (ValueError, RuntimeError))


def _settings(name: str, context: StepContext) -> McpSettings:
    found = context.services.mcp.get(name)
    if found is None:
        known = ", ".join(sorted(context.services.mcp)) or "none"
        text = f"there is no MCP server {name!r}: add [mcp.{name}] to the configuration; there are {known}"
        raise DefiniteFailure(text, code="no_such_server", kind="input", may_retry=False)
    return found


def _unreached(name: str, reason: str, *, is_final: bool = False) -> DefiniteFailure:
    text = f"MCP server {name} cannot be reached: {clean(reason)}"
    return DefiniteFailure(text, code="mcp", kind="transport", may_retry=not is_final)


def _is_final(problem: BaseException | None) -> bool:
    """Whether to try again is of no use: there is no such program."""
    return isinstance(problem, FileNotFoundError | PermissionError | ImportError)


def _reason(problem: BaseException | None) -> str:
    # A group of exceptions says nothing by itself.
    while isinstance(problem, BaseExceptionGroup) and problem.exceptions:
        problem = problem.exceptions[0]
    if problem is None:
        return "it ended at once"
    return str(problem) or type(problem).__name__
