"""The feed that tells open pages of changes: one reader for all of them."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from agent.core.ids import new_id
from agent.server.access.grants import TokenGrant
from agent.server.db_pool import DbPool
from agent.server.problems import Problem
from agent.server.streams import live_feed
from agent.server.streams.live_feed import LiveFeed
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Connection, Database
from agent.store.read import views
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from tests.support.engine import graph, step
from tests.support.event_log import wait_until_settled

_GRANT = TokenGrant("page", frozenset(), "hash", channel="page")


class _Feed:
    """A feed on a database, and the pages that listen."""

    def __init__(self, database: Database) -> None:
        self.operator = Operator(database, database.clock)
        self.reads = 0
        self.pool = DbPool(database, "feed", 2, 100)
        read = self.pool.read

        async def counted(function: Callable[[Connection], Any]) -> Any:
            self.reads += 1
            return await read(function)

        self.pool.read = counted  # type: ignore[method-assign]
        self.feed = LiveFeed(asyncio.get_running_loop(), self.pool, 60)
        self.is_allowed = True

    def start_task(self) -> str:
        submission = Submission(graph(step("one", "record", given={"token": new_id()})))
        return self.operator.submit(submission)

    async def listen(self, *tasks: str, every: float | None = None) -> list[str]:
        """Open a page; return the list to which its messages are added."""
        heard: list[str] = []
        opened = asyncio.Event()

        async def read() -> None:
            stream = self.feed.stream(frozenset(tasks), every, _GRANT, lambda: self.is_allowed)
            async for frame in stream:
                opened.set()
                heard.append(frame.decode())

        self._reading = getattr(self, "_reading", [])
        self._reading.append(asyncio.create_task(read()))
        await opened.wait()
        return heard

    async def close(self) -> None:
        self.feed.close()
        await asyncio.gather(*self._reading)
        await asyncio.to_thread(self.pool.close)


async def _eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  (a list of frames cannot be awaited)
            await asyncio.sleep(0.02)


def _changes(heard: list[str]) -> int:
    return sum("event: change" in frame for frame in heard)


def _play(database: Database, story: Callable[[_Feed], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        feed = _Feed(database)
        try:
            await story(feed)
        finally:
            await feed.close()

    asyncio.run(play())


def test_pages_are_told_of_their_tasks_alone(database: Database) -> None:
    """A page of one task hears of that one, a list of every one; the message has the cursor."""

    async def story(feed: _Feed) -> None:
        first = feed.start_task()
        await asyncio.to_thread(wait_until_settled, database)
        of_first, of_all = await feed.listen(first), await feed.listen()
        await _eventually(lambda: feed.feed._cursor is not None)
        feed.start_task()
        feed.feed.notify([])
        await _eventually(lambda: _changes(of_all) == 1)
        assert _changes(of_first) == 0
        feed.operator.cancel(first)
        feed.feed.notify([])
        await _eventually(lambda: _changes(of_first) == 1 and _changes(of_all) == 2)
        xid, event_id = feed.feed._cursor or (0, 0)
        assert f"data: {xid}-{event_id}" in of_first[-1]

    _play(database, story)


def test_one_reader_serves_all_pages(sqlite_database: Database) -> None:
    """Fifty pages cost as many reads as one, and commits between two reads are one message."""

    async def story(feed: _Feed) -> None:
        pages = [await feed.listen() for _ in range(50)]
        await _eventually(lambda: feed.feed._cursor is not None)
        before, start = feed.reads, time.monotonic()
        for _ in range(20):
            feed.start_task()
            feed.feed.notify([])
        await _eventually(lambda: all(_changes(heard) >= 1 for heard in pages))
        at_most = (time.monotonic() - start) / live_feed._SPACE_SECONDS + 2
        assert feed.reads - before <= at_most
        assert max(map(_changes, pages)) <= at_most

    _play(sqlite_database, story)


def test_many_events_change_every_page(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are too many events to look through, each page looks for itself."""
    monkeypatch.setattr(live_feed, "_MOST_EVENTS", 2)

    async def story(feed: _Feed) -> None:
        heard = await feed.listen("some-other-task")
        await _eventually(lambda: feed.feed._cursor is not None)
        for _ in range(5):
            feed.start_task()
        feed.feed.notify([])
        await _eventually(lambda: _changes(heard) == 1)

    _play(sqlite_database, story)


def test_a_revoked_session_is_told_and_its_stream_ends(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page then shows that it is signed out."""
    monkeypatch.setattr(live_feed, "_CHECK_SECONDS", 0.05)

    async def story(feed: _Feed) -> None:
        heard = await feed.listen()
        feed.is_allowed = False
        await _eventually(lambda: "signed-out" in heard[-1])
        await _eventually(lambda: not feed.feed._pages)

    _play(sqlite_database, story)


def test_data_without_events_are_told_of_by_time(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that asks for it gets a message now and then."""
    monkeypatch.setattr(live_feed, "_CHECK_SECONDS", 0.05)

    async def story(feed: _Feed) -> None:
        heard, silent = await feed.listen(every=0.1), await feed.listen()
        await _eventually(lambda: _changes(heard) >= 2)
        assert _changes(silent) == 0

    _play(sqlite_database, story)


def test_pages_are_limited(sqlite_database: Database) -> None:
    """One more than the limit is refused for a while, and so is any when the agent stops."""

    async def story(feed: _Feed) -> None:
        for _ in range(60):
            await feed.listen()
        with pytest.raises(Problem, match="too many pages"):
            feed.feed.check(_GRANT)
        feed.feed.close()
        with pytest.raises(Problem, match="stopping"):
            feed.feed.check(_GRANT)

    _play(sqlite_database, story)


class _VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose time stands still while anything can run, and then jumps to the next timer."""

    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


class _Pool:
    """Reads in the loop itself: a thread would take no virtual time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, function: Callable[[Connection], Any]) -> Any:
        with self._database.connect("reader") as connection, connection.snapshot():
            return function(connection)


def _delays(
    database: Database, pages: int, *, is_notified: bool
) -> tuple[list[float], list[float]]:
    """Commit now and then; return how long each took to reach a page, and the times of a page's messages."""
    operator, chance = Operator(database, database.clock), random.Random(1)
    told: list[tuple[float, LogPosition]] = []
    committed: list[tuple[float, LogPosition]] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()
        feed = LiveFeed(loop, _Pool(database), 100)  # type: ignore[arg-type]

        async def listen(number: int) -> None:
            async for frame in feed.stream(frozenset(), None, _GRANT, lambda: True):
                if b"event: change" in frame and number == 0:
                    xid, event_id = frame.split(b"data: ")[1].split(b"-")
                    told.append((loop.time(), (int(xid), int(event_id))))

        listening = asyncio.gather(*map(listen, range(pages)))
        await asyncio.sleep(5)
        for _ in range(15):
            await asyncio.sleep(chance.choice((0.01, 0.2, 1.1)) * chance.random())
            operator.submit(Submission(graph(step("one", "record", given={"token": new_id()}))))
            with database.connect("reader") as connection:
                committed.append((loop.time(), views.latest_event(connection)))
            if is_notified:
                feed.notify([])
        await asyncio.sleep(10)
        feed.close()
        await listening

    with asyncio.Runner(loop_factory=_VirtualTime) as runner:
        runner.run(play())
    delays = [
        next(at for at, told_of in told if told_of >= cursor) - start for start, cursor in committed
    ]
    return delays, [at for at, _ in told]


@pytest.mark.parametrize("is_notified", [True, False], ids=["own commits", "other processes"])
@pytest.mark.parametrize(
    ("busy_rate", "pages", "least_gap", "most_seconds"),
    [(200.0, 2, 0.25, 0.8), (0.0, 2, 1.0, 2.0), (0.0, 50, 4.0, 4.7)],
    ids=["quiet", "busy", "busy with many pages"],
)
def test_every_commit_is_told_of_in_time(
    sqlite_database: Database,
    monkeypatch: pytest.MonkeyPatch,
    busy_rate: float,
    pages: int,
    least_gap: float,
    most_seconds: float,
    is_notified: bool,
) -> None:
    """Within a second, and within five of a busy worker, with some of it left for the page itself.

    The busier, the further apart are the messages: pages must not slow the worker down.
    """
    monkeypatch.setattr(live_feed, "_BUSY_EVENTS_PER_SECOND", busy_rate)
    delays, messages = _delays(sqlite_database, pages, is_notified=is_notified)
    assert max(delays) <= most_seconds
    assert min(later - earlier for earlier, later in pairwise(messages)) >= least_gap - 0.001


def test_a_slow_worker_is_busy_as_well() -> None:
    """What counts is how many events come in a second, not how many there are in all."""
    a_few, saturated = live_feed.space_seconds(20, 0.25, 50), live_feed.space_seconds(500, 0.25, 50)
    assert (a_few, saturated) == (0.25, 4.0)
    assert live_feed.space_seconds(500, 3.0, 50) == 0.25, "it is quiet again"
    assert live_feed.space_seconds(500, 0.25, 1) < 1.1, "one viewer costs little"
