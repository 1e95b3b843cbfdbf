"""Redirects to another origin: nothing goes along that was meant for the first one."""

import json
from typing import Any

import httpx
import pytest

from agent.steps.attempt.services import Limits
from agent.steps.http.redirects import is_same_origin
from agent.steps.types.outcome import Failed, Json, Succeeded
from tests.support.agent_loop import answers, trial, uses
from tests.support.http_server import Server, answer, redirect, serving
from tests.support.requesting import FAILED, attempt, http, with_server

HEADERS: dict[str, Json] = {
    "Authorization": "Bearer literal-token",
    "X-Api-Key": "literal-key",
    "X-Custom": "anything",
    "Cookie": "session=1",
    "Proxy-Authorization": "Basic abc",
    "Accept": "text/plain",
    "Accept-Language": "de",
}
BODIES: list[dict[str, Json]] = [
    {"json": {"password": "env:PASSWORD"}},
    {"data": {"password": "literal"}},
    {"data": "text"},
]


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_a_body_stays_with_its_origin(
    method: str, body: dict[str, Json], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends as a definite failure: the first server only named another place."""
    monkeypatch.setenv("PASSWORD", "hunter2-secret")

    async def main(server: Server) -> None:
        async with serving() as other:
            other.routes["/there"] = answer(200, "taken")
            server.routes["/it"] = redirect(status, other.url("/there?a=b"))
            made = http({method: server.url("/it"), **body})
            outcome = await attempt(made)
            assert isinstance(outcome, Failed), outcome
            assert outcome.error.code == "redirect_refused"
            assert f"to http://127.0.0.1:{other.port}, another origin" in outcome.error.message
            assert "write the final address" in outcome.error.message
            assert other.received == []
            assert made.journal.statuses == [FAILED]
            assert "hunter2" not in repr([outcome, made.journal.results])

    with_server(main)


def test_a_body_that_a_301_would_repeat() -> None:
    """Only POST becomes GET by 301: a PUT keeps its body, and stays."""

    async def main(server: Server) -> None:
        async with serving() as other:
            server.routes["/it"] = redirect(301, other.url("/there"))
            outcome = await attempt(http({"put": server.url("/it"), "json": [1]}))
            assert isinstance(outcome, Failed) and outcome.error.code == "redirect_refused"
            assert other.received == []

    with_server(main)


@pytest.mark.parametrize(("method", "status"), [("get", 302), ("get", 307), ("post", 303)])
def test_headers_stay_with_their_origin(method: str, status: int) -> None:
    """Every header of the step's own may be a credential; what only describes the answer goes on."""

    async def main(server: Server) -> None:
        async with serving() as other:
            other.routes["/there"] = answer(200, "ok")
            server.routes["/it"] = redirect(status, other.url("/there"))
            body: dict[str, Json] = {"json": {"a": 1}} if method == "post" else {}
            outcome = await attempt(http({method: server.url("/it"), "headers": HEADERS, **body}))
            assert isinstance(outcome, Succeeded), outcome
            assert server.received[0].headers["x-api-key"] == "literal-key"
            (second,) = other.received
            assert second.body == b"" and second.headers["host"] == f"127.0.0.1:{other.port}"
            given = {name.lower(): value for name, value in HEADERS.items()}
            kept = {name: value for name, value in second.headers.items() if name in given}
            assert kept == {"accept": "text/plain", "accept-language": "de"}

    with_server(main)


def test_within_an_origin_everything_goes_along() -> None:
    """A server may move what it is asked for: the body and the headers are for it."""

    async def main(server: Server) -> None:
        server.routes["/it"] = redirect(307, "/there")
        server.routes["/there"] = answer(200, "ok")
        outcome = await attempt(
            http({"post": server.url("/it"), "json": {"a": 1}, "headers": HEADERS})
        )
        assert isinstance(outcome, Succeeded)
        assert json.loads(server.received[1].body) == {"a": 1}
        assert server.received[1].headers["x-api-key"] == "literal-key"

    with_server(main)


def test_an_effect_without_a_body_keeps_its_key() -> None:
    """The key that makes a repetition safe is no secret, and goes along."""

    async def main(server: Server) -> None:
        async with serving() as other:
            other.routes["/there"] = answer(200, "ok")
            server.routes["/it"] = redirect(307, other.url("/there"))
            made = http({"post": server.url("/it"), "idempotent": True, "headers": HEADERS})
            assert isinstance(await attempt(made), Succeeded)
            (_, intent), (second,) = made.journal.intents[0], other.received
            assert second.headers["idempotency-key"] == intent.remote_key
            assert "x-api-key" not in second.headers and second.method == "POST"

    with_server(main)


def test_a_models_request_stays_with_its_origin() -> None:
    """The `http` tool follows the same rules, also where both addresses are allowed."""

    async def main(server: Server) -> None:
        async with serving() as other:
            other.routes["/there"] = answer(200, "ok")
            server.routes["/it"] = redirect(307, other.url("/there"))
            tool: dict[str, Any] = {
                "urls": [server.url("/"), other.url("/")],
                "methods": ["get", "post"],
                "headers": HEADERS,
            }
            wishes = [
                ("web", {"url": server.url("/it"), "method": "post", "json": {"a": 1}}),
                ("web", {"url": server.url("/it"), "method": "get"}),
            ]
            made = trial(
                [uses(*wishes), "done"],
                {"web": {"http": tool, "approve": "never"}},
                limits=Limits(allow_private=("127.0.0.1",)),
            )
            assert await attempt(made) == Succeeded("done")
            refused, read = answers(made)
            assert "another origin" in str(refused) and json.loads(read["text"])["body"] == "ok"
            (second,) = other.received
            assert second.method == "GET" and "x-api-key" not in second.headers

    with_server(main)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://a/x", "https://a/y", True),
        ("https://a/", "https://A:443/", True),
        ("http://a/", "https://a/", True),
        ("http://a:80/", "https://a:443/", True),
        ("https://a/", "http://a/", False),
        ("http://a/", "https://b/", False),
        ("http://a/", "https://a:8443/", False),
        ("http://a:8080/", "https://a/", False),
        ("https://a/", "https://a:444/", False),
        ("https://a/", "https://a.b/", False),
        ("https://a/", "https://a./", False),
    ],
)
def test_same_origin(one: str, other: str, is_same: bool) -> None:
    """The same host by HTTPS counts where HTTP was requested, never the other way."""
    assert is_same_origin(httpx.URL(one), httpx.URL(other)) is is_same
