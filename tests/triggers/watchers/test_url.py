"""The source `url`, from the request to the change, against a real server."""

import importlib
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

from agent.triggers.watchers.registry import source_of
from agent.triggers.watchers.source import Poll, PollContext
from agent.workflows.compile.compiler import compile_text
from tests.support.http_server import Server, answer, in_turn
from tests.support.sample_kinds import KINDS
from tests.support.web_polls import failure, poll, watching

HTML = {"Content-Type": "text/html"}


def page(price: str, nonce: str = "") -> bytes:
    """Return a page with a price."""
    return f"<html nonce='{nonce}'><p id=price>{price}</p><p>Text</p></html>".encode()


async def polls(keys: dict[str, Any], context: PollContext, count: int) -> list[Poll]:
    """Poll several times, each time with the last cursor."""
    found: list[Poll] = []
    for _ in range(count):
        found.append(await poll("url", keys, context, found[-1].cursor if found else None))
    return found


def test_a_value_that_changes_back_and_forth_counts_each_time() -> None:
    """The key has the number of the change; without a change there is no item."""

    async def test(server: Server, context: PollContext) -> None:
        texts = ("5", "5", "6", "5")
        server.routes["/p"] = in_turn(
            *(answer(200, page(text, str(n)), HTML) for n, text in enumerate(texts))
        )
        keys = {"url": server.url("/p"), "select": "#price", "headers": {}}
        first, same, up, down = await polls(keys, context, 4)
        assert (same.items, same.is_unchanged) == ([], True)
        changes = [first.items[0], up.items[0], down.items[0]]
        numbers, hashes = zip(*(item.key.split(":") for item in changes), strict=True)
        begin = int(numbers[0])
        assert [int(number) - begin for number in numbers] == [0, 1, 2]
        assert hashes[0] == hashes[2] != hashes[1]
        assert [item.data["value"] for item in changes] == ["5", "6", "5"]
        assert [item.data["previous"] for item in changes] == [None, "5", "6"]
        assert down.cursor["number"] == begin + 2
        assert all(one.new_baseline is None for one in (first, same, up, down))

    watching(test)


def test_what_the_task_sees_of_a_change() -> None:
    """The address without its password, the value of its type, and when it was noticed."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/v"] = answer(200, {"version": {"major": 2}})
        url = server.url("/v?a=b")
        keys = {"url": url.replace("http://", "http://me:pass@"), "jmespath": "version"}
        (item,) = (await poll("url", keys, context)).items
        changed_at = datetime.fromisoformat(item.data.pop("changed_at"))
        assert abs((datetime.now(UTC) - changed_at).total_seconds()) < 60
        assert item.data == {
            "url": url,
            "value": {"major": 2},
            "previous": None,
            "is_cut": False,
        }

    watching(test)


def test_an_unchanged_page_is_not_sent_again() -> None:
    """After 304 the cursor still knows the value and the number."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/p"] = in_turn(
            answer(200, page("5"), {**HTML, "ETag": '"a"'}),
            answer(304, b""),
            answer(200, page("6"), {**HTML, "ETag": '"b"'}),
        )
        first, same, up = await polls({"url": server.url("/p")}, context, 3)
        assert same.cursor == first.cursor
        assert (same.items, same.is_unchanged) == ([], True)
        assert server.received[1].headers["if-none-match"] == '"a"'
        assert up.items[0].data["previous"] == "5\nText"
        assert up.items[0].data["value"] == "6\nText"

    watching(test)


def test_an_edited_selector_is_a_new_baseline() -> None:
    """Its other value is no change of the page, and a 304 must not hide it."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/p"] = answer(200, page("5"), {**HTML, "ETag": '"a"'})
        first = await poll("url", {"url": server.url("/p"), "select": "#price"}, context)
        edited = {"url": server.url("/p"), "select": "p + p"}
        second = await poll("url", edited, context, first.cursor)
        assert "if-none-match" not in server.received[1].headers
        assert second.new_baseline == "the definition of what is watched has changed"
        assert second.cursor["number"] == first.cursor["number"] + 1
        third = await poll("url", edited, context, second.cursor)
        assert (third.items, third.new_baseline) == ([], None)

    watching(test)


def test_no_match_says_what_came_instead() -> None:
    """The page may have been rebuilt, or be a login page now."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/p"] = answer(200, b"<h1>Log in</h1>", HTML)
        keys = {"url": server.url("/p"), "select": "#price"}
        text = str(await failure("url", keys, context, {"number": 3, "hash": "x"}))
        assert "nothing on the page matches select: '#price'" in text
        assert "(what came: text/html, '<h1>Log in</h1>')" in text

    watching(test)


def test_a_pattern_without_end_does_not_stop_the_agent() -> None:
    """The process that searches is ended; the event loop never waits for it."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/p"] = answer(200, b"a" * 200, {"Content-Type": "text/plain"})
        keys = {"url": server.url("/p"), "pattern": "(a+)+b"}
        text = str(await failure("url", keys, context))
        assert "takes longer than 1.5 s to parse; a simpler pattern may help" in text

    watching(test, timeout_seconds=3.0)


def test_json_that_no_database_stores_is_an_error() -> None:
    """It fails the poll, not the transaction that records the item."""

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/v"] = answer(200, b"[" * 300 + b"]" * 300)
        text = str(await failure("url", {"url": server.url("/v"), "jmespath": "@"}, context))
        assert "nested more than 200 deep" in text

    watching(test)


def test_a_secret_on_the_page_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may show the credentials of the request."""
    monkeypatch.setenv("PAGE_KEY", "very-secret-key")

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/p"] = in_turn(
            answer(200, page("very-secret-key"), HTML),
            answer(200, b"very-secret-key", HTML),
            answer(200, b"x" * 70 + b" very-secret-key", HTML),
        )
        keys = {
            "url": server.url("/p"),
            "select": "#price",
            "headers": {"X-Key": "env:PAGE_KEY"},
        }
        found = await poll("url", keys, context)
        assert found.items[0].data["value"] == "[redacted]"
        assert "very-secret-key" not in repr(found)
        for _ in range(2):
            text = str(await failure("url", keys, context, found.cursor))
            assert "very" not in text
            assert "[redacte" in text

    watching(test)


@pytest.mark.parametrize(
    ("part", "module", "package"),
    [
        ({"select": "p"}, "selectolax.lexbor", "selectolax"),
        ({}, "selectolax.lexbor", "selectolax"),
        ({"jmespath": "a"}, "jmespath", "jmespath"),
    ],
)
def test_without_its_library_the_message_names_the_package(
    part: dict[str, str], module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each library is needed for one way of watching only."""
    real = importlib.import_module

    def without(name: str, of: str | None = None) -> ModuleType:
        if name == module:
            raise ImportError(name)
        return real(name, of)

    monkeypatch.setattr(importlib, "import_module", without)

    async def test(server: Server, context: PollContext) -> None:
        server.routes["/p"] = answer(200, page("5"), HTML)
        error = await failure("url", {"url": server.url("/p"), **part}, context)
        assert f"pip install {package}`" in str(error)
        server.routes["/p"] = answer(200, b"5", {"Content-Type": "text/plain"})
        assert (await poll("url", {"url": server.url("/p")}, context)).items

    watching(test)


def test_compiled_definitions_are_polled_as_they_are() -> None:
    """The sources read the keys that the compiler writes, in short form too."""

    async def test(server: Server, context: PollContext) -> None:
        feed = b"<rss version='2.0'><channel><item><guid>1</guid></item></channel></rss>"
        server.routes["/feed"] = answer(200, feed, {"Content-Type": "text/xml"})
        server.routes["/page"] = answer(200, page("5"), HTML)
        text = (
            "name: x\nsteps:\n  a: {nap: }\non:\n  watch:\n"
            f"    - feed: {server.url('/feed')}\n"
            f"    - url: {{url: '{server.url('/page')}', select: '#price', pattern: '[0-9]'}}\n"
        )
        found = [
            await source_of(spec).poll(None, context)
            for spec in compile_text(text, kinds=KINDS).on["watch"]
        ]
        assert found[0].items[0].key == "1"
        assert found[1].items[0].data["value"] == "5"

    watching(test)
