"""What every source of a watcher is given, and what it returns."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from agent.core.clock import Clock

if TYPE_CHECKING:
    from agent.steps.attempt.services import Limits

Json = Any


class SourceError(Exception):
    """A poll failed; the message is for a person, and names no secret."""

    def __init__(self, message: str, *, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds
        """How long the source itself asks to wait, as in `Retry-After`."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a source shows: a message, an entry, a file, a change of a page."""

    key: str
    """Its identity: a trigger starts at most one task for a key. At most 500 characters."""
    data: dict[str, Json]
    """What the task sees as `trigger.item`: plain JSON, at most some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What one complete, successful poll found. Where nothing could be read, a poll fails instead."""

    items: list[Item] = field(default_factory=list)
    """Oldest first. Items that were seen before may be among them: the keys decide."""
    cursor: Json = None
    """What the next poll starts from: plain JSON, stored with the items in one transaction."""
    new_baseline: str | None = None
    """Why everything counts as seen from here on, as after a change of UIDVALIDITY; else None."""
    next_seconds: float | None = None
    """Poll again this soon, if that is before `every`: a file is not quiet yet, an event starts."""
    is_unchanged: bool = False
    """The source shows what it showed last time, as a 304 says: the same items, not none."""
    passed_over: str | None = None
    """What could not be read, for a person; the same text as long as it is the same. Else None."""
    is_cursor_kept: bool = False
    """The cursor is the one that the poll was given: a large one need not be written again."""


@dataclass(frozen=True, slots=True)
class PollContext:
    """What a poll may use."""

    clock: Clock
    limits: "Limits"
    """Of the `http` step: the address policy, the size of responses."""
    timeout_seconds: float
    workflow_path: Path | None
    """The workflow file; relative paths and Python modules are found beside it."""
    most_items: int
    """More items than this in one poll are refused with `SourceError`."""
    resources: dict[str, Any] = field(default_factory=dict)
    """Shared by all polls of a daemon: clients and connections, by the name of their source."""


class Source(Protocol):
    """One watched source; a new object for each poll, built from its keys."""

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Poll once; `cursor` is None the first time. Raise `SourceError` when that fails.

        It runs in the watchers' own event loop, with a timeout around it; blocking calls belong in
        `asyncio.to_thread`. It changes nothing outside.
        """
        ...


class Listener(Protocol):
    """A hint that a poll is worth while now: IDLE, inotify. Polling alone must suffice."""

    async def listen(self, context: PollContext, wake: Callable[[], None]) -> None:
        """Call `wake` when it listens and whenever something may have changed, until cancelled.

        An error that it raises says why the source is only polled; it is tried again later.
        """
        ...


def require(module: str, package: str) -> ModuleType:
    """Import a library that only one source needs; name its package if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SourceError(
            f"this watcher needs the package {package}, which is not installed:"
            f" `python -m pip install {package}`"
        ) from None
