"""Threads for the blocking calls of polls.

Their threads are daemons (`UnboundedThreads`), unlike those of `asyncio.to_thread`: a dead network file
system or a function that never returns must neither use up the threads of others nor keep the agent
from ending.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from agent.core.thread_bridge import UnboundedThreads
from agent.triggers.watchers.source import PollContext, SourceError

Result = TypeVar("Result")


def threads_of(context: PollContext) -> UnboundedThreads:
    """Return the threads that all polls of a daemon share."""
    threads: UnboundedThreads = context.resources.setdefault("threads", UnboundedThreads("watcher"))
    return threads


def start(context: PollContext, function: Callable[[], Result]) -> "asyncio.Future[Result]":
    """Start a function in a thread and return the future of its result.

    What it raises after its poll has been cancelled is dropped.
    """
    try:
        future = threads_of(context).start(function)
    except RuntimeError as error:
        raise SourceError(f"the poll cannot be started: {error}") from None
    future.add_done_callback(_read_exception)
    return future


def _read_exception(future: "asyncio.Future[Result]") -> None:
    # Else asyncio would log it as never retrieved.
    if not future.cancelled():
        future.exception()
