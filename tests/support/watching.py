"""What a poll of a source is given in tests."""

import asyncio
from types import ModuleType
from typing import Any

import pytest

from agent.core.clock import Clock
from agent.steps.attempt.services import Limits
from agent.triggers.watchers import parser_child
from agent.triggers.watchers.source import Poll, PollContext, Source, SourceError

LOOPBACK = Limits(allow_private=("127.0.0.0/8", "::1/128"))


def poll_context(
    clock: Clock | None = None,
    limits: Limits = LOOPBACK,
    timeout_seconds: float = 20.0,
    most_items: int = 100,
) -> PollContext:
    """Return a context that may reach loopback addresses."""
    return PollContext(
        clock=clock or Clock(),
        limits=limits,
        timeout_seconds=timeout_seconds,
        workflow_path=None,
        most_items=most_items,
    )


def parse_here(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let sources parse without a process of its own, which takes most of a poll's time."""

    async def parse(parser: str, body: bytes, options: Any, _: PollContext) -> Any:
        answered = parser_child.parse(parser, body, options)
        if "problem" in answered:
            raise SourceError(answered["problem"])
        return answered["value"]

    for module in modules:
        monkeypatch.setattr(module, "parse_apart", parse)


def poll(source: Source, cursor: Any = None, context: PollContext | None = None) -> Poll:
    """Poll once, in an event loop of its own."""
    return asyncio.run(source.poll(cursor, context or poll_context()))
