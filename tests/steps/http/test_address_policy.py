import httpcore
import pytest

from agent.steps.attempt.services import Limits
from agent.steps.types.attempt_input import Upstream
from agent.steps.types.outcome import Failed, Json, Retry, Succeeded
from tests.support.attempt import run
from tests.support.http_server import (
    Server,
    answer,
    redirect,
    serving,
)
from tests.support.requesting import attempt, http, outcome_name, refusing, resolve_as, with_server


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://[::1]:1/",
        "http://[::ffff:127.0.0.1]:1/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.1.2.3/",
        "http://0.0.0.0:1/",
        "http://[::]:1/",
        "http://[::127.0.0.1]:1/",
        "http://[::ffff:0:127.0.0.1]:1/",
        "http://[64:ff9b::127.0.0.1]:1/",
        "http://[64:ff9b:1::127.0.0.1]:1/",
        "http://[2002:7f00:1::]:1/",
        "http://[fec0::1]:1/",
        "http://[fe80::1]:1/",
        "http://[fd00::1]:1/",
        "http://[ff02::1]:1/",
        "http://100.64.0.1/",
        "http://255.255.255.255/",
        "http://127.1:1/",
        "http://2130706433:1/",
        "http://rebound.example/",
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_private_addresses_are_refused_after_resolution(
    method: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is written or resolved, an address that is not allowed is not reached."""
    resolve_as(monkeypatch, {"rebound.example": "192.168.1.1", "2130706433": "127.0.0.1"})
    outcome = run(attempt(http({method: url}, limits=Limits())))
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "address_refused"
    assert "allow_private" in outcome.error.message


def test_the_checked_address_is_the_connected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved once: a second answer of the resolver is not used."""
    resolve_as(monkeypatch, {"rebound.example": "93.184.215.14"})
    reached = []

    async def connect_tcp(_: object, host: str, *rest: object, **more: object) -> None:
        reached.append(host)
        raise httpcore.ConnectError("no server is there")

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_tcp)
    outcome = run(attempt(http({"get": "http://rebound.example/"}, limits=Limits())))
    assert isinstance(outcome, Retry)
    assert reached == ["93.184.215.14"]


@pytest.mark.parametrize("allowed", ["service.example", "127.0.0.0/8", "127.0.0.1"])
def test_allowed_addresses_are_reached_under_their_name(
    allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host name, a network or an address can be allowed; the request keeps the name."""
    resolve_as(monkeypatch, {"service.example": "127.0.0.1"})

    async def main(server: Server) -> None:
        server.routes["/it"] = answer(200, "hello")
        url = server.url("/it", "service.example")
        outcome = await attempt(http({"get": url}, limits=Limits(allow_private=(allowed,))))
        assert isinstance(outcome, Succeeded)
        assert server.received[0].headers["host"] == f"service.example:{server.port}"

    with_server(main)


@pytest.mark.parametrize(("method", "status"), [("get", 302), ("get", 307), ("post", 307)])
def test_a_redirect_to_a_private_address_is_refused(method: str, status: int) -> None:
    """Every hop is checked, not only the first."""

    async def main(server: Server) -> None:
        server.routes["/it"] = redirect(status, f"http://127.0.0.2:{server.port}/secret")
        server.routes["/secret"] = answer(200, "secret")
        trial = http({method: server.url("/it")})
        outcome = await attempt(trial)
        assert isinstance(outcome, Failed)
        assert outcome.error.code == "address_refused"
        assert [received.target for received in server.received] == ["/it"]

    with_server(main)


def test_redirects_are_followed_within_a_bound() -> None:
    """A chain leads to its end; a circle is given up."""

    async def main(server: Server) -> None:
        server.routes["/it"] = redirect(302, "/next")
        server.routes["/next"] = redirect(301, "/last")
        server.routes["/last"] = answer(200, "end")
        server.routes["/circle"] = redirect(302, "/circle")
        outcome = await attempt(http({"get": server.url("/it")}))
        assert isinstance(outcome, Succeeded)
        assert outcome.output["body"] == "end"
        circle = await attempt(http({"get": server.url("/circle")}))
        assert isinstance(circle, Failed)
        assert "redirects" in circle.error.message
        elsewhere = http({"get": server.url("/file")})
        server.routes["/file"] = redirect(302, "file:///etc/passwd")
        assert isinstance(await attempt(elsewhere), Failed | Retry)

    with_server(main)


def test_an_effect_that_was_answered_with_a_redirect_may_have_happened() -> None:
    """After a 303 the following GET that breaks leaves the effect unknown."""

    async def main(server: Server) -> None:
        with refusing() as nobody:
            server.routes["/it"] = redirect(303, nobody)
            trial = http({"post": server.url("/it")})
            assert outcome_name(await attempt(trial)) == "unknown"

    with_server(main)


def test_secrets_are_sent_only_to_their_own_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are resolved for the request, leave no trace, and do not follow a redirect elsewhere."""
    monkeypatch.setenv("API_TOKEN", "s3cr3t/token+1")

    async def main(server: Server) -> None:
        async with serving() as other:
            other.routes["/there"] = answer(200, "ok")
            server.routes["/it"] = redirect(303, other.url("/there"))
            server.routes["/echo"] = answer(400, {"you sent": "s3cr3t/token+1"})
            config: dict[str, Json] = {
                "headers": {"Authorization": "Bearer env:API_TOKEN", "X-Key": "env:API_TOKEN"},
                "params": {"token": "env:API_TOKEN"},
                "json": {"token": "env:API_TOKEN", "text": "{{ steps.a.output }}"},
                "expect": [200, 400],
            }
            upstream = {"a": Upstream("succeeded", "env:API_TOKEN")}
            trial = http({"post": server.url("/it"), **config}, upstream=upstream)
            assert isinstance(await attempt(trial), Succeeded)
            first, second = server.received[0], other.received[0]
            assert first.headers["authorization"] == "Bearer s3cr3t/token+1"
            assert first.headers["x-key"] == "s3cr3t/token+1"
            assert first.target == "/it?token=s3cr3t%2Ftoken%2B1"
            assert first.body == b'{"token":"s3cr3t/token+1","text":"env:API_TOKEN"}'
            assert "authorization" not in second.headers
            assert "x-key" not in second.headers
            assert "s3cr3t" not in second.target and second.body == b""
            echo = http({"post": server.url("/echo"), **config}, upstream=upstream)
            outcome = await attempt(echo)
            assert isinstance(outcome, Succeeded)
            assert outcome.output["body"] == {"you sent": "[redacted]"}
            for each in (trial, echo):
                assert "s3cr3t" not in repr([each.journal.intents, each.journal.results])

    with_server(main)


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "not an address", "http://", "http://127.0.0.1:65536/"]
)
def test_an_address_that_is_none_is_the_definitions_mistake(url: str) -> None:
    """Nothing is sent and nothing retried."""
    outcome = run(attempt(http({"get": url})))
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "input"
