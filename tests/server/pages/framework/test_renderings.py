"""Renderings are made once for viewers with the same scopes, and again only when data changed."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from agent.core.scopes import Scope, implied
from agent.server.db_pool import DbPool
from agent.server.pages.framework import renderings
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.renderings import Page, Renderings
from agent.store.db.database import Connection, Database


class _Site:
    """A page whose data the test sets."""

    def __init__(self, database: Database, every_seconds: int | None = None) -> None:
        self.version = 1
        self.every_seconds = every_seconds
        self.reads = 0
        self.is_personal = False
        self.renderings = Renderings()
        self._context: Any = SimpleNamespace(database=database)
        self._pool = DbPool(database, "pages", 2, 100)
        self._page = Page("/page", "page.html", self._read, self._version, None)

    def _version(self, _connection: Connection, _request: PageRequest) -> int:
        return self.version

    def _read(self, _connection: Connection, request: PageRequest) -> Mapping[str, Any]:
        self.reads += 1
        if self.is_personal:
            assert request.principal is None
        return {"version": self.version, "every_seconds": self.every_seconds}

    def request(self, scopes: frozenset[Scope], query: str = "") -> PageRequest:
        items = (("q", query),)
        return PageRequest(self._context, "/page", {}, dict(items), items, scopes, None)  # type: ignore[arg-type]

    async def get(
        self, scopes: frozenset[Scope], query: str = "", notified: tuple[int, int] | None = None
    ) -> str:
        rendering = await self.renderings.get(
            self._page,
            self.request(scopes, query),
            self._pool,
            lambda template, request, data: f"{template} {data['version']}",
            notified,
        )
        return rendering.text

    def close(self) -> None:
        self._pool.close()


READER, OPERATOR = implied(["read"]), implied(["operate"])


def _run(site: _Site, story: Any) -> None:
    try:
        asyncio.run(story())
    finally:
        site.close()


def test_viewers_with_the_same_scopes_share_one(sqlite_database: Database) -> None:
    """Fifty at once cost one rendering; another scope or another address has its own."""
    site = _Site(sqlite_database)

    async def story() -> None:
        texts = await asyncio.gather(*(site.get(READER, notified=(0, 0)) for _ in range(50)))
        assert set(texts) == {"page.html 1"}
        assert (site.reads, site.renderings.made) == (1, 1)
        await site.get(OPERATOR)
        await site.get(READER, "other")
        assert site.renderings.made == 3

    _run(site, story)


def test_it_is_made_again_only_when_the_version_changed(sqlite_database: Database) -> None:
    """An equal version is not rendered; a changed one is, also for a viewer who received no message."""
    site = _Site(sqlite_database)

    async def story() -> None:
        for _ in range(3):
            assert await site.get(READER) == "page.html 1"
        assert site.renderings.made == 1
        site.version = 2
        assert await site.get(READER) == "page.html 2"
        # A cursor after the one it was made at: the version is looked at again.
        assert await site.get(READER, notified=(0, 10**9)) == "page.html 2"
        assert site.renderings.made == 2

    _run(site, story)


def test_a_notified_viewer_gets_what_is_new_enough(sqlite_database: Database) -> None:
    """A rendering at the message's cursor or later is served without a look at the database."""
    site = _Site(sqlite_database)

    async def story() -> None:
        await site.get(READER)
        site.version = 2
        assert await site.get(READER, notified=(0, 0)) == "page.html 1"
        assert await site.get(READER, notified=(0, 1)) == "page.html 2"

    _run(site, story)


def test_every_page_looks_now_and_then_what_waits(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page has the count of it, also where nothing of its own content changes without an event."""
    site = _Site(sqlite_database)

    async def story() -> None:
        await site.get(READER)
        site.version = 2
        assert await site.get(READER, notified=(0, 0)) == "page.html 1"
        monkeypatch.setattr(renderings, "COUNT_SECONDS", 0)
        assert await site.get(READER, notified=(0, 0)) == "page.html 2"

    _run(site, story)


def test_data_that_change_without_events_are_read_again(sqlite_database: Database) -> None:
    """A page with `every_seconds` is not served from a version that says nothing about its data."""
    site = _Site(sqlite_database, every_seconds=10_000)

    async def story() -> None:
        await site.get(READER)
        await site.get(READER)
        assert site.reads == 2
        await site.get(READER, notified=(0, 0))
        assert site.reads == 2

    _run(site, story)


def test_the_data_can_say_that_they_change_without_events(sqlite_database: Database) -> None:
    """As while a step runs; they win over what the page says, and a message without news finds new data."""
    site = _Site(sqlite_database)
    site.every_seconds = 1

    async def story() -> None:
        await site.get(READER, notified=(0, 0))
        await site.get(READER, notified=(0, 0))
        assert site.reads == 1, "one rendering for a second"
        site.every_seconds = 0
        await site.get(READER)
        await site.get(READER, notified=(0, 0))
        assert site.reads == 3
        site.every_seconds = None
        await site.get(READER)
        await site.get(READER)
        await site.get(READER, notified=(0, 0))
        assert site.reads == 4

    _run(site, story)


def test_what_depends_on_the_viewer_is_not_shared(sqlite_database: Database) -> None:
    """Data that depend on who looks are rendered for each."""
    site = _Site(sqlite_database)
    site.is_personal = True

    async def story() -> None:
        await site.get(READER)
        await site.get(READER)
        assert site.renderings.made == 2

    _run(site, story)


def test_what_is_kept_is_bounded(sqlite_database: Database) -> None:
    """A viewer who asks for many addresses does not fill the memory."""
    site = _Site(sqlite_database)

    async def story() -> None:
        for number in range(200):
            await site.get(READER, str(number))
        assert len(site.renderings._kept) == 64
        assert not site.renderings._locks
        site.renderings.clear()
        assert (len(site.renderings._kept), site.renderings._bytes) == (0, 0)

    _run(site, story)
