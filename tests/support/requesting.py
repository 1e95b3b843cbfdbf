"""`http` steps beside a real server, and names that resolve as a test wants."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent.core.state_machine import CallStatus
from agent.steps.attempt.services import Limits
from agent.steps.types.outcome import Json, Outcome, Retry
from tests.support.attempt import Trial, run
from tests.support.http_server import Respond, Server, serving

UNKNOWN, SUCCEEDED, FAILED = CallStatus.UNKNOWN, CallStatus.SUCCEEDED, CallStatus.FAILED

LOOPBACK = Limits(allow_private=("127.0.0.1",))


def http(config: dict[str, Json], limits: Limits = LOOPBACK, **more: Any) -> Trial:
    """Return a trial of an `http` step."""
    return Trial("http", config, limits=limits, **more)


def with_server(test: Callable[[Server], Awaitable[None]]) -> None:
    """Run a test beside a server."""

    async def main() -> None:
        async with serving() as server:
            await test(server)

    run(main())


async def attempt(trial: Trial) -> Outcome:
    """Run one attempt and let go of its connections."""
    try:
        return await trial.attempt()
    finally:
        await trial.services.aclose()


def ask(
    method: str, respond: Respond, path: str = "/it", **config: Json
) -> tuple[Outcome, Trial, Server]:
    """Make one request to a server that answers it so."""
    made: list[tuple[Outcome, Trial, Server]] = []

    async def main(server: Server) -> None:
        server.routes["/it"] = respond
        trial = http({method: server.url(path), **config})
        made.append((await attempt(trial), trial, server))

    with_server(main)
    return made[0]


@contextmanager
def refusing() -> Iterator[str]:
    """Give an address that refuses connections: bound, so that no other process listens there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


def outcome_name(outcome: Outcome) -> str:
    """Return the outcome of an attempt in one word."""
    if isinstance(outcome, Retry):
        return "unknown" if outcome.is_unknown else "retry"
    return type(outcome).__name__.lower()


def resolve_as(monkeypatch: pytest.MonkeyPatch, names: dict[str, str | None]) -> None:
    """Let the resolver know some names; None is one that does not exist."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in names:
            if names[name] is None:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = names[name]
        return real(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
