"""Step functions that real daemons run in these tests."""

import asyncio
import os
import sys
import urllib.request
from pathlib import Path

from agent.steps.attempt.context import StepContext


async def hold(ctx: StepContext, gate: str, url: str) -> object:
    """Wait until a file exists, then act once."""
    # Another process makes the file, which sets no event of this loop.
    while not Path(gate).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return await post(ctx, url)


async def post(ctx: StepContext, url: str) -> object:
    """Act once."""

    def send() -> int:
        request = urllib.request.Request(url, method="POST")
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)

    return await ctx.call("post", {"post": url}, lambda: asyncio.to_thread(send), timeout=15)


async def pass_on(ctx: StepContext) -> str:
    """Do something repeatable."""
    await asyncio.sleep(0)
    return ctx.task_id


def leave(code: int) -> None:
    """Exit as a script would."""
    sys.exit(code)


async def leave_in_a_task(code: int) -> None:
    """Exit in an asyncio task of its own, beside another one."""

    async def exit_soon() -> None:
        sys.exit(code)

    await asyncio.gather(exit_soon(), asyncio.sleep(0.01))


async def cancel_all(code: int) -> None:
    """Cancel every asyncio task of the process that it can see, and exit."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    sys.exit(code)


def die(code: int) -> None:
    """End the whole process, as a crash of native code would."""
    os._exit(code)
