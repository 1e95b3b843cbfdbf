"""`ctx.state` of a function that runs in a process of the pool."""

import asyncio
from collections.abc import Awaitable, Callable

from agent.steps.executors.worker_link import Link
from agent.steps.types.outcome import Json
from agent.steps.types.state_values import Version
from agent.store.db.json_values import encode


class BlockingWorkerState:
    """`ctx.state` of a function that is no coroutine function."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def get(self, name: str, default: Json = None) -> Json:
        """Return a value, or the default if there is none."""
        return self._link.ask("state", operation="get", arguments=[name, default])

    def version(self, name: str) -> Version:
        """Return the version of a value, for `compare_and_set`; 0 if it was never written."""
        return Version(self._link.ask("state", operation="version", arguments=[name]))

    def set(self, name: str, value: Json) -> Version:
        """Write a value; return its new version."""
        encode(value, f"state.{name}")
        return Version(self._link.ask("state", operation="set", arguments=[name, value]))

    def compare_and_set(self, name: str, expected: Json, value: Json) -> bool:
        """Write a value if the current one is as expected; return whether it was written."""
        encode(value, f"state.{name}")
        is_version = isinstance(expected, Version)
        return bool(
            self._link.ask(
                "state",
                operation="compare_and_set",
                arguments=[name, expected, value],
                is_version=is_version,
            )
        )

    def delete(self, name: str) -> None:
        """Delete a value; its versions count on if it is written again."""
        self._link.ask("state", operation="delete", arguments=[name])


class AsyncWorkerState:
    """`ctx.state` of a coroutine function."""

    def __init__(self, link: Link) -> None:
        self._state = BlockingWorkerState(link)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Json]]:
        method = getattr(self._state, name)

        async def awaited(*arguments: Json) -> Json:
            return await asyncio.to_thread(method, *arguments)

        return awaited
