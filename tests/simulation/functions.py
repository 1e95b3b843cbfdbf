"""The functions of simulated steps: every attempt follows its part of a plan in the scenario.

A plan is a list of words, one for each attempt; after its end all goes well. Of an effect: `ok`;
`definite` (surely nothing happened), `refused` (the same, for good), `noted` (refused, and the step
goes on for a while after that is recorded), `lost` (the request never arrived and the result is
unknown), `unheard` (it arrived, and its response was lost), `adrift` (the connection broke, and it
arrives later), `late` (it arrived, and the response takes longer than the timeout). Of other code:
`ok`, `error`, `refused`, `late`.
"""

import asyncio

from agent.steps.attempt.context import StepContext
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Call
from agent.steps.types.errors import Applied, DefiniteFailure
from tests.simulation.world import World

LATE_SECONDS = 60.0
NOTED_SECONDS = 4.0
ADRIFT_SECONDS = 4.5
"""How long a request may be on its way: not longer than the effect's own time."""

world = World()
"""The world of the run that is going on; the simulator puts a new one here."""


def _word(ctx: StepContext, plan: list[str]) -> str:
    return plan[ctx.attempt - 1] if ctx.attempt <= len(plan) else "ok"


def _step_name(ctx: StepContext) -> str:
    return ctx.step if ctx.parallel_index is None else f"{ctx.step}[{ctx.parallel_index}]"


def _line(ctx: StepContext) -> str:
    """Name the work that this is part of, which stays the same through retries, at every depth."""
    task = ctx.attempt_input.task
    return str(task.input.get("line") or task.origin_id)


async def touch(
    ctx: StepContext, plan: list[str], seconds: float, size: int = 0, taken: object = None
) -> str:
    """Do something repeatable with another step's output; return much or little."""
    world.touched[f"{ctx.task_id} {_step_name(ctx)}"] += 1
    word = _word(ctx, plan)
    ctx.log(f"attempt {ctx.attempt}: {word}")
    await asyncio.sleep(LATE_SECONDS if word == "late" else seconds)
    if word == "error":
        raise ValueError("it did not work")
    if word == "refused":
        raise DefiniteFailure("it never will", may_retry=False)
    return _step_name(ctx).ljust(size)


async def keep(ctx: StepContext, seen: int, rounds: int, seconds: float) -> int:
    """Count up a shared value by compare-and-set; every attempt must see the same of `state`."""
    world.see(f"{ctx.task_id} {_step_name(ctx)}", seen)
    for _ in range(rounds):
        while True:
            version = await ctx.state.version("total")
            value = await ctx.state.get("total", 0)
            await asyncio.sleep(seconds)
            if await ctx.state.compare_and_set("total", version, value + 1):
                break
    await ctx.state.set("own", ctx.task_id)
    return rounds


async def many(ctx: StepContext, count: int) -> list[int]:
    """Return a list for a group."""
    return list(range(count))


async def save(ctx: StepContext, rounds: int, seconds: float) -> int:
    """Work in rounds with a checkpoint after each; pause at any of them."""
    done = ctx.checkpoint or 0
    while done < rounds:
        await asyncio.sleep(seconds)
        done += 1
        await ctx.save(done)
    return int(done)


async def act(
    ctx: StepContext,
    plan: list[str],
    seconds: float,
    calls: int = 1,
    policy: str = "ask",
    changes: bool = False,
) -> int:
    """Make journaled calls, one after another; only the first follows the plan.

    With `changes` each attempt asks for something else.
    """
    for number in range(1, calls + 1):
        word = _word(ctx, plan) if number == 1 else "ok"
        request = {"for": _step_name(ctx), "number": number}
        if changes:
            request["attempt"] = ctx.attempt
        try:
            await _call(ctx, word, number, seconds, policy, request)
        except DefiniteFailure as problem:
            if (ctx.task_id, _step_name(ctx), number) in world.refused:
                world.refused_again += 1
            elif word == "noted" and not problem.may_retry:
                # What is saved later is durable later: the failure is on record by then.
                await ctx.save("refused")
                world.refused.add((ctx.task_id, _step_name(ctx), number))
                await asyncio.sleep(NOTED_SECONDS)
            raise
    return calls


async def _call(
    ctx: StepContext,
    word: str,
    number: int,
    seconds: float,
    policy: str,
    request: dict[str, object],
) -> None:
    async def perform(call: Call) -> str:
        return await _perform(ctx, call, word, number, seconds, is_once=policy != "retry")

    def reconcile(call: RecordedCall) -> Applied | bool:
        return Applied("seen") if world.has_seen(call.remote_key) else False

    await ctx.call(
        "act",
        request,
        perform,
        on_unknown=policy,
        timeout=5.0,
        reconcile=reconcile if policy == "reconcile" else None,
    )


async def use(line: str, number: int, word: str) -> str:
    """Act as the tool of an agent."""
    if word == "definite":
        raise DefiniteFailure("come again")
    world.by_use[(line, number)] += 1
    await asyncio.sleep(0.05)
    if word == "unheard" and world.by_use[(line, number)] == 1:
        raise ConnectionError("the answer was lost")
    return "used"


async def once(ctx: StepContext, plan: list[str], seconds: float) -> str:
    """Act as a whole (`effect: once`)."""
    call = ctx._call
    assert call is not None
    return await _perform(ctx, call, _word(ctx, plan), 1, seconds, is_once=True)


async def _perform(
    ctx: StepContext, call: Call, word: str, number: int, seconds: float, *, is_once: bool
) -> str:
    world.receive((ctx.task_id, _step_name(ctx), number))
    if word == "definite":
        await asyncio.sleep(seconds)
        raise DefiniteFailure("come again")
    if word in ("refused", "noted"):
        raise DefiniteFailure("never", may_retry=False)
    if word == "lost":
        await asyncio.sleep(seconds)
        raise ConnectionError("no route")
    name = (_line(ctx), _step_name(ctx), number)

    def arrive() -> None:
        world.happen(call.idempotency_key, call.remote_key, name, is_once=is_once)

    if word == "adrift":
        limit = ctx.attempt_input.step.timeout_seconds or ADRIFT_SECONDS
        world.send(min(ADRIFT_SECONDS, 0.9 * limit), arrive)
        raise ConnectionError("the connection broke")
    arrive()
    await asyncio.sleep(LATE_SECONDS if word == "late" else seconds)
    if word == "unheard":
        raise ConnectionError("the answer was lost")
    return "done"
