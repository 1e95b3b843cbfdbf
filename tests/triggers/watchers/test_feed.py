"""The source `feed`, from the request to the items, against a real server."""

import gzip
import importlib
from types import ModuleType

import pytest

from agent.core.clock import SECOND
from agent.triggers.watchers.source import PollContext
from tests.support.http_server import Server, answer, in_turn, truncate
from tests.support.web_polls import failure, poll, watching

XML = {"Content-Type": "application/rss+xml"}


def rss(*ids: str) -> bytes:
    """Return a feed with these entries."""
    items = "".join(f"<item><guid>{id_}</guid><title>T</title></item>" for id_ in ids)
    return f'<rss version="2.0"><channel><title>N</title>{items}</channel></rss>'.encode()


def test_each_poll_returns_what_the_feed_shows() -> None:
    """Seen entries are among them; an unchanged feed returns none."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/feed"] = in_turn(
            answer(200, rss("1"), {**XML, "ETag": '"a"'}),
            answer(304, b""),
            answer(200, gzip.compress(rss("2", "1")), {**XML, "Content-Encoding": "gzip"}),
        )
        keys = {"url": server.url("/feed"), "headers": {}}
        first = await poll("feed", keys, context)
        assert [item.key for item in first.items] == ["1"]
        assert first.items[0].data["feed"] == "N"
        second = await poll("feed", keys, context, first.cursor)
        assert (second.items, second.is_unchanged) == ([], True)
        assert second.cursor == first.cursor
        third = await poll("feed", keys, context, second.cursor)
        assert [item.key for item in third.items] == ["1", "2"]
        assert (third.is_unchanged, third.new_baseline) == (False, None)

    watching(test)


def test_the_first_poll_of_a_day_reads_the_feed_whole() -> None:
    """A server that answers 304 for ever hides what is new for a day at most."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/feed"] = answer(200, rss("1"), {**XML, "ETag": '"a"'})
        keys = {"url": server.url("/feed")}
        first = await poll("feed", keys, context)
        context.clock.set_to(context.clock.now() + 86_400 * SECOND)
        second = await poll("feed", keys, context, first.cursor)
        assert [item.key for item in second.items] == ["1"]
        assert second.new_baseline is None
        assert "if-none-match" not in server.received[1].headers
        third = await poll("feed", keys, context, second.cursor)
        assert third.items == []
        assert server.received[2].headers["if-none-match"] == '"a"'

    watching(test)


def test_what_is_not_a_feed_is_described() -> None:
    """The message shows the type and the beginning of what came instead."""

    async def test(server: Server, context: PollContext) -> None:
        page = b"<!DOCTYPE html>\n<html><title>Please log in</title></html>"
        server.routes["/feed"] = in_turn(
            answer(200, page, {"Content-Type": "text/html"}),
            answer(200, b"", {"Content-Type": "text/xml"}),
            answer(200, rss("1")[:-20], XML),
            answer(200, bytes(range(256)), {"Content-Type": "\xff;charset=\xfe"}),
            truncate,
        )
        url = server.url("/feed")
        for text in (
            f"{url}: is not a feed (what came: text/html, '<!DOCTYPE html> <html><title>Please",
            "is not a feed (what came: text/xml, an empty body)",
            "its end is missing",
            "is not a feed",
            "no valid response",
        ):
            assert text in str(await failure("feed", {"url": url}, context))

    watching(test)


def test_another_address_is_a_new_baseline() -> None:
    """An edit of the address must not start a task for each entry of the other feed."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/one"] = answer(200, rss("1"), {**XML, "ETag": '"a"'})
        server.routes["/two"] = answer(200, rss("2"), {**XML, "ETag": '"a"'})
        first = await poll("feed", {"url": server.url("/one")}, context)
        other = await poll("feed", {"url": server.url("/two")}, context, first.cursor)
        assert [item.key for item in other.items] == ["2"]
        assert other.new_baseline == "the definition of what is watched has changed"
        headers = {"Accept-Language": "de"}
        keys = {"url": server.url("/two"), "headers": headers}
        assert (await poll("feed", keys, context, other.cursor)).new_baseline is None

    watching(test)


def test_entities_that_expand_are_an_error_and_no_crash() -> None:
    """Neither entities of entities nor one long entity that is used often fill the memory."""
    laughs = '<!DOCTYPE rss [\n<!ENTITY a "ha">\n' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">\n' for n in range(9)
    )
    nested = laughs.encode() + b"]>" + rss("1").replace(b"T</title>", b"&j;</title>")
    long = b'<!DOCTYPE rss [\n<!ENTITY a "' + b"x" * 100_000 + b'">\n]>'
    often = long + rss("1").replace(b"T</title>", b"&a;" * 100_000 + b"</title>")
    # A stray & is an error to the XML parser; then the lenient one, which has no limits, takes over.
    lenient = often.replace(b"<guid>1", b"<guid>1 & 2")

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/feed"] = in_turn(
            *(answer(200, body, XML) for body in (nested, often, lenient))
        )
        keys = {"url": server.url("/feed")}
        (item,) = (await poll("feed", keys, context)).items
        assert len(item.data["title"]) < 1000
        for _ in range(2):
            error = await failure("feed", keys, context)
            assert "too much memory" in str(error) or "takes longer" in str(error)

    watching(test, timeout_seconds=60.0)


def test_a_secret_in_a_feed_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may write the credentials of the request into its links."""
    monkeypatch.setenv("FEED_KEY", "very-secret-key")

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/feed"] = answer(200, rss("https://example.org/very-secret-key"), XML)
        keys = {"url": server.url("/feed"), "headers": {"X-Key": "env:FEED_KEY"}}
        found = await poll("feed", keys, context)
        assert len(found.items) == 1
        assert "very-secret-key" not in repr(found)

    watching(test)


def test_without_its_library_the_message_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is requested then."""
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> ModuleType:
        if name == "feedparser":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)

    async def test(server: Server, context: PollContext) -> None:
        error = await failure("feed", {"url": server.url("/feed")}, context)
        assert "pip install feedparser" in str(error)
        assert server.received == []

    watching(test)
