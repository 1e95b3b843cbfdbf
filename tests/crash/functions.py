"""The effects of golden tasks, recorded where no crash of theirs can touch the record."""

import asyncio
from collections import Counter
from collections.abc import Callable

from agent.steps.attempt.context import StepContext
from agent.steps.types.errors import DefiniteFailure

effects: Counter[tuple[str, str]] = Counter()
"""How often each effect happened, by its task and its name."""
tries: Counter[tuple[str, str]] = Counter()
scripts: dict[str, Callable[[], object]] = {}
"""What single tests want an effect to do, by name."""


def _place(ctx: StepContext) -> str:
    return ctx.step if ctx.parallel_index is None else f"{ctx.step}[{ctx.parallel_index}]"


def _happen(ctx: StepContext, name: str) -> int:
    effects[(ctx.task_id, name)] += 1
    return effects[(ctx.task_id, name)]


async def touch(ctx: StepContext) -> str:
    """Do something repeatable."""
    _happen(ctx, f"{_place(ctx)} repeatable")
    await asyncio.sleep(0)
    return ctx.step


async def once(ctx: StepContext) -> str:
    """Act as a whole (`effect: once`)."""
    await asyncio.sleep(0)
    _happen(ctx, _place(ctx))
    return ctx.step


async def act(ctx: StepContext) -> object:
    """Make one journaled call."""
    return await ctx.call("act", {"for": _place(ctx)}, lambda: _happen(ctx, _place(ctx)))


async def keep(ctx: StepContext) -> object:
    """Write `state` before and after a journaled call."""
    version = await ctx.state.set("note", f"{ctx.task_id} begins")
    given = await ctx.call("act", {"for": _place(ctx)}, lambda: _happen(ctx, _place(ctx)))
    assert await ctx.state.compare_and_set("note", version, f"{ctx.task_id} ends")
    return given


async def act_thrice(ctx: StepContext) -> object:
    """Make three journaled calls with checkpoints between them."""
    given = []
    for number in range(3):
        name = f"{_place(ctx)} {number}"
        # Bound now: the name differs with each call.
        given.append(await ctx.call("act", {"for": name}, lambda name=name: _happen(ctx, name)))
        await ctx.save({"made": number + 1})
    return given


async def act_at_last(ctx: StepContext) -> object:
    """Fail definitely twice, then act."""

    def act() -> int:
        tries[(ctx.task_id, ctx.step)] += 1
        if tries[(ctx.task_id, ctx.step)] <= 2:
            raise DefiniteFailure("come again later")
        return _happen(ctx, ctx.step)

    return await ctx.call("act", {"for": ctx.step}, act)


async def act_unheard(ctx: StepContext) -> object:
    """Act, and lose the first response."""

    def act() -> int:
        count = _happen(ctx, ctx.step)
        if count == 1:
            raise ConnectionError("the answer was lost")
        return count

    return await ctx.call("act", {"for": ctx.step}, act)


async def fail() -> None:
    """Fail for good."""
    raise DefiniteFailure("it does not work", may_retry=False)


async def act_by_script(ctx: StepContext, name: str) -> object:
    """Make one journaled call that does what a test has scripted."""
    return await ctx.call("act", {"for": name}, scripts[name])
