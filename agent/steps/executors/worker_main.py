"""The program of a process of the pool: it calls one function after another for its agent.

It ends, with everything that it started in its process group, when its agent does: the connection closes
then. Code that holds the interpreter delays that; the next start of the agent finds the process by the
mark in its environment.
"""

import asyncio
import contextlib
import faulthandler
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

from agent.core.logs.tracebacks import user_traceback
from agent.steps.attempt import containment
from agent.steps.attempt.captured_output import captured, capturing
from agent.steps.executors import messages
from agent.steps.executors.messages import Message
from agent.steps.executors.worker_context import AsyncWorkerContext, BlockingWorkerContext
from agent.steps.executors.worker_link import Link
from agent.steps.kinds.python_modules import Function, find
from agent.steps.process.processes import WATCHER
from agent.steps.process.resource_limits import LIMITS, within
from agent.steps.types.outcome import Json
from agent.store.db.json_values import encode

STOP_SIGNAL: Final = signal.SIGUSR1
"""Ends the function in the main thread; its `finally` blocks run."""


class StoppedError(BaseException):
    """The agent ends the attempt: the function's `finally` blocks run, for the grace time."""


def main() -> None:
    """Serve the agent at the other end of the socket whose number is the argument."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    # What the function starts must not be taken for a process of the pool.
    os.environ.pop(WATCHER, None)
    faulthandler.enable()
    # Only the agent stops a function: a service manager sends SIGTERM to all processes of the agent,
    # which lets its steps finish. A handler, since what the function starts would inherit SIG_IGN.
    signal.signal(signal.SIGTERM, _ignore)
    signal.signal(STOP_SIGNAL, _ignore)
    link = Link(connection)
    hello = messages.read_blocking(connection)
    if hello is None:
        return
    sys.path[:] = hello["path"]
    threading.Thread(
        target=link.read_all, args=(_interrupt, _end), name="link", daemon=True
    ).start()
    with capturing():
        link.send({"ready": os.getpid()})
        while True:
            run = link.runs.get()
            link.send({"done": _run(run, link), "is_reusable": _is_reusable()})


def _interrupt() -> None:
    """Interrupt the function, which runs in the main thread.

    The agent cannot do this with a signal: one that is sent to a process may be taken by any of its
    threads, and the main thread would go on sleeping.
    """
    signal.pthread_kill(threading.main_thread().ident or 0, STOP_SIGNAL)


def _stop(*_: object) -> None:
    raise StoppedError


def _ignore(*_: object) -> None:
    """Go on."""


def _end() -> None:
    """End this process group: the agent has gone, or is done with it."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _is_reusable() -> bool:
    """Whether nothing of the function still runs: another one would be disturbed by it."""
    own = {threading.main_thread().name, "link"}
    return all(
        thread.name in own or thread.name.startswith("asyncio_") for thread in threading.enumerate()
    )


def _run(run: Message, link: Link) -> Message:
    def log(stream: str, text: str) -> None:
        link.send({"log": stream, "text": text})

    call = run["call"]
    signal.signal(STOP_SIGNAL, _stop)
    try:
        with _limited(run["limits"]), captured(log):
            function: Function = containment.call(call, find, call, run["source_path"])
            arguments = run["with"]
            function.check(call, frozenset(arguments))
            output = _call(function, arguments, run["facts"], link)
            encode(output, "output")
            return {"output": output}
    except StoppedError:
        return {"problem": {"type": "stopped"}}
    except MemoryError as error:
        # Inside the function, its frames hold what it had allocated.
        limit = run["limits"].get("memory")
        text = (
            f"the step used more memory than its limit of {limit:,} bytes" if limit else "no memory"
        )
        return {
            "problem": {
                "type": "memory",
                "message": text,
                "traceback": user_traceback(error.with_traceback(None)),
            }
        }
    except BaseException as error:
        described = messages.describe(error)
        if described is not None:
            return {"problem": described}
        return {
            "problem": {
                "type": "code",
                "message": containment.describe_exception(error),
                "traceback": user_traceback(error),
            }
        }
    finally:
        signal.signal(STOP_SIGNAL, _ignore)


def _call(function: Function, arguments: dict[str, Any], facts: Message, link: Link) -> Json:
    keywords = dict(arguments)
    if not function.is_async:
        if function.takes_context:
            keywords["ctx"] = BlockingWorkerContext(link, facts)
        return _contained(function, keywords)
    if function.takes_context:
        keywords["ctx"] = AsyncWorkerContext(link, facts)

    async def awaited() -> Json:
        return await containment.call_async(function.name, function.function, **keywords)

    return asyncio.run(awaited())


def _contained(function: Function, keywords: dict[str, Any]) -> Json:
    """Call a function; `StoppedError` is the agent's own, and no exception of the step."""
    try:
        return containment.call(function.name, function.function, **keywords)
    except containment.StepExitError as error:
        if isinstance(error.__cause__, StoppedError):
            raise error.__cause__ from None
        raise


@contextlib.contextmanager
def _limited(limits: dict[str, int]) -> Iterator[None]:
    """Set soft limits of the process for one function; the hard ones stay, so that they can be lifted."""
    before = {name: resource.getrlimit(LIMITS[name]) for name in limits}
    used = resource.getrusage(resource.RUSAGE_SELF)
    for name, limit in limits.items():
        if name == "cpu_seconds":
            # Of the whole process, which may have served other steps before.
            limit += int(used.ru_utime + used.ru_stime)
        hard = before[name][1]
        resource.setrlimit(LIMITS[name], (within(limit, hard), hard))
    try:
        yield
    finally:
        for name, limit_pair in before.items():
            resource.setrlimit(LIMITS[name], limit_pair)


if __name__ == "__main__":
    main()
