"""Parses documents from outside in a process of its own, which can be ended.

A thread would not do: a page of half a megabyte of nested elements keeps the HTML library busy for
half a minute without releasing the interpreter's lock, a regular expression can take years, and
entities that expand take all memory. The process has limits of memory and processor time, and the
poll's timeout ends it.
"""

import asyncio
import json
import math
import os
import signal
import sys
from typing import Any, Final

from agent.steps.process.environment import BASIC
from agent.triggers.watchers.source import Json, PollContext, SourceError

_PROGRAM: Final = "from agent.triggers.watchers.parser_child import main; main()"

_OF_PYTHON: Final = frozenset({"PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
"""Without these, an interpreter that was started with them may not start."""
_SHARE: Final = 0.5
"""Of a poll's timeout: so much of it is left for the request, and for the message."""


class ParserTimeoutError(SourceError):
    """A document, or a pattern on it, took too long."""


async def parse_apart(
    parser: str, body: bytes, options: dict[str, Any], context: PollContext
) -> Json:
    """Return what `parse` of a module of this package makes of a document.

    Raise `SourceError` when it finds a problem, crashes or takes too long.
    """
    seconds = context.timeout_seconds * _SHARE
    # A little more than the timeout: it ends the child of an agent that was killed.
    header = {"parser": parser, "options": options, "cpu_seconds": math.ceil(seconds) + 1}
    answer = await _run(json.dumps(header).encode("ascii") + b"\n" + body, seconds)
    if "problem" in answer:
        raise SourceError(answer["problem"])
    return answer["value"]


async def _run(request: bytes, seconds: float) -> dict[str, Any]:
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            _PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=_environment(),
            # Control-C in a terminal is for the agent, which ends its polls itself.
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"the process that parses the document cannot start: {error}") from None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await child.communicate(request)
    except TimeoutError:
        raise _too_long(seconds) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == -signal.SIGXCPU:
        raise _too_long(seconds)
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        raise SourceError(
            f"the parser crashed at this document (exit status {child.returncode})"
        ) from None
    return answer


def _too_long(seconds: float) -> SourceError:
    return ParserTimeoutError(f"the document takes longer than {seconds:g} s to parse")


def _environment() -> dict[str, str]:
    """Return an environment without secrets, in which Python finds the same modules as here."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in BASIC | _OF_PYTHON or name.startswith("LC_")
    }
    return {**inherited, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
