"""Polls of the sources on this machine: what a daemon gives them, and a clock that a test moves on."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.steps.attempt.services import Limits
from agent.store.db import json_values
from agent.triggers.watchers.registry import source_of
from agent.triggers.watchers.source import Poll, PollContext
from tests.support.attempt import HandClock

AN_HOUR = 3600.0


def late_clock() -> HandClock:
    """Return a clock by which all that a test has just written is an hour old."""
    clock = HandClock()
    clock.advance(AN_HOUR)
    return clock


@dataclass
class Watching:
    """One watcher: its source, its cursor and what its polls found."""

    spec: dict[str, Any]
    workflow_path: Path | None = None
    timeout_seconds: float = 20.0
    most_items: int = 100_000
    clock: HandClock = field(default_factory=late_clock)
    limits: Limits = field(default_factory=Limits)
    cursor: Any = None
    last: Poll = field(default_factory=Poll)
    resources: dict[str, Any] = field(default_factory=dict)

    def context(self) -> PollContext:
        return PollContext(
            clock=self.clock,
            limits=self.limits,
            timeout_seconds=self.timeout_seconds,
            workflow_path=self.workflow_path,
            most_items=self.most_items,
            resources=self.resources,
        )

    async def poll_once(self) -> list[dict[str, Any]]:
        """Poll, keep the cursor as the database would, and return the data of the items."""
        poll = await source_of(self.spec).poll(self.cursor, self.context())
        self.cursor = json_values.decode(json_values.encode(poll.cursor, "cursor"))
        for item in poll.items:
            assert 0 < len(item.key) <= 500
            json_values.encode([item.key, item.data], "item")
        self.last = poll
        return [item.data for item in poll.items]

    def poll(self) -> list[dict[str, Any]]:
        """Poll in an event loop of its own."""
        return asyncio.run(self.poll_once())

    @property
    def keys(self) -> list[str]:
        """The keys of the last poll."""
        return [item.key for item in self.last.items]
