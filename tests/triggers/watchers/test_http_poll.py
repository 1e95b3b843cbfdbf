"""One conditional GET of a watcher, against a real server."""

import asyncio
import gzip
from email.utils import formatdate
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.core.clock import SECOND
from agent.steps.attempt.services import Limits
from agent.triggers.watchers import http_poll
from agent.triggers.watchers.source import PollContext, SourceError
from tests.support.http_server import (
    Received,
    Respond,
    Server,
    answer,
    hang_up,
    in_turn,
    redirect,
    stall,
    truncate,
)
from tests.support.requesting import refusing
from tests.support.web_polls import watching

TEXT = {"Content-Type": "text/plain"}


async def get(
    server: Server, context: PollContext, cursor: Any = None, path: str = "/it", **keys: Any
) -> http_poll.Fetched:
    """Fetch a path of the server."""
    return await http_poll.get({"url": server.url(path), **keys}, cursor, context)


def problem_of(respond: Respond, path: str = "/it", **of_context: Any) -> SourceError:
    """Return the error of a GET that is answered so."""
    errors: list[SourceError] = []

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = respond
        with pytest.raises(SourceError) as caught:
            await get(server, context, path=path)
        errors.append(caught.value)

    watching(test, **of_context)
    return errors[0]


def test_the_validators_of_a_response_make_the_next_request_conditional() -> None:
    """`ETag` and `Last-Modified` are sent back, and 304 means that nothing changed."""

    async def test(server: Server, context: PollContext) -> None:
        date = formatdate(1_700_000_000, usegmt=True)
        validators = {"ETag": 'W/"one"', "Last-Modified": date, **TEXT}
        server.routes["/it"] = in_turn(answer(200, b"text", validators), answer(304, b""))
        first = await get(server, context)
        assert first.body == b"text"
        assert "if-none-match" not in server.received[0].headers
        second = await get(server, context, first.cursor)
        assert second.body is None
        assert second.cursor == first.cursor
        assert server.received[1].headers["if-none-match"] == 'W/"one"'
        assert server.received[1].headers["if-modified-since"] == date

    watching(test)


@pytest.mark.parametrize("date", [None, 1_700_000_000, 1_700_000_001])
def test_a_change_in_the_second_of_the_response_is_seen(date: int | None) -> None:
    """A document that is new in that second can change again and keep its validators."""

    async def test(server: Server, context: PollContext) -> None:
        context.clock.set_to(1_700_000_000 * SECOND + SECOND // 2)
        modified = formatdate(1_700_000_000, usegmt=True)
        validators = {"ETag": '"6553f100-6"', "Last-Modified": modified}
        if date is not None:
            validators["Date"] = formatdate(date, usegmt=True)
        server.routes["/it"] = answer(200, b"120.00", validators)
        first = await get(server, context)
        await get(server, context, first.cursor)
        is_conditional = "if-modified-since" in server.received[1].headers
        assert is_conditional is (date == 1_700_000_001)
        assert ("if-none-match" in server.received[1].headers) is is_conditional

    watching(test)


def test_a_304_may_bring_new_validators() -> None:
    """Those of the answer replace the known ones."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = in_turn(
            answer(200, b"text", {"ETag": '"one"'}), answer(304, b"", {"ETag": '"two"'})
        )
        first = await get(server, context)
        second = await get(server, context, first.cursor)
        assert (second.body, second.cursor["etag"]) == (None, '"two"')
        assert second.cursor["body_hash"] == first.cursor["body_hash"]

    watching(test)


def test_an_equal_body_is_unchanged_without_validators() -> None:
    """A server that knows no conditional requests sends the same body again."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = in_turn(
            answer(200, b"one"), answer(200, b"one", {"ETag": '"late"'}), answer(200, b"two")
        )
        first = await get(server, context)
        second = await get(server, context, first.cursor)
        assert (second.body, second.cursor["etag"]) == (None, '"late"')
        assert (await get(server, context, second.cursor)).body == b"two"

    watching(test)


def test_a_cursor_of_another_definition_makes_no_request_conditional() -> None:
    """After an edit of the keys, "unchanged" would be said of something else."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = answer(200, b"one", {"ETag": '"one"'})
        first = await get(server, context)
        edited = await get(server, context, first.cursor, headers={"Accept-Language": "de"})
        assert edited.body == b"one"
        assert "if-none-match" not in server.received[1].headers

    watching(test)


def test_a_304_without_a_condition_is_an_error() -> None:
    """There is nothing that could be unchanged."""
    assert "although the request was not conditional" in str(problem_of(answer(304, b"")))


def test_a_validator_that_cannot_be_sent_back_is_none() -> None:
    """A strange header of a server must not fail the next request."""

    async def test(server: Server, context: PollContext) -> None:
        for etag in ('"\xfcn\xef"', "x" * 1001, '"a\tb"'):
            server.routes["/it"] = in_turn(answer(200, b"one", {"ETag": etag}), answer(200, b"two"))
            first = await get(server, context)
            assert first.cursor["etag"] is None
            assert (await get(server, context, first.cursor)).body == b"two"

    watching(test)


def test_retry_after_says_when_to_poll_again() -> None:
    """The wait that an overloaded server asks for is part of the error."""

    async def test(server: Server, context: PollContext) -> None:
        for status in (429, 503):
            server.routes["/it"] = answer(status, b"", {"Retry-After": "120"})
            with pytest.raises(SourceError, match=f"status {status}") as caught:
                await get(server, context)
            assert caught.value.retry_seconds == 120.0

    watching(test)


def test_retry_after_may_be_a_date() -> None:
    """It is measured with the poll's clock."""
    instant = formatdate(4_000_000_000, usegmt=True)
    error = problem_of(answer(503, b"", {"Retry-After": instant}))
    assert error.retry_seconds == 86_400.0


def test_any_status_but_a_whole_document_is_an_error() -> None:
    """The message says what to do about it; only an overloaded server may ask for a wait."""
    advice = {
        500: "was answered with status 500",
        401: "check the credentials",
        403: "check the credentials",
        404: "check the address",
        410: "gone for good",
        204: "status 204",
        206: "status 206",
    }

    async def test(server: Server, context: PollContext) -> None:
        for status, text in advice.items():
            server.routes["/it"] = answer(status, b"", {"Retry-After": "5"})
            with pytest.raises(SourceError, match=text) as caught:
                await get(server, context)
            assert caught.value.retry_seconds is None

    watching(test)


def test_no_response_in_time_is_an_error() -> None:
    """A server that never answers does not hold up the watcher."""
    error = problem_of(stall, timeout_seconds=0.2)
    assert "no complete response within 0.2 s" in str(error)


@pytest.mark.parametrize("respond", [hang_up, truncate])
def test_a_broken_connection_is_an_error(respond: Respond) -> None:
    """A part of a body is never taken for the whole."""
    assert ": no valid response: " in str(problem_of(respond))


def test_a_refused_connection_is_an_error() -> None:
    """The message names the address."""

    async def test(server: Server, context: PollContext) -> None:
        with (
            refusing() as url,
            pytest.raises(SourceError, match="refused the connection") as caught,
        ):
            await http_poll.get({"url": url}, None, context)
        assert url.rstrip("/") in str(caught.value)

    watching(test)


def test_compressed_bodies_are_decoded_up_to_the_limit() -> None:
    """A small body may not become a huge one."""
    limits = Limits(allow_private=("127.0.0.1",), response_bytes=100_000)

    async def test(server: Server, context: PollContext) -> None:
        packed = {"Content-Encoding": "gzip"}
        server.routes["/it"] = in_turn(
            answer(200, gzip.compress(b"small"), packed),
            answer(200, gzip.compress(bytes(100_001)), packed),
            answer(200, gzip.compress(b"cut off")[:-4], packed),
            answer(200, b"??", {"Content-Encoding": "br"}),
        )
        assert (await get(server, context)).body == b"small"
        for message in ("larger than the limit", "ends too early", "unknown encoding 'br'"):
            with pytest.raises(SourceError, match=message):
                await get(server, context)

    watching(test, limits=limits)


def test_bodies_may_be_larger_than_the_output_of_a_step() -> None:
    """A body is no step's output: only the limit of responses counts."""
    limits = Limits(allow_private=("127.0.0.1",), output_bytes=10)

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = answer(200, b"x" * 1000)
        assert (await get(server, context)).body == b"x" * 1000

    watching(test, limits=limits)


def test_the_address_policy_applies_also_after_a_redirect() -> None:
    """Neither the address itself nor a redirect reaches a private network."""
    assert "not a public address" in str(problem_of(answer(200, b""), limits=Limits()))
    error = problem_of(redirect(302, "http://127.0.0.2:1/meta"))
    assert "127.0.0.2" in str(error)
    assert "not a public address" in str(error)


def test_a_redirect_to_another_origin_takes_no_header_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Secrets and validators were meant for the first server."""
    monkeypatch.setenv("FEED_TOKEN", "very-secret-token")
    limits = Limits(allow_private=("127.0.0.1", "localhost"))

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = redirect(302, server.url("/other", host="localhost"))
        server.routes["/other"] = answer(200, b"there", {"ETag": '"there"'})
        headers = {"Authorization": "Bearer env:FEED_TOKEN", "X-Key": "env:FEED_TOKEN"}
        fetched = await get(server, context, headers=headers)
        assert fetched.body == b"there"
        assert fetched.url == server.url("/other", host="localhost")
        await get(server, context, fetched.cursor, headers=headers)
        first, second = server.received[:2]
        assert first.headers["authorization"] == "Bearer very-secret-token"
        assert first.headers["x-key"] == "very-secret-token"
        assert not {"authorization", "x-key"} & set(second.headers)
        assert "if-none-match" in server.received[2].headers
        assert "if-none-match" not in server.received[3].headers

    watching(test, limits=limits)


def test_secrets_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that the HTTP library refuses, nor one that the server sends back."""
    monkeypatch.setenv("BAD_TOKEN", "secret\nwith-a-line-break")

    async def echo(received: Received, writer: asyncio.StreamWriter) -> None:
        await answer(200, b"x", {"Content-Encoding": "echoed-secret"})(received, writer)

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = echo
        with pytest.raises(SourceError) as refused:
            await get(server, context, headers={"X-Key": "env:BAD_TOKEN"})
        assert "line-break" not in str(refused.value)
        monkeypatch.setenv("ECHOED", "echoed-secret")
        with pytest.raises(SourceError, match="unknown encoding") as echoed:
            await get(server, context, headers={"X-Key": "env:ECHOED"})
        assert "echoed-secret" not in str(echoed.value)

    watching(test)


def test_a_missing_secret_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the reference, and nothing is sent."""
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)

    async def test(server: Server, context: PollContext) -> None:
        with pytest.raises(SourceError, match="NO_SUCH_TOKEN is not set"):
            await get(server, context, headers={"X-Key": "env:NO_SUCH_TOKEN"})
        assert server.received == []

    watching(test)


def test_headers_of_the_definition_replace_our_own() -> None:
    """In any case of their names; conditions of its own make the definition responsible."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = answer(200, b"x", {"ETag": '"one"'})
        headers = {"accept": "text/special", "if-none-match": '"mine"'}
        first = await get(server, context, headers=headers)
        await get(server, context, first.cursor, headers=headers)
        assert server.received[1].headers["accept"] == "text/special"
        assert server.received[1].headers["if-none-match"] == '"mine"'

    watching(test)


def test_an_error_behind_a_permanent_redirect_names_the_new_address() -> None:
    """So that the definition can be corrected."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = redirect(301, "/new?token=1")
        server.routes["/new"] = answer(404, b"")
        with pytest.raises(SourceError) as caught:
            await get(server, context)
        new = server.url("/new")
        assert f"has moved to {new}, which answered 404" in str(caught.value)
        server.routes["/it"] = redirect(302, "/new")
        with pytest.raises(SourceError, match=f"status 404 by {new}"):
            await get(server, context)

    watching(test)


def test_a_permanent_redirect_is_followed_and_logged_once() -> None:
    """The log says that the definition should name the new address."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/it"] = redirect(308, "/new?token=1")
        server.routes["/new"] = answer(200, b"new")
        with capture_logs() as lines:
            first = await get(server, context)
            assert first.body == b"new"
            assert (await get(server, context, first.cursor)).body is None
        new = server.url("/new")
        assert [(line["event"], line["to"]) for line in lines] == [("watcher.moved", new)]

    watching(test)


def test_whatever_a_server_sends_is_an_error_of_the_source() -> None:
    """Never a defect of the agent."""
    heads = (
        b"garbage",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nnope!",
        b"HTTP/1.1 302 Found\r\nLocation: http://[",
        b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe:",
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/",
        b"HTTP/1.1 302 Found\r\nLocation: http://xn--\xff/",
        b"HTTP/1.1 302 Found\r\nLocation: http:///it",
        b"HTTP/1.1 302 Found",
        b"HTTP/1.1 429 Slow\r\nRetry-After: soon",
        b"HTTP/1.1 999 What",
    )

    async def test(server: Server, context: PollContext) -> None:
        for head in heads:

            async def respond(
                received: Received, writer: asyncio.StreamWriter, head: bytes = head
            ) -> None:
                writer.write(head + b"\r\n\r\n")

            server.routes["/it"] = respond
            with pytest.raises(SourceError):
                await get(server, context)

    watching(test)


def test_endless_redirects_are_an_error() -> None:
    """The limit is the one of the `http` step."""
    assert "TooManyRedirects" in str(problem_of(redirect(301, "/it")))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://user:pass@example.org/a?token=x#y", "https://example.org/a"),
        ("https://example.org", "https://example.org"),
        ("https://[bad/a?token=x", "https://[bad/a"),
    ],
)
def test_messages_show_no_password_and_no_query(url: str, text: str) -> None:
    """Both are often credentials."""
    assert http_poll.shown(url) == text
