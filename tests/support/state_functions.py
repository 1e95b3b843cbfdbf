"""Step functions that use `ctx.state`, and what they saw."""

import asyncio
from collections import defaultdict
from typing import Any

from agent.steps.attempt.context import StepContext
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.types.errors import DefiniteFailure
from tests.support import step_functions

effects: defaultdict[str, int] = defaultdict(int)
"""How often each effect really happened, by the token that the test gave."""
seen: defaultdict[str, list[Any]] = defaultdict(list)
"""What attempts saw, by that token."""


async def act(token: str, value: Any = None) -> Any:
    """Act once, as `effect: once` does; return the value."""
    effects[token] += 1
    await asyncio.sleep(0)
    return value


async def act_behind(ctx: StepContext, token: str, gate: str) -> None:
    """Act once the test opens a gate."""
    await step_functions.gated(ctx, gate)
    effects[token] += 1


async def pay_then_fail(ctx: StepContext, token: str, amount: int) -> int:
    """Pay once, as a journaled call, and fail in the first task."""
    await ctx.call("pay", {"amount": amount}, lambda: act(token))
    seen[token].append(amount)
    if len(seen[token]) == 1:
        raise DefiniteFailure("not yet")
    return amount


async def look(token: str, value: Any, fail_times: int = 0) -> Any:
    """Record what the templates gave, and fail some times."""
    seen[token].append(value)
    if len(seen[token]) <= fail_times:
        raise DefiniteFailure("not yet")
    return value


async def use_all(ctx: StepContext, token: str, fail_times: int = 0) -> dict[str, Any]:
    """Use every operation, and fail some times at the end."""
    result = {
        "before": await ctx.state.get("note", "none"),
        "set": int(await ctx.state.set("note", {"n": 1})),
        "after": await ctx.state.get("note"),
        "wrong": await ctx.state.compare_and_set("note", {"n": 7}, {"n": 8}),
        "right": await ctx.state.compare_and_set("note", {"n": 1}, {"n": 2}),
        "fresh": await ctx.state.compare_and_set("other", None, 1),
        "stale": await ctx.state.compare_and_set("other", None, 2),
    }
    version = await ctx.state.version("note")
    result["by_version"] = await ctx.state.compare_and_set("note", version, {"n": 3})
    await ctx.state.delete("other")
    result["gone"] = await ctx.state.get("other")
    seen[token].append(result)
    if len(seen[token]) <= fail_times:
        raise DefiniteFailure("not yet")
    return result


def use_in_thread(ctx: BlockingContext, token: str) -> dict[str, Any]:
    """Use `ctx.state` from a thread."""
    seen[token].append(ctx.state.get("note", "none"))
    result = {
        "set": int(ctx.state.set("note", "threaded")),
        "swapped": ctx.state.compare_and_set("note", ctx.state.version("note"), "again"),
        "value": ctx.state.get("note"),
    }
    ctx.state.delete("note")
    return {**result, "deleted": ctx.state.get("note")}


async def count_up(ctx: StepContext, name: str = "counter") -> int:
    """Add one by compare-and-set, until that wins."""
    while True:
        version = await ctx.state.version(name)
        value = await ctx.state.get(name, 0)
        if await ctx.state.compare_and_set(name, version, value + 1):
            return int(value) + 1


async def set_named(ctx: StepContext, name: str, value: Any) -> None:
    """Set one value."""
    await ctx.state.set(name, value)
