import asyncio
import base64
import gzip
import tracemalloc
import zlib

import httpx
import pytest

from agent.core.state_machine import CallStatus
from agent.core.waits import UnknownCall
from agent.steps.attempt.services import Limits
from agent.steps.http import client
from agent.steps.types.outcome import Failed, Json, Retry, Succeeded, Waiting
from tests.support.attempt import skip_time, until
from tests.support.http_server import Respond, Server, answer, hang_up, in_turn, stall, truncate
from tests.support.requesting import (
    FAILED,
    SUCCEEDED,
    UNKNOWN,
    ask,
    attempt,
    http,
    outcome_name,
    refusing,
    resolve_as,
    with_server,
)


def test_a_get_gives_status_headers_and_body_and_is_not_journaled() -> None:
    """JSON is given as its value; a read leaves nothing in the ledger."""
    outcome, trial, server = ask(
        "get",
        answer(200, {"a": [1]}, {"X-Kind": "test"}),
        path="/it?page=2",
        params={"q": "a b", "n": 3},
        headers={"X-From": "agent"},
    )
    assert isinstance(outcome, Succeeded)
    assert outcome.output["status"] == 200
    assert outcome.output["body"] == {"a": [1]}
    assert outcome.output["headers"]["x-kind"] == "test"
    assert server.received[0].target == "/it?page=2&q=a+b&n=3"
    assert server.received[0].headers["x-from"] == "agent"
    assert trial.journal.intents == []


@pytest.mark.parametrize(
    ("body", "media", "given"),
    [
        (b"caf\xe9", "text/plain; charset=latin-1", "café"),
        (b"a\0b", "text/plain", "a\ufffdb"),
        (b"{broken", "application/json", "{broken"),
        (b'{"n": NaN}', "application/json", '{"n": NaN}'),
        (b'"\\ud800"', "application/json", '"\\ud800"'),
        (b"\x89PNG", "image/png", "iVBORw=="),
        (b"", "text/plain", None),
    ],
)
def test_bodies_are_always_storable(body: bytes, media: str, given: Json) -> None:
    """Text is decoded, what is not plain JSON stays text, and the rest is base64."""
    outcome, _, _ = ask("get", answer(200, body, {"Content-Type": media}))
    assert isinstance(outcome, Succeeded)
    assert outcome.output["body"] == given
    assert outcome.output.get("encoding") == ("base64" if media == "image/png" else None)


def test_a_post_is_an_effect_whose_answer_is_the_outcome() -> None:
    """Its intent is durable before it is sent, and its key names the step's outcome."""
    outcome, trial, server = ask("post", answer(201, {"id": 7}), json={"amount": 3})
    _, intent = trial.journal.intents[0]
    assert isinstance(outcome, Succeeded)
    assert outcome.idempotency_key == intent.idempotency_key
    assert intent.action == "http.post#1"
    assert intent.settles_step
    assert trial.journal.records()[0].response == outcome.output
    assert server.received[0].body == b'{"amount":3}'
    assert "idempotency-key" not in server.received[0].headers


def test_forms_and_texts_are_sent_as_data() -> None:
    """A mapping is a form, a text goes as it is."""
    _, _, form = ask("put", answer(), data={"a": "x y", "n": 1})
    assert form.received[0].body == b"a=x+y&n=1"
    _, _, text = ask("put", answer(), data="plain")
    assert text.received[0].body == b"plain"


@pytest.mark.parametrize(
    ("method", "status", "expected", "ledger"),
    [
        ("get", 404, "failed", []),
        ("get", 429, "retry", []),
        ("get", 503, "retry", []),
        ("put", 500, "retry", [FAILED]),
        ("delete", 404, "failed", [FAILED]),
        ("post", 400, "failed", [FAILED]),
        ("post", 429, "retry", [FAILED]),
        ("post", 500, "unknown", [UNKNOWN]),
        ("patch", 503, "unknown", [UNKNOWN]),
    ],
)
def test_statuses_mean_different_things_to_reads_and_effects(
    method: str, status: int, expected: str, ledger: list[CallStatus]
) -> None:
    """A 5xx after an effect is unknown; a 4xx is a refusal; 429 may be tried again by all."""
    outcome, trial, _ = ask(method, answer(status, {}))
    assert outcome_name(outcome) == expected
    assert trial.journal.statuses == ledger
    assert isinstance(outcome, Retry | Failed)
    assert outcome.error.code == f"status_{status}"


@pytest.mark.parametrize("expect", [404, "4xx", [200, "400-404"]])
def test_expect_says_which_statuses_are_well(expect: Json) -> None:
    """A status, a class, a range or a list of these."""
    outcome, _, _ = ask("get", answer(404, {}), expect=expect)
    assert isinstance(outcome, Succeeded)
    refused, _, _ = ask("get", answer(200, {}), expect=404)
    assert isinstance(refused, Failed)


def test_retry_after_is_honoured_in_seconds_and_as_a_date() -> None:
    """The next attempt comes no sooner than the remote asked for."""
    outcome, _, _ = ask("get", answer(429, {}, {"Retry-After": "17"}))
    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds == 17
    outcome, _, _ = ask("post", answer(503, {}, {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}))
    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds == 86_400
    outcome, _, _ = ask("get", answer(503, {}, {"Retry-After": "soon"}))
    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds is None


@pytest.mark.parametrize("respond", [hang_up, truncate])
@pytest.mark.parametrize(
    ("method", "expected"),
    [("get", "retry"), ("put", "unknown"), ("post", "unknown")],
)
def test_a_connection_that_breaks_after_the_first_byte(
    respond: Respond, method: str, expected: str
) -> None:
    """A read is retried; an effect is unknown."""
    outcome, trial, server = ask(method, respond)
    assert outcome_name(outcome) == expected
    assert trial.journal.statuses == ([] if method == "get" else [UNKNOWN])
    assert len(server.received) == 1


@pytest.mark.parametrize(("method", "expected"), [("get", "retry"), ("post", "unknown")])
def test_an_answer_that_does_not_come_in_time(method: str, expected: str) -> None:
    """The step's timeout, or else the default of a call, ends the request."""

    async def main(server: Server) -> None:
        server.routes["/it"] = stall
        trial = http(
            {method: server.url("/it")},
            limits=Limits(allow_private=("127.0.0.1",), call_seconds=30),
        )
        going = asyncio.create_task(attempt(trial))
        await until(lambda: server.received)
        skip_time(30)
        outcome = await going
        assert outcome_name(outcome) == expected
        assert trial.journal.statuses == ([] if method == "get" else [UNKNOWN])

    with_server(main)


@pytest.mark.parametrize(
    ("how", "code"), [("refused", "refused"), ("dns", "dns"), ("no TLS", "timeout")]
)
def test_a_request_that_was_not_sent_is_a_definite_failure(
    how: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, not resolved and no TLS: an effect may be retried with a new key; each has its code."""
    resolve_as(monkeypatch, {"nowhere.example": None})
    # The server waits for a request and does not answer the TLS handshake: that is given up.
    monkeypatch.setattr(client, "CONNECT_SECONDS", 2.0)

    async def main(server: Server) -> None:
        with refusing() as closed:
            urls = {
                "refused": closed,
                "dns": "http://nowhere.example/",
                "no TLS": server.url("/it").replace("http:", "https:"),
            }
            trial = http({"post": urls[how]})
            outcome = await attempt(trial)
        assert outcome_name(outcome) == "retry"
        assert isinstance(outcome, Retry)
        assert (outcome.error.code, outcome.error.kind) == (code, "transport")
        assert "Error" not in outcome.error.message
        if how == "refused":
            assert (
                outcome.error.message
                == f"{httpx.URL(closed).netloc.decode()} refused the connection"
            )
        assert trial.journal.statuses == [FAILED]
        assert server.received == []

    with_server(main)


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_response_beyond_the_limit_is_not_taken(method: str) -> None:
    """Plain or compressed; an effect that was answered well stays succeeded in the ledger."""

    async def main(server: Server) -> None:
        large = b"x" * 100_000
        server.routes["/plain"] = answer(200, large)
        server.routes["/zip"] = answer(200, gzip.compress(large), {"Content-Encoding": "gzip"})
        for path in ("/plain", "/zip"):
            limits = Limits(allow_private=("127.0.0.1",), response_bytes=50_000)
            trial = http({method: server.url(path)}, limits=limits)
            outcome = await attempt(trial)
            assert isinstance(outcome, Failed)
            assert outcome.error.code == "response_too_large"
            assert trial.journal.statuses == ([] if method == "get" else [SUCCEEDED])

    with_server(main)


def test_a_body_that_unpacks_to_more_than_there_is_memory() -> None:
    """It is unpacked piece by piece and given up at the limit; packed twice, it is left as it is."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    packed = gzip.compress(bomb)

    async def main(server: Server) -> None:
        server.routes["/once"] = answer(200, bomb, {"Content-Encoding": "gzip"})
        server.routes["/twice"] = answer(200, packed, {"Content-Encoding": "gzip, gzip"})
        tracemalloc.start()
        try:
            once = await attempt(http({"get": server.url("/once")}))
            twice = await attempt(http({"get": server.url("/twice")}))
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert isinstance(once, Failed)
        assert once.error.code == "response_too_large"
        assert isinstance(twice, Succeeded)
        assert base64.b64decode(twice.output["body"]) == packed
        assert most_bytes < 20_000_000

    with_server(main)


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


TEXT = b"word " * 50_000


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("X-GZIP", gzip.compress(TEXT[:7]) + gzip.compress(TEXT[7:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", _raw_deflate(TEXT)),
        ("identity", TEXT),
    ],
)
def test_packed_bodies_are_unpacked(encoding: str, packed: bytes) -> None:
    """Whichever of the ways that were asked for the server chose."""
    headers = {"Content-Encoding": encoding, "Content-Type": "text/plain"}
    outcome, _, server = ask("get", answer(200, packed, headers))
    assert isinstance(outcome, Succeeded)
    assert outcome.output["body"] == TEXT.decode()
    assert server.received[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("packed", [gzip.compress(TEXT)[:-9], b"not packed at all"])
@pytest.mark.parametrize(("method", "expected"), [("get", "retry"), ("post", "unknown")])
def test_a_body_that_is_not_packed_as_it_says(method: str, expected: str, packed: bytes) -> None:
    """A broken answer is like none: a read is repeated, and an effect may have happened."""
    outcome, _, _ = ask(method, answer(200, packed, {"Content-Encoding": "gzip"}))
    assert outcome_name(outcome) == expected


def test_cookies_stay_within_one_exchange() -> None:
    """They go with its redirects; another request, perhaps of another task, does not carry them."""

    async def main(server: Server) -> None:
        cookie = {"Set-Cookie": "session=secret; Path=/"}
        server.routes["/in"] = answer(302, b"", {**cookie, "Location": "/home"})
        server.routes["/home"] = answer(200, "home", cookie)
        trial = http({"get": server.url("/in")})
        await trial.attempt()
        other = http({"get": server.url("/home")})
        other.services = trial.services
        await attempt(other)
        cookies = [received.headers.get("cookie") for received in server.received]
        assert cookies == [None, "session=secret", None]

    with_server(main)


def test_an_idempotent_post_sends_its_key_and_is_repeated_under_the_same() -> None:
    """After an unknown it is retried by itself, and to the remote it is the same request."""

    async def main(server: Server) -> None:
        server.routes["/it"] = in_turn(hang_up, answer(429, {}), answer(200, {}))
        trial = http({"post": server.url("/it"), "idempotent": True})
        assert outcome_name(await attempt(trial)) == "unknown"
        assert isinstance(await attempt(trial), Waiting)
        trial.pass_expiry()
        assert outcome_name(await attempt(trial)) == "retry"
        assert isinstance(await attempt(trial), Succeeded)
        keys = {received.headers["idempotency-key"] for received in server.received}
        assert keys == {trial.journal.intents[0][1].remote_key}
        assert len(server.received) == 3

    with_server(main)


@pytest.mark.parametrize(
    ("found", "expected", "posts"),
    [
        (answer(200, {"count": 1}), "applied", 1),
        (answer(200, {"count": 0}), "again", 2),
        (answer(200, {}), "ask", 1),
        (answer(200, {"count": "many"}), "ask", 1),
        (answer(500, {"count": 1}), "ask", 1),
        (hang_up, "ask", 1),
    ],
)
def test_reconcile_asks_the_remote(found: Respond, expected: str, posts: int) -> None:
    """Applied is taken as the outcome, not applied is sent again, the rest is put to a person."""

    async def main(server: Server) -> None:
        server.routes["/it"] = in_turn(hang_up, answer(201, {"id": 1}))
        server.routes["/ask"] = found
        trial = http(
            {
                "post": server.url("/it"),
                "reconcile": {"get": server.url("/ask"), "applied": "response.body.count > 0"},
            }
        )
        assert outcome_name(await attempt(trial)) == "unknown"
        trial.pass_expiry()
        outcome = await attempt(trial)
        first = trial.journal.intents[0][1]
        if expected == "ask":
            assert outcome == Waiting(UnknownCall(first.call_id))
        else:
            assert isinstance(outcome, Succeeded)
            assert outcome.output["status"] == (200 if expected == "applied" else 201)
            assert (outcome.idempotency_key == first.idempotency_key) == (expected == "applied")
        assert sum(received.method == "POST" for received in server.received) == posts

    with_server(main)


def test_a_plain_post_asks_after_an_unknown() -> None:
    """Without a key and without a question to the remote, a person decides."""

    async def main(server: Server) -> None:
        server.routes["/it"] = hang_up
        trial = http({"post": server.url("/it")})
        assert outcome_name(await attempt(trial)) == "unknown"
        trial.pass_expiry()
        assert await attempt(trial) == Waiting(UnknownCall(trial.journal.intents[0][1].call_id))

    with_server(main)
