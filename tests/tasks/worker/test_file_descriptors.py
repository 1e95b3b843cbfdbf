"""Without file descriptors steps are put off: nothing began, so no attempt is used."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import httpcore
import pytest

from agent.core.files import file_descriptors
from agent.steps.http.address_policy import GuardedBackend
from tests.support.engine import Engine, Start, graph, other

TRIES = 2
"""How many tries find no descriptor."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_descriptors, "RETRY_SECONDS", 0.05)


@pytest.fixture
def remote() -> Iterator[str]:
    """Return the address of a server that answers everything with 200."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 - the name that the standard library looks for

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def _failing(act: Callable[..., Any], *, first: int = TRIES, after: int = 0) -> Callable[..., Any]:
    """Return a function that finds no descriptor in its first calls, or in those after some."""
    calls = 0

    def refuse(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if after < calls <= after + first:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return act(*given, **named)

    return refuse


def _check_put_off(engine: Engine, done: dict[str, Any], times: int) -> None:
    assert done["status"] == "succeeded", done
    assert [step["attempt"] for step in done["steps"]] == [1]
    types = engine.types(done["id"], "one")
    assert types.count("step.returned") == times
    assert types.count("step.claimed") == times + 1
    assert "step.retried" not in types


@pytest.mark.parametrize("config", [{"effect": "none"}, {}], ids=["reading", "effect"])
@pytest.mark.parametrize("where", ["pipe", "spawn"])
def test_a_command_waits_for_file_descriptors(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], where: str
) -> None:
    """A command that cannot be spawned for lack of descriptors is spawned later."""
    if where == "pipe":
        # The second pipe of a command: the first must not be left open.
        monkeypatch.setattr(
            "agent.steps.process.gated_process.os.pipe", _failing(os.pipe, first=1, after=1)
        )
    else:
        monkeypatch.setattr(subprocess, "Popen", _failing(subprocess.Popen))
    done = engine.run(graph(other("one", "shell", config={"argv": ["true"], **config})))
    _check_put_off(engine, done, 1 if where == "pipe" else TRIES)


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_request_waits_for_file_descriptors(
    start: Start, monkeypatch: pytest.MonkeyPatch, remote: str, method: str
) -> None:
    """A request that cannot be sent for lack of descriptors is sent later, once."""
    engine = start(allow_private=("127.0.0.1",))
    if method == "get":
        connect = _failing(GuardedBackend.connect_tcp)

        async def refuse(*given: Any, **named: Any) -> Any:
            try:
                return await connect(*given, **named)
            except OSError as problem:
                raise httpcore.ConnectError("all attempts failed") from problem

        monkeypatch.setattr(GuardedBackend, "connect_tcp", refuse)
    else:
        found = iter([False] * TRIES)
        monkeypatch.setattr(file_descriptors, "are_available", lambda: next(found, True))
    done = engine.run(graph(other("one", "http", config={method: remote})))
    _check_put_off(engine, done, TRIES)
    intents = engine.types(done["id"]).count("tool_call.intended")
    assert intents == (0 if method == "get" else 1)


_RAISING = """\
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 400))
import asyncio, os
from agent.core.files import file_descriptors
from agent.steps.process.gated_process import spawn
from agent.core.thread_bridge import UnboundedThreads
assert file_descriptors.raise_limit() == 400 == file_descriptors.limit()

async def main():
    command = spawn(["sh", "-c", "ulimit -Sn; ulimit -Hn"], dict(os.environ), None, UnboundedThreads())
    out, _ = await command.readers()
    await command.open_gate("")
    print((await out.read()).split())
    await command.wait()
    held = []
    while file_descriptors.are_available():
        held.append(os.open(os.devnull, os.O_RDONLY))
    print(held[-1])

asyncio.run(main())
"""


def test_the_soft_limit_is_raised_for_this_process_only() -> None:
    """The process has the hard limit; its commands get the original soft limit."""
    done = subprocess.run(
        [sys.executable, "-c", _RAISING], capture_output=True, text=True, timeout=60, check=True
    )
    limits, opened = done.stdout.splitlines()
    assert limits == "[b'200', b'400']"
    assert int(opened) == 399


def test_only_a_lack_of_descriptors_is_exhaustion() -> None:
    """It counts anywhere in the chain of causes; other errors do not."""
    plain = OSError(errno.ECONNREFUSED, "refused")
    assert not file_descriptors.is_exhaustion(plain)
    assert not file_descriptors.is_exhaustion(None)
    grouped = ExceptionGroup("several", [plain, OSError(errno.ENFILE, "none left")])
    wrapped = RuntimeError("around")
    wrapped.__cause__ = grouped
    assert file_descriptors.is_exhaustion(wrapped)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 64
