"""Functions that the tests of `executor: process` call in a process of the pool."""

import ctypes
import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from agent import Applied


def uses_context(n: int, ctx: Any) -> Any:
    """Use everything that a context has."""
    print("printed")  # noqa: T201
    logging.getLogger("process_functions").warning("logged")
    ctx.save({"page": 1})
    answer = ctx.call(
        "pay", {"n": n}, lambda call: {"paid": n, "has_key": len(call.remote_key) == 64}
    )
    return {
        "answer": answer,
        "step": ctx.step,
        "attempt": ctx.attempt,
        "checkpoint": ctx.checkpoint,
        "version": ctx.state.set("seen", n),
        "snapshot": ctx.snapshot({"n": n}, "halfway"),
        "process": os.getpid(),
    }


async def uses_context_on_a_loop(n: int, ctx: Any) -> Any:
    """Use the context of a coroutine function."""
    await ctx.save({"page": 1})
    answer = await ctx.call(
        "pay", {"n": n}, lambda call: {"paid": n, "has_key": len(call.remote_key) == 64}
    )
    await ctx.state.set("seen", n)
    snapshot = await ctx.snapshot({"n": n})
    return {"answer": answer, "snapshot": snapshot, "process": os.getpid()}


def name_of_process() -> int:
    """Return the process."""
    return os.getpid()


def exits() -> None:
    """End the process without any cleaning up."""
    os._exit(3)


def crashes() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def eats_memory() -> None:
    """Allocate without end."""
    kept = []
    while True:
        kept.append(bytearray(10_000_000))


def computes() -> None:
    """Compute without end."""
    while True:
        pass


def opens_files() -> None:
    """Open files without end."""
    kept = []
    while True:
        kept.append(Path(os.devnull).open())  # noqa: SIM115


def leaves_by_exception() -> None:
    """Raise what is meant to end a program."""
    raise SystemExit(4)


def raises() -> None:
    """Raise an ordinary exception."""
    raise KeyError("amount")


def dies_while_it_pays(ctx: Any) -> None:
    """End the process inside the function of a call."""
    ctx.call("pay", {}, lambda: os._exit(1))


def pays_into_a_file(path: str, ctx: Any) -> None:
    """Act once the intent is durable."""
    ctx.log("about to pay")
    ctx.call("pay", {}, lambda: Path(path).write_text("paid"))


def reconciles(found: bool, ctx: Any) -> Any:
    """Fail in an unknown way at first; the check finds the effect."""

    def pay() -> None:
        raise ConnectionError("cut")

    def check() -> Any:
        return Applied({"receipt": "found"}) if found else None

    return ctx.call("pay", {}, pay, reconcile=check)


def starts_a_child(path: str) -> None:
    """Start a process and wait for it."""
    child = subprocess.Popen(["sleep", "100"])
    Path(path).write_text(f"{os.getpid()} {child.pid} ")
    try:
        time.sleep(100)
    finally:
        with Path(path).open("a") as file:
            file.write("cleaned")


def saves_for_ever(ctx: Any) -> None:
    """Save one checkpoint after another."""
    number = 0
    while True:
        number += 1
        ctx.save(number)


def sleeps(seconds: float) -> int:
    """Take some time."""
    time.sleep(seconds)
    return os.getpid()
