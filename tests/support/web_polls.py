"""Polls of web sources beside a real server."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from agent.core.clock import Clock
from agent.steps.attempt.services import Limits
from agent.triggers.watchers.registry import source_of
from agent.triggers.watchers.source import Json, Poll, PollContext, SourceError
from tests.support.attempt import run
from tests.support.http_server import Server, serving
from tests.support.requesting import LOOPBACK

_ssl_context = functools.cache(httpx.create_ssl_context)


@asynccontextmanager
async def poll_context(
    limits: Limits = LOOPBACK, timeout_seconds: float = 30.0, most_items: int = 1000
) -> AsyncIterator[PollContext]:
    """Give what polls may use, and close its connections afterwards."""
    context = PollContext(Clock(), limits, timeout_seconds, None, most_items)
    try:
        # Reading the certificates takes longer than the rest of a test, and none of them is used.
        with patch.object(httpx, "create_ssl_context", _ssl_context):
            yield context
    finally:
        for resource in context.resources.values():
            await resource.aclose()


def watching(
    test: Callable[[Server, PollContext], Awaitable[None]],
    **of_context: Any,
) -> None:
    """Run a test beside a server."""

    async def main() -> None:
        async with serving() as server, poll_context(**of_context) as context:
            await test(server, context)

    run(main())


async def poll(
    source: str, keys: dict[str, Json], context: PollContext, cursor: Json = None
) -> Poll:
    """Poll a source once, as a watcher does."""
    return await source_of({source: keys}).poll(cursor, context)


async def failure(
    source: str, keys: dict[str, Json], context: PollContext, cursor: Json = None
) -> SourceError:
    """Return the error of a poll that must fail."""
    with pytest.raises(SourceError) as caught:
        await poll(source, keys, context, cursor)
    return caught.value
