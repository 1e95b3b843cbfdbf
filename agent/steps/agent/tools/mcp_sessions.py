"""Connections to MCP servers: opened at the first use in an attempt, closed with it.

Each has a task of its own, so that a server that dies ends nothing but its connection. A server is a
program that is started for the attempt and ended with it, or an address.
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
from agent.core.failure_causes import is_bad_certificate
from agent.models.protocol import clean
from agent.steps.agent.tools.mcp_calls import Elicitations
from agent.steps.agent.tools.url_allow_list import may_visit
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
    """Import the SDK in a thread: it takes a second, which would block the event loop."""
    module = sys.modules.get("mcp")
    if module is None or getattr(module.__spec__, "_initializing", False):
        try:
            await asyncio.to_thread(import_module, "mcp")
        except ModuleNotFoundError as error:
            if error.name != "mcp":
                raise
            raise DefiniteFailure(
                "MCP servers need a library: `python -m pip install mcp`",
                code="no_library",
                kind="input",
                may_retry=False,
            ) from None


class LostError(Exception):
    """The connection ended before the answer came."""


class Sessions:
    """The connections of one attempt."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._open: dict[str, _Session] = {}
        self._elicitations: dict[str, Elicitations] = {}

    def elicitations(self, server: str) -> Elicitations:
        """Return where a server's questions to a person go."""
        return self._elicitations.setdefault(server, Elicitations())

    async def request(self, server: str, send: "Callable[[Client], Awaitable[T]]") -> T:
        """Send a request; raise `DefiniteFailure` if the server was not reached, `LostError` if lost."""
        session = self._open.get(server)
        if session is None or session.is_over:
            elicitations = self.elicitations(server)
            session = self._open[server] = _Session(server, self._context, elicitations)
        try:
            return await session.request(send)
        except BaseException:
            # A server that did not answer in time, or was interrupted, gets no further request.
            if not session.is_well:
                del self._open[server]
                await session.aclose()
            raise

    def seconds_for(self, server: str) -> float:
        """Return how long a server may take to list its tools."""
        return _settings(server, self._context).timeout_seconds

    async def aclose(self) -> None:
        """Close all of them."""
        while self._open:
            _, session = self._open.popitem()
            await session.aclose()


class _Session:
    def __init__(self, name: str, context: StepContext, elicitations: Elicitations) -> None:
        self._name = name
        self._context = context
        self._elicitations = elicitations
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.is_well = True
        """Whether it may get another request."""
        self._connection_task = asyncio.create_task(self._hold_open())

    @property
    def is_over(self) -> bool:
        return self._connection_task.done()

    async def request(self, send: "Callable[[Client], Awaitable[T]]") -> T:
        self.is_well = False
        client = await self._connected()
        request: asyncio.Future[T] = asyncio.ensure_future(send(client))
        try:
            both: set[asyncio.Future[Any]] = {request, self._connection_task}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                raise LostError(f"the connection to MCP server {self._name} is lost")
            answer = request.result()
        except Exception as error:
            self.is_well = not (isinstance(error, LostError) or is_lost(error))
            raise
        finally:
            if not request.done():
                request.cancel()
                with suppress(BaseException):
                    await request
        self.is_well = True
        return answer

    async def aclose(self) -> None:
        self._closing.set()
        if not self._client.done():
            self._connection_task.cancel()
        # The program's end is bounded: SIGTERM first, then SIGKILL.
        await asyncio.wait({self._connection_task})
        if not self._connection_task.cancelled():
            self._connection_task.exception()

    async def _connected(self) -> "Client":
        settings = _settings(self._name, self._context)
        either: set[asyncio.Future[Any]] = {self._client, self._connection_task}
        done, _ = await asyncio.wait(
            either, timeout=settings.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if self._client.done():
            return self._client.result()
        if not done:
            raise _unreached(self._name, f"no answer within {settings.timeout_seconds:g} s")
        problem = self._connection_task.exception()
        if isinstance(problem, DefiniteFailure):
            raise problem
        raise _unreached(self._name, _reason(problem), is_final=_is_final(problem))

    async def _hold_open(self) -> None:
        await load_sdk()
        from mcp import Client

        async with (
            _transport(self._name, self._context) as transport,
            Client(
                _completing(transport), cache=None, elicitation_callback=self._elicitations
            ) as client,
        ):
            _accept_any_result(client)
            self._client.set_result(client)
            await self._closing.wait()


@asynccontextmanager
async def _completing(transport: "Transport") -> "AsyncIterator[Any]":
    """Yield the streams of a connection on which a result without `resultType` is complete.

    The protocol of 2026 says so; the SDK refuses such a result, after the tool has acted.
    """
    async with transport as (reading, writing):
        yield _CompletedResults(reading), writing


class _CompletedResults:
    """A stream of a server's messages."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict) and result.get("resultType") is None:
            result["resultType"] = "complete"
        return item

    def __aiter__(self) -> "_CompletedResults":
        return self

    async def __aenter__(self) -> "_CompletedResults":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _accept_any_result(client: "Client") -> None:
    """Turn off the SDK's check of results against the server's own schema.

    It evaluates patterns that backtrack, on the worker's loop: a server could block the worker.
    Nothing here relies on the structure of a result; the model reads it as text.
    """

    async def accept(name: str, result: Any) -> None:
        return None

    client.session.validate_tool_result = accept  # type: ignore[method-assign]


@asynccontextmanager
async def _transport(name: str, context: StepContext) -> "AsyncIterator[Transport]":
    settings = _settings(name, context)
    # The SDK logs received messages, which may hold a server's secret.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    values: dict[str, Any] = {"env": settings.env, "headers": settings.headers}
    values = await context.secrets.read(values, frozenset(references(values)))
    if settings.url:
        if may_visit(settings.url, list(context.services.limits.own_urls)):
            # The token in its headers may have the right to answer questions, which no model has.
            text = f"MCP server {name} is this agent itself: use the tool `engine` instead"
            raise DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
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
        # As for a command, marks included: if the agent is killed, the next one ends the server.
        # The library adds TERM itself.
        env=environment_of(context.step_id, context.attempt, values["env"]),
        cwd=settings.cwd or None,
        encoding_error_handler="replace",
    )
    async with _stderr_log(name, context) as stderr:
        yield stdio_client(program, errlog=stderr)


@asynccontextmanager
async def _stderr_log(name: str, context: StepContext) -> AsyncIterator[Any]:
    """Copy a server's standard error to the step's log."""
    reading, writing = os.pipe()
    stream = asyncio.StreamReader(limit=_LINE_BYTES)
    pipe = os.fdopen(reading, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )

    async def copy() -> None:
        while part := await stream.read(_LINE_BYTES):
            context.log_text("stderr", f"{name}: {part.decode('utf-8', 'replace')}")

    copier = asyncio.create_task(copy())
    try:
        with os.fdopen(writing, "w") as stderr:
            yield stderr
        # The program has ended, but its children may hold the pipe open.
        await asyncio.wait({copier}, timeout=1)
    finally:
        copier.cancel()
        transport.close()


async def tools_of(sessions: Sessions, server: str) -> dict[str, Any]:
    """Return the tools of a server by their names."""

    async def list_tools(client: "Client") -> dict[str, Any]:
        tools: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    seconds = sessions.seconds_for(server)
    try:
        async with asyncio.timeout(seconds):
            return await sessions.request(server, list_tools)
    except DefiniteFailure:
        raise
    except TimeoutError:
        raise _unreached(server, f"no answer within {seconds:g} s") from None
    except Exception as error:
        raise _unreached(server, _reason(error), is_final=_is_final(error)) from error


def is_lost(error: BaseException) -> bool:
    """Whether an exception means that no answer came, rather than an answer that is an error."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    if isinstance(error, MCPError):
        return error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT)
    return not isinstance(error, (ValueError, RuntimeError))


def _settings(name: str, context: StepContext) -> McpSettings:
    settings = context.services.mcp.get(name)
    if settings is None:
        known = ", ".join(sorted(context.services.mcp)) or "none"
        text = f"there is no MCP server {name!r}: add [mcp.{name}] to the configuration; there are {known}"
        raise DefiniteFailure(text, code="no_such_server", kind="input", may_retry=False)
    return settings


def _unreached(name: str, reason: str, *, is_final: bool = False) -> DefiniteFailure:
    text = f"MCP server {name} cannot be reached: {clean(reason)}"
    return DefiniteFailure(text, code="mcp", kind="transport", may_retry=not is_final)


def _is_final(error: BaseException | None) -> bool:
    """Whether a retry cannot help: no program that can be run, or a certificate that was refused."""
    is_missing = isinstance(error, FileNotFoundError | PermissionError | ImportError)
    return is_missing or is_bad_certificate(error)


def _reason(error: BaseException | None) -> str:
    # The message of an exception group says nothing itself.
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if error is None:
        return "it ended at once"
    return str(error) or type(error).__name__
