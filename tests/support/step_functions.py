"""Step functions for the engine's tests: gates, counters, and failures on demand."""

import asyncio
import threading
from collections import defaultdict
from typing import Any
from uuid import uuid4

from agent.steps.attempt.context import StepContext
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.types.errors import DefiniteFailure

PATIENCE_SECONDS = 60

_gates: dict[str, "Gate"] = {}
runs: defaultdict[str, list[Any]] = defaultdict(list)
"""What ran, by the token that the test gave."""


class Gate:
    """Where attempts wait until the test lets them go; known to them by its name."""

    def __init__(self) -> None:
        self.name = uuid4().hex
        self.entered = 0
        self._is_open = threading.Event()
        _gates[self.name] = self

    @property
    def is_open(self) -> bool:
        """Whether attempts go through."""
        return self._is_open.is_set()

    def open(self) -> None:
        """Let all attempts go."""
        self._is_open.set()

    def block(self) -> None:
        """Keep a thread until the gate opens."""
        self.entered += 1
        self._is_open.wait(PATIENCE_SECONDS)


def open_all() -> None:
    """Let every attempt of a test that is over go."""
    for gate in _gates.values():
        gate.open()


async def _pass(gate: Gate) -> None:
    gate.entered += 1
    # The gate is opened from the test's thread, which sets no event of this loop.
    while not gate.is_open:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def noop() -> None:
    """Do nothing."""


async def echo(value: Any = None) -> Any:
    """Return what was given."""
    return value


async def record(ctx: StepContext, token: str, value: Any = None) -> Any:
    """Record that this step ran."""
    runs[token].append((ctx.step, ctx.parallel_index, ctx.attempt))
    return value


async def act(ctx: StepContext, token: str) -> Any:
    """Act in a way that must not be repeated."""

    def happen() -> int:
        runs[token].append((ctx.step, ctx.parallel_index, ctx.attempt))
        return len(runs[token])

    return await ctx.call("act", {"token": token}, happen)


async def gated(ctx: StepContext, gate: str, value: Any = None) -> Any:
    """Wait until the test opens the gate; a stop interrupts it."""
    runs[gate].append((ctx.step, ctx.parallel_index, ctx.attempt))
    await _pass(_gates[gate])
    return value


def stubborn(ctx: BlockingContext, gate: str, value: Any = None) -> Any:
    """Wait in a thread until the test opens the gate, whatever the engine asks."""
    runs[gate].append((ctx.step, ctx.parallel_index, ctx.attempt))
    _gates[gate].block()
    return value


def call_stubbornly(ctx: BlockingContext, gate: str) -> Any:
    """Act in a thread: the effect takes until the test opens the gate."""
    return ctx.call("pay", {"amount": 1}, _gates[gate].block)


def heeding(ctx: BlockingContext, gate: str, pause_seconds: float = 0.01) -> str:
    """Work in a thread until the engine asks to stop, and return that it did.

    It looks at the end of each pause.
    """
    _gates[gate].entered += 1
    while not ctx.should_stop:
        threading.Event().wait(pause_seconds)
    runs[gate].append("stopped")
    return "stopped"


async def slow_to_stop(token: str) -> None:
    """Take longer to stop than the worker waits, but notice its end."""
    runs[token].append("begun")
    try:
        await asyncio.sleep(PATIENCE_SECONDS)
    except asyncio.CancelledError:
        await asyncio.sleep(PATIENCE_SECONDS)


async def acting(ctx: StepContext, token: str) -> Any:
    """Begin a call that does not end."""

    async def act() -> None:
        runs[token].append("begun")
        await asyncio.sleep(PATIENCE_SECONDS)

    return await ctx.call("pay", {"amount": 1}, act)


async def saving(ctx: StepContext, gate: str) -> dict[str, Any]:
    """Save checkpoints until the gate opens; return the checkpoint that it started from."""
    begun_at = ctx.checkpoint or 0
    runs[gate].append(begun_at)
    count = begun_at
    _gates[gate].entered += 1
    while not _gates[gate].is_open:
        count += 1
        await ctx.save(count)
        await asyncio.sleep(0.01)
    return {"begun_at": begun_at, "attempt": ctx.attempt}


async def fail(message: str = "it does not work") -> None:
    """Fail for good."""
    raise DefiniteFailure(message, code="no", may_retry=False)


async def gated_failure(gate: str) -> None:
    """Fail for good once the gate opens."""
    await _pass(_gates[gate])
    raise DefiniteFailure("it does not work", code="no", may_retry=False)


async def blow_up(message: str = "boom") -> None:
    """Raise an ordinary exception."""
    raise ValueError(message)


async def unspeakable() -> None:
    """Raise an exception that no database can store."""
    raise ValueError("\ud800")


async def fail_before(ctx: StepContext, attempt: int) -> int:
    """Fail until a given attempt; return the number of the one that succeeded."""
    if ctx.attempt < attempt:
        raise ValueError(f"attempt {ctx.attempt} is too early")
    return ctx.attempt


async def fail_while_shut(ctx: StepContext, gate: str, value: Any = None) -> Any:
    """Fail for good until the gate opens."""
    runs[gate].append((ctx.step, ctx.parallel_index, ctx.attempt))
    if not _gates[gate].is_open:
        raise DefiniteFailure("not yet", may_retry=False)
    return value


async def odd_fails_while_shut(ctx: StepContext, gate: str, value: int) -> int:
    """Fail for odd values until the gate opens."""
    runs[gate].append(value)
    if value % 2 == 1 and not _gates[gate].is_open:
        raise DefiniteFailure(f"{value} is odd", may_retry=False)
    return value * 10


async def asked_to_wait(ctx: StepContext, seconds: float) -> int:
    """Fail once, with a retry delay of its own."""
    if ctx.attempt == 1:
        raise DefiniteFailure("too many requests", delay_seconds=seconds)
    return ctx.attempt


async def cut_off(ctx: StepContext, token: str, on_unknown: str = "ask") -> Any:
    """Act outside, and lose the first response."""

    async def act() -> dict[str, int]:
        runs[token].append(ctx.attempt)
        if len(runs[token]) == 1:
            raise ConnectionError("the answer was lost")
        return {"acts": len(runs[token])}

    return await ctx.call("pay", {"amount": 1}, act, on_unknown=on_unknown)


async def cut_off_at_length(ctx: StepContext, text: str) -> None:
    """Act outside with a long request, and never get a response."""

    async def act() -> None:
        raise ConnectionError("the answer was lost")

    await ctx.call("pay", {"text": text}, act)


async def post(ctx: StepContext, token: str) -> Any:
    """Make the one call that the tests of recovery record."""

    def act() -> int:
        runs[token].append(ctx.attempt)
        return len(runs[token])

    return await ctx.call("post", {"to": "the world"}, act)


async def cut_off_and_changed(ctx: StepContext, token: str, on_unknown: str = "ask") -> Any:
    """Act outside, and lose the first response; each attempt sends another request."""

    async def act() -> dict[str, int]:
        runs[token].append((ctx.task_id, ctx.attempt))
        if len(runs[token]) == 1:
            raise ConnectionError("the answer was lost")
        return {"acts": len(runs[token])}

    request = {"task": ctx.task_id, "attempt": ctx.attempt}
    return await ctx.call("pay", request, act, on_unknown=on_unknown)


async def call_with_large_answer(ctx: StepContext, text: str) -> int:
    """Make a call whose response is long, and return something short."""

    async def act() -> str:
        return text

    return len(await ctx.call("read", {}, act))


async def speak_until(ctx: StepContext, attempt: int, word: str) -> str:
    """Print the attempt's number; fail before a given attempt."""
    print(f"attempt {ctx.attempt}")  # noqa: T201
    if ctx.attempt < attempt:
        raise ValueError(f"not yet: {word}")
    return word


def snapshot_twice(ctx: Any) -> list[str]:
    """Append two snapshots; the first attempt fails after that."""
    appended = [ctx.snapshot({"n": 1}, "plan"), ctx.snapshot(2)]
    if ctx.attempt == 1:
        raise RuntimeError("after its snapshots")
    return appended


def snapshot_of(ctx: Any, characters: int) -> str:
    """Append a long text."""
    appended: str = ctx.snapshot(characters * "x")
    return appended
