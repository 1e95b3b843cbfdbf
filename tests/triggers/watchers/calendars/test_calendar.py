from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent.core.clock import SECOND, Clock
from agent.steps.attempt.services import Limits
from agent.triggers.watchers.calendars import caldav_client, calendar
from agent.triggers.watchers.source import Poll, PollContext, SourceError
from tests.support.attempt import run
from tests.support.caldav_server import PASSWORD, USER, CalDavServer, caldav_server
from tests.support.http_server import answer, serving
from tests.support.watching import LOOPBACK, parse_here, poll_context


class FixedClock(Clock):
    """A clock that stands where a test sets it."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self.set_to_time(moment)

    def set_to_time(self, moment: str) -> None:
        """Set the time, in UTC."""
        time = datetime.fromisoformat(moment).replace(tzinfo=UTC)
        self._now_us = int(time.timestamp() * SECOND)

    def now(self) -> int:
        return self._now_us


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)


@pytest.fixture(autouse=True)
def _parsed_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse without a process of its own, which takes most of a poll's time, unless asked for."""
    if "parsed_apart" not in request.fixturenames:
        parse_here(monkeypatch, calendar, caldav_client)


def event(uid: str, start: str = "20260310T100000Z", *lines: str) -> str:
    """Return one event."""
    return "\r\n".join(("BEGIN:VEVENT", f"UID:{uid}", f"DTSTART:{start}", *lines, "END:VEVENT"))


def ics(*events: str) -> bytes:
    """Return a calendar file."""
    lines = ("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test", *events, "END:VCALENDAR", "")
    return "\r\n".join(lines).encode()


def as_calendar(*events: str) -> Any:
    """Return what answers with a calendar file."""
    return answer(200, ics(*events), {"Content-Type": "text/calendar"})


def keys_of(url: str, **changed: Any) -> dict[str, Any]:
    """Return a compiled `calendar` block."""
    return {
        "url": url,
        "user": None,
        "password": None,
        "calendar": None,
        "events": ["starting"],
        "before_seconds": 0.0,
        "timezone": "Europe/Berlin",
        **changed,
    }


Story = Callable[[PollContext, FixedClock], Awaitable[None]]


@pytest.fixture
def parsed_apart() -> None:
    """Parse in a process of its own, as the agent does."""


def tell(story: Story, limits: Limits = LOOPBACK) -> None:
    """Run a story at ten o'clock, and close its connections."""

    async def main() -> None:
        clock = FixedClock("2026-03-10T10:00")
        context = poll_context(clock, limits)
        try:
            await story(context, clock)
        finally:
            for resource in context.resources.values():
                await resource.aclose()

    run(main())


async def poll(keys: dict[str, Any], context: PollContext, cursor: Any = None) -> Poll:
    """Poll once."""
    return await calendar.open_source(keys).poll(cursor, context)


def shown(found: Poll) -> list[tuple[str, str]]:
    """Return the kind and the uid of each item."""
    return [(item.data["kind"], item.data["uid"]) for item in found.items]


@pytest.mark.usefixtures("parsed_apart")
def test_an_ics_file() -> None:
    """A due event is an item, and the next poll is in time for the next event."""

    async def story(context: PollContext, clock: FixedClock) -> None:
        async with serving() as server:
            server.routes["/team.ics"] = as_calendar(event("now"), event("b", "20260310T100230Z"))
            keys = keys_of(server.url("/team.ics"))
            first = await poll(keys, context)
            assert shown(first) == [("starting", "now")]
            assert first.next_seconds == 150.0
            assert [request.method for request in server.received] == ["GET"]
            clock.set_to_time("2026-03-10T10:02:30")
            second = await poll(keys, context, first.cursor)
            assert shown(second) == [("starting", "now"), ("starting", "b")]
            assert second.items[0].key == first.items[0].key
            assert second.next_seconds is None

    tell(story)


def test_an_address_that_does_not_speak_caldav_is_a_file() -> None:
    """Found by trying, once."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:

            async def respond(received: Any, writer: Any) -> None:
                is_get = received.method == "GET"
                await (as_calendar(event("a")) if is_get else answer(405, b""))(received, writer)

            server.routes["/export"] = respond
            keys = keys_of(server.url("/export"))
            first = await poll(keys, context)
            second = await poll(keys, context, first.cursor)
            assert shown(first) == shown(second) == [("starting", "a")]
            methods = [request.method for request in server.received]
            assert methods == ["PROPFIND", "GET", "GET"]

    tell(story)


def test_events_are_created_and_changed() -> None:
    """Each once; a change back is a change too, and what is deleted is no item."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            keys = keys_of(server.url("/a.ics"), events=["created", "changed"])
            one, two = event("one"), event("two", "20360101T000000Z")
            changed = event("one", "20260311T100000Z")
            found: list[list[tuple[str, str]]] = []
            item_keys: list[str] = []
            cursor = None
            for events in ((one,), (one, two), (changed, two), (one, two), (one,), (one,)):
                server.routes["/a.ics"] = as_calendar(*events)
                shows = await poll(keys, context, cursor)
                cursor = shows.cursor
                found.append(shown(shows))
                item_keys += [item.key for item in shows.items]
            assert found == [
                [("created", "one")],
                [("created", "two")],
                [("changed", "one")],
                [("changed", "one")],
                [],
                [],
            ]
            assert len(set(item_keys)) == 4

    tell(story)


def test_what_cannot_be_read_is_not_deleted() -> None:
    """An event that cannot be read for a time is no new one afterwards, and a change of it is an item."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            keys = keys_of(server.url("/a.ics"), events=["created", "changed"])
            found: list[list[tuple[str, str]]] = []
            remarks: list[str | None] = []
            cursor = None
            for two in (event("two"), event("two", "soon"), event("two", "20360101T000000Z")):
                server.routes["/a.ics"] = as_calendar(event("one"), two)
                shows = await poll(keys, context, cursor)
                cursor = shows.cursor
                found.append(shown(shows))
                remarks.append(shows.passed_over)
            assert found == [[("created", "one"), ("created", "two")], [], [("changed", "two")]]
            assert [remark is None for remark in remarks] == [True, False, True]

    tell(story)


def test_an_event_that_is_added_after_its_start_counts_for_an_hour() -> None:
    """A series that began last week starts no task for yesterday; after an outage, yesterday counts."""

    async def story(context: PollContext, clock: FixedClock) -> None:
        async with serving() as server:
            server.routes["/a.ics"] = as_calendar(event("old", "20260301T100000Z"))
            keys = keys_of(server.url("/a.ics"))
            first = await poll(keys, context)
            daily = event("daily", "20260304T100500Z", "RRULE:FREQ=DAILY")
            server.routes["/a.ics"] = as_calendar(daily, event("late", "20260310T093000Z"))
            clock.set_to_time("2026-03-10T10:04")
            later = await poll(keys, context, first.cursor)
            assert shown(later) == [("starting", "late")]
            clock.set_to_time("2026-03-11T11:00")
            resumed = await poll(keys, context, later.cursor)
            assert [item.data["start"][:10] for item in resumed.items] == ["2026-03-11"]
            clock.set_to_time("2026-03-12T10:00")
            resumed = await poll(keys, context, later.cursor)
            assert [item.data["start"][:10] for item in resumed.items] == ["2026-03-11"]

    tell(story)


def test_a_kind_that_is_added_begins_with_what_is_there() -> None:
    """An edited definition with the same `id` does not start tasks for all events of a calendar."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            server.routes["/a.ics"] = as_calendar(event("old", "20360101T000000Z"))
            keys = keys_of(server.url("/a.ics"))
            first = await poll(keys, context)
            keys["events"] = ["starting", "created"]
            second = await poll(keys, context, first.cursor)
            server.routes["/a.ics"] = as_calendar(
                event("old", "20360101T000000Z"), event("new", "20360101T000000Z")
            )
            third = await poll(keys, context, second.cursor)
            assert shown(second) == []
            assert shown(third) == [("created", "new")]

    tell(story)


def test_another_calendar_is_a_new_baseline() -> None:
    """A watcher whose address was edited starts again."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            server.routes["/a.ics"] = server.routes["/b.ics"] = as_calendar(event("a"))
            first = await poll(keys_of(server.url("/a.ics")), context)
            second = await poll(keys_of(server.url("/b.ics")), context, first.cursor)
            assert first.new_baseline is None
            assert second.new_baseline == "the watcher reads another calendar now"
            assert shown(second) == [("starting", "a")]

    tell(story)


@pytest.mark.parametrize(
    ("respond", "match", "retry_seconds"),
    [
        (answer(404, b""), "was answered with status 404", None),
        (answer(401, b""), "check `user` and `password`", 300.0),
        (answer(503, b"", {"Retry-After": "77"}), "status 503", 77.0),
        (answer(200, b"<html>", {"Content-Type": "text/html"}), r"\(text/html\) is not a", None),
        (answer(200, b"x" * 2000), "larger than 1000 bytes", None),
        (answer(200, ics(event("a"))[:-9]), "its end is missing", None),
    ],
)
def test_errors(respond: Any, match: str, retry_seconds: float | None) -> None:
    """A poll is complete or it fails, and the message says why."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            server.routes["/a.ics"] = respond
            with pytest.raises(SourceError, match=match) as caught:
                await poll(keys_of(server.url("/a.ics?token=secret")), context)
            assert caught.value.retry_seconds == retry_seconds
            assert "token" not in str(caught.value)

    tell(story, Limits(allow_private=LOOPBACK.allow_private, response_bytes=1000))


def test_the_address_policy_applies() -> None:
    """A private address is reached only where the configuration allows it."""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            for path in ("/a.ics", "/calendars/"):
                with pytest.raises(SourceError, match="allow_private"):
                    await poll(keys_of(server.url(path)), context)
            assert server.received == []

    tell(story, Limits())


def test_credentials_stay_at_their_origin() -> None:
    """A calendar at another server is named, and asked for nothing."""
    elsewhere = "http://localhost:9/calendars/"
    body = f"""<multistatus xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><response>
        <href>/</href><propstat><prop><C:calendar-home-set><href>{elsewhere}</href>
        </C:calendar-home-set></prop><status>HTTP/1.1 200 OK</status></propstat>
        </response></multistatus>"""

    async def story(context: PollContext, _: FixedClock) -> None:
        async with serving() as server:
            server.routes["/"] = answer(207, body.encode(), {"Content-Type": "application/xml"})
            keys = keys_of(server.url("/"), user=USER, password="env:CALENDAR_PASSWORD")
            with pytest.raises(SourceError, match=f"is at {elsewhere}, another server"):
                await poll(keys, context)

    tell(story)


def test_an_unknown_time_zone() -> None:
    """The message names it."""

    async def story(context: PollContext, _: FixedClock) -> None:
        keys = keys_of("http://127.0.0.1:9/a.ics", timezone="Europe/Nowhere")
        with pytest.raises(SourceError, match="no time zone 'Europe/Nowhere'"):
            await poll(keys, context)

    tell(story)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalDavServer]:
    """Run one CalDAV server, with two calendars and a list of tasks."""
    folder: Path = tmp_path_factory.mktemp("radicale")
    with caldav_server(folder) as running:
        running.create_calendar(f"/{USER}/office/", "Work")
        running.create_calendar(f"/{USER}/home/", "At home")
        running.create_calendar(f"/{USER}/tasks/", "Tasks", "VTODO")
        yield running


def dav_keys(server: CalDavServer, path: str = "/", **changed: Any) -> dict[str, Any]:
    """Return a block that reads a calendar of the account."""
    given = {"user": USER, "password": "env:CALENDAR_PASSWORD", "calendar": "Work"}
    return keys_of(server.url(path), **{**given, **changed})


def put(server: CalDavServer, text: str, folder: str = "office") -> None:
    """Put an event into a calendar."""
    server.request("PUT", f"/{USER}/{folder}/{uuid4().hex}.ics", ics(text).decode())


@pytest.mark.usefixtures("parsed_apart")
def test_a_calendar_is_found_by_its_name(server: CalDavServer) -> None:
    """From the address of the server; later polls ask the calendar alone."""
    put(server, event("started", "20260310T095500Z", "RRULE:FREQ=WEEKLY"))
    put(server, event("far", "20360310T095500Z"))
    put(server, event("elsewhere", "20260310T095500Z"), "home")

    async def story(context: PollContext, _: FixedClock) -> None:
        server.requests.clear()
        first = await poll(dav_keys(server), context)
        assert shown(first) == [("starting", "started")]
        assert first.next_seconds == 7 * 86400 - 300
        server.requests.clear()
        second = await poll(dav_keys(server), context, first.cursor)
        assert second.items == first.items
        assert server.requests == [("REPORT", f"/{USER}/office/")]

    tell(story)


def test_events_of_a_caldav_server(server: CalDavServer) -> None:
    """What is created on the server, at any time, is an item of the next poll."""

    async def story(context: PollContext, _: FixedClock) -> None:
        keys = dav_keys(server, f"/{USER}/home/", calendar=None, events=["created"])
        first = await poll(keys, context)
        put(server, event("new", "20460310T095500Z"), "home")
        second = await poll(keys, context, first.cursor)
        assert shown(second) == [("created", "new")]

    tell(story)


@pytest.mark.parametrize(
    ("name", "match"),
    [(None, "name one: 'At home', 'Work'"), ("Play", "no calendar called 'Play'; there are 'At h")],
)
def test_the_calendars_of_an_account_are_named(
    server: CalDavServer, name: str | None, match: str
) -> None:
    """Where the definition does not decide; a list of tasks is no calendar of events."""

    async def story(context: PollContext, _: FixedClock) -> None:
        with pytest.raises(SourceError, match=match) as caught:
            await poll(dav_keys(server, f"/{USER}/", calendar=name), context)
        assert "Tasks" not in str(caught.value)

    tell(story)


def test_a_wrong_password(server: CalDavServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request, and minutes until the next."""
    monkeypatch.setenv("CALENDAR_PASSWORD", "not the password")

    async def story(context: PollContext, _: FixedClock) -> None:
        server.requests.clear()
        with pytest.raises(SourceError, match="check `user` and `password`") as caught:
            await poll(dav_keys(server, f"/{USER}/office/"), context)
        assert caught.value.retry_seconds == 300.0
        assert len(server.requests) == 1

    tell(story)


def test_a_calendar_that_moved_is_found_again(server: CalDavServer) -> None:
    """The address in the cursor leads nowhere any longer."""
    server.create_calendar(f"/{USER}/moving/", "Moving")

    async def story(context: PollContext, _: FixedClock) -> None:
        keys = dav_keys(server, calendar="Moving")
        first = await poll(keys, context)
        server.request("DELETE", f"/{USER}/moving/")
        server.create_calendar(f"/{USER}/moved/", "Moving")
        put(server, event("a"), "moved")
        second = await poll(keys, context, first.cursor)
        assert shown(second) == [("starting", "a")]
        assert second.cursor["calendar"] == server.url(f"/{USER}/moved/")

    tell(story)
