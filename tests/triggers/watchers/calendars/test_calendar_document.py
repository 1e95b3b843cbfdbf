from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent.core.clock import SECOND
from agent.store.db.json_values import encode
from agent.triggers.watchers.calendars.calendar_document import parse
from agent.triggers.watchers.parser_child import UnreadableError
from tests.support.multistatus import multistatus, response


def at(text: str) -> datetime:
    """Return a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def calendar(*events: str, head: str = "") -> bytes:
    """Return a calendar of events, each given by its lines."""
    written = "".join(f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n" for event in events)
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:test\n{head}{written}END:VCALENDAR\n"
    return text.replace("\n", "\r\n").encode()


def read(body: bytes, now: str, **changed: Any) -> dict[str, Any]:
    """Parse a calendar at a time, with the options of a watcher."""
    options = {
        "format": "ics",
        "now_us": int(at(now).timestamp()) * SECOND,
        "before_seconds": 0.0,
        "timezone": "Europe/Berlin",
        "kinds": ["starting"],
        "most_items": 1000,
        **changed,
    }
    found = parse(body, options)
    encode(found, "found")
    return found


def starts(found: dict[str, Any]) -> list[str]:
    """Return the starts of the due events."""
    return [item["data"]["start"] for item in found["starting"]]


def due(found: dict[str, Any]) -> str | None:
    """Return when the next event is due."""
    next_us = found["next_us"]
    return next_us and datetime.fromtimestamp(next_us / SECOND, UTC).isoformat()


MEETING = """
UID:meeting@example.org
SUMMARY:Meeting
DTSTART:20260310T100000Z
DTEND:20260310T110000Z
"""


@pytest.mark.parametrize(
    ("now", "before_seconds", "expected", "next_due"),
    [
        ("2026-03-10T09:59", 0, [], "2026-03-10T10:00:00+00:00"),
        ("2026-03-10T10:00", 0, ["2026-03-10T10:00:00+00:00"], None),
        ("2026-03-10T09:49", 600, [], "2026-03-10T09:50:00+00:00"),
        ("2026-03-10T09:50", 600, ["2026-03-10T10:00:00+00:00"], None),
        ("2026-03-08T09:00", 2 * 86400, [], "2026-03-08T10:00:00+00:00"),
        ("2026-03-11T09:59", 0, ["2026-03-10T10:00:00+00:00"], None),
        ("2026-03-11T10:01", 0, [], None),
        ("2026-02-01T10:00", 0, [], None),
        ("2026-02-08T10:00", 0, [], "2026-03-10T10:00:00+00:00"),
    ],
)
def test_an_event_starts(
    now: str, before_seconds: float, expected: list[str], next_due: str | None
) -> None:
    """An event is due `before` its start and stays an item for a day; later it is too late."""
    found = read(calendar(MEETING), now, before_seconds=before_seconds)
    assert starts(found) == expected
    assert due(found) == next_due


def test_an_item_has_the_event() -> None:
    """Everything that people see of an event."""
    body = calendar(
        MEETING
        + """DESCRIPTION:Bring\\nyour notes
LOCATION:Room 1
URL:https://example.org/meeting
STATUS:CONFIRMED
ORGANIZER;CN=Bob:mailto:bob@example.org
ATTENDEE;CN=Ann;PARTSTAT=ACCEPTED:mailto:ann@example.org
ATTENDEE:mailto:carl@example.org"""
    )
    (item,) = read(body, "2026-03-10T10:00")["starting"]
    assert item["key"] == "starting:meeting@example.org:2026-03-10T10:00:00Z:2026-03-10T10:00:00Z"
    assert item["data"] == {
        "kind": "starting",
        "uid": "meeting@example.org",
        "summary": "Meeting",
        "description": "Bring\nyour notes",
        "location": "Room 1",
        "start": "2026-03-10T10:00:00+00:00",
        "end": "2026-03-10T11:00:00+00:00",
        "all_day": False,
        "status": "confirmed",
        "organizer": {"name": "Bob", "address": "bob@example.org", "status": None},
        "attendees": [
            {"name": "Ann", "address": "ann@example.org", "status": "accepted"},
            {"name": "", "address": "carl@example.org", "status": None},
        ],
        "url": "https://example.org/meeting",
        "recurrence_id": None,
    }


def test_an_event_that_moves_starts_again() -> None:
    """Its key has its start; the same event at the same time in another zone has the same key."""
    moved = MEETING.replace("T10", "T12")
    zoned = MEETING.replace(
        "DTSTART:20260310T100000Z", "DTSTART;TZID=Europe/Berlin:20260310T110000"
    )
    keys = [
        read(calendar(event), "2026-03-10T13:00")["starting"][0]["key"]
        for event in (MEETING, moved, zoned)
    ]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_a_cancelled_event_does_not_start() -> None:
    """Neither an event nor one cancelled occurrence of it is an item."""
    found = read(calendar(MEETING + "STATUS:CANCELLED"), "2026-03-10T09:00")
    assert due(found) is None
    assert starts(read(calendar(MEETING + "STATUS:CANCELLED"), "2026-03-10T10:00")) == []


DAILY = """
UID:daily
SUMMARY:Standup
DTSTART;TZID=Europe/Berlin:20260320T090000
DTEND;TZID=Europe/Berlin:20260320T091500
RRULE:FREQ=DAILY;COUNT=30
EXDATE;TZID=Europe/Berlin:20260324T090000
RDATE;TZID=Europe/Berlin:20260324T150000
"""
MOVED = """
UID:daily
SUMMARY:Standup, later
RECURRENCE-ID;TZID=Europe/Berlin:20260326T090000
DTSTART;TZID=Europe/Berlin:20260326T140000
DTEND;TZID=Europe/Berlin:20260326T141500
"""
DROPPED = """
UID:daily
STATUS:CANCELLED
RECURRENCE-ID;TZID=Europe/Berlin:20260327T090000
DTSTART;TZID=Europe/Berlin:20260327T090000
"""


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-23T12:00", ["2026-03-23T09:00:00+01:00"]),
        # The exception of a rule, and a date of its own.
        ("2026-03-24T12:00", []),
        ("2026-03-24T14:00", ["2026-03-24T15:00:00+01:00"]),
        # One occurrence was moved, and one cancelled.
        ("2026-03-26T12:00", []),
        ("2026-03-26T13:30", ["2026-03-26T14:00:00+01:00"]),
        ("2026-03-27T13:30", []),
        # Clocks are set forward on the 29th: nine o'clock comes an hour earlier.
        ("2026-03-28T08:00", ["2026-03-28T09:00:00+01:00"]),
        ("2026-03-29T07:00", ["2026-03-28T09:00:00+01:00", "2026-03-29T09:00:00+02:00"]),
    ],
)
def test_recurrences(now: str, expected: list[str]) -> None:
    """Each occurrence starts once, at its local time, with its exceptions and changes."""
    assert starts(read(calendar(DAILY, MOVED, DROPPED), now)) == expected


def test_an_occurrence_has_its_recurrence() -> None:
    """A moved occurrence has the time at which it would have been, and its own summary."""
    found = read(calendar(DAILY, MOVED, DROPPED), "2026-03-26T13:30")
    data = found["starting"][-1]["data"]
    assert data["summary"] == "Standup, later"
    assert data["recurrence_id"] == "2026-03-26T08:00:00Z"
    assert data["end"] == "2026-03-26T14:15:00+01:00"


def test_an_edited_occurrence_does_not_start_twice() -> None:
    """An occurrence whose summary was edited has the key that it had before."""
    edited = MOVED.replace("T14", "T09")
    before = read(calendar(DAILY), "2026-03-26T08:30")["starting"]
    after = read(calendar(DAILY, edited), "2026-03-26T08:30")["starting"]
    assert after[-1]["data"]["summary"] == "Standup, later"
    assert before[-1]["key"] == after[-1]["key"]


HOLIDAY = """
UID:holiday
SUMMARY:Holiday
DTSTART;VALUE=DATE:20260401
"""


@pytest.mark.parametrize(
    ("timezone", "start", "end"),
    [
        ("Europe/Berlin", "2026-04-01T00:00:00+02:00", "2026-04-02T00:00:00+02:00"),
        ("America/New_York", "2026-04-01T00:00:00-04:00", "2026-04-02T00:00:00-04:00"),
        ("Pacific/Auckland", "2026-04-01T00:00:00+13:00", "2026-04-02T00:00:00+13:00"),
    ],
)
def test_all_day_events_start_at_midnight(timezone: str, start: str, end: str) -> None:
    """Of the watcher's zone."""
    moment = datetime.fromisoformat(start).astimezone(UTC).replace(tzinfo=None)
    early = (moment - timedelta(minutes=1)).isoformat()
    found = read(calendar(HOLIDAY), early, timezone=timezone)
    assert starts(found) == []
    assert due(found) == f"{moment.isoformat()}+00:00"
    (item,) = read(calendar(HOLIDAY), moment.isoformat(), timezone=timezone)["starting"]
    assert (item["data"]["start"], item["data"]["end"]) == (start, end)
    assert item["data"]["all_day"] is True


def test_a_time_without_a_zone_is_local() -> None:
    """A floating time is in the watcher's zone."""
    floating = MEETING.replace("T100000Z", "T100000").replace("T110000Z", "T110000")
    assert starts(read(calendar(floating), "2026-03-10T09:00")) == ["2026-03-10T10:00:00+01:00"]


OWN_ZONE = """BEGIN:VTIMEZONE
TZID:Own rules
BEGIN:STANDARD
DTSTART:19700101T000000
TZOFFSETFROM:+0530
TZOFFSETTO:+0530
END:STANDARD
END:VTIMEZONE
"""


def test_a_zone_of_the_calendars_own() -> None:
    """A zone that only the calendar describes."""
    own = MEETING.replace("DTSTART:20260310T100000Z", "DTSTART;TZID=Own rules:20260310T100000")
    found = read(calendar(own, head=OWN_ZONE), "2026-03-10T04:29")
    assert due(found) == "2026-03-10T04:30:00+00:00"


def test_broken_events_do_not_hide_others() -> None:
    """An event that cannot be read, and one that recurs each second, are named and left out."""
    broken = "UID:broken\nSUMMARY:No start"
    endless = "UID:endless\nDTSTART:20260310T100000Z\nRRULE:FREQ=SECONDLY"
    odd = "UID:odd\nDTSTART:20260310T100000Z\nRRULE:FREQ=DAILY;UNTIL=never"
    found = read(calendar(broken, endless, MEETING, odd), "2026-03-10T10:00")
    assert [item["data"]["uid"] for item in found["starting"]] == ["meeting@example.org"]
    assert "broken (it has no DTSTART); endless (it recurs each minute)" in found["passed_over"]
    assert "odd (RRULE: " in found["passed_over"]


OTHER = MEETING.replace("meeting@", "other@")
OWN_MEETING = OTHER.replace("DTSTART:20260310T100000Z", "DTSTART;TZID=Lost rules:20260310T153000")
LOST_ZONE = OWN_ZONE.replace("Own", "Lost").replace("OFFSETTO:+0530", "OFFSETTO:+99xx")


def without(body: bytes, line: bytes) -> bytes:
    """Return a calendar without the first of these lines."""
    return body.replace(line + b"\r\n", b"", 1)


@pytest.mark.parametrize(
    ("body", "read_too", "passed_over"),
    [
        (calendar(OTHER + "BEGIN:VALARM\nTRIGGER:PT-2H\nEND:VALARM", MEETING), True, None),
        (calendar(MEETING, head="BEGIN:VTODO\nUID:x\nDUE:soon\nEND:VTODO\n"), False, None),
        (calendar(MEETING, head="BEGIN:VTODO\nUID:x\n"), False, None),
        (calendar(MEETING, head="this is junk\n"), False, "this is junk (no property"),
        (calendar(MEETING, head="END:VALARM\n"), False, "END:VALARM (no property"),
        (calendar(MEETING) + b"junk\r\n", False, "junk (no property"),
        (calendar(OTHER + "this is junk", MEETING), True, "this is junk (no property"),
        (
            calendar(OTHER.replace("20260310T10", "soon"), MEETING),
            False,
            "other@example.org (DTSTART",
        ),
        (calendar(OWN_MEETING, MEETING, head=LOST_ZONE), False, "its time zone Lost rules"),
        (calendar(OTHER, MEETING, head=LOST_ZONE), True, "time zone Lost rules (Expected UTC"),
        (without(calendar(OTHER, MEETING), b"END:VEVENT"), False, "other@example.org (its end"),
        (
            calendar(OTHER + "BEGIN:VALARM\nACTION:DISPLAY", MEETING),
            False,
            "other@example.org (its end is missing)",
        ),
        (
            calendar(MEETING, OTHER).replace(b"END:VEVENT\r\nEND:VCAL", b"END:VCAL"),
            False,
            "other@example.org (its end is missing)",
        ),
        (
            without(calendar(MEETING, head=OWN_ZONE), b"END:VTIMEZONE"),
            False,
            "time zone Own rules (its end is missing)",
        ),
    ],
)
def test_one_bad_component_hides_no_other(
    body: bytes, read_too: bool, passed_over: str | None
) -> None:
    """Each component is read alone; what cannot be read is named if it matters for events."""
    found = read(body, "2026-03-10T10:00", kinds=["starting", "created"])
    expected = ["meeting@example.org", *(["other@example.org"] if read_too else [])]
    assert sorted(event["uid"] for event in found["events"]) == expected
    assert sorted(item["data"]["uid"] for item in found["starting"]) == expected
    assert (found["passed_over"] is None) == (passed_over is None)
    assert (passed_over or "") in (found["passed_over"] or "")


@pytest.mark.parametrize(
    "body",
    [
        without(calendar(MEETING), b"END:VEVENT"),
        calendar("UID:broken"),
        calendar(head="junk\n"),
        calendar(OWN_MEETING, head=LOST_ZONE),
    ],
)
def test_a_calendar_of_which_nothing_can_be_read_is_not_empty(body: bytes) -> None:
    """The poll fails: as an empty calendar, it would be silent for ever."""
    with pytest.raises(UnreadableError, match="has no event that can be read: "):
        read(body, "2026-03-10T10:00")
    assert read(calendar(), "2026-03-10T10:00")["starting"] == []


def test_a_component_nested_without_end_takes_no_time() -> None:
    """It is cut off, and the events after it are read."""
    deep = "BEGIN:X\n" * 100_000
    found = read(calendar(MEETING, head=deep), "2026-03-10T10:00")
    assert len(found["starting"]) == 1


def test_a_bad_object_of_a_server_hides_no_other() -> None:
    """Each resource of the answer is read alone; nothing readable is a failure."""
    body = multistatus(
        response("/1.ics", f"<C:calendar-data>{calendar(MEETING).decode()}</C:calendar-data>"),
        response("/2.ics", "<C:calendar-data>BEGIN:VCALENDAR</C:calendar-data>"),
        response("/3.ics", "<C:calendar-data/>", "HTTP/1.1 500 Internal Server Error"),
        "<D:response><D:href>/4.ics</D:href><D:status>HTTP/1.1 403 Forbidden</D:status>"
        "</D:response>",
    )
    found = read(body, "2026-03-10T10:00", format="multistatus")
    assert [item["data"]["uid"] for item in found["starting"]] == ["meeting@example.org"]
    assert found["passed_over"] == (
        "/2.ics (is not a calendar, or its end is missing); /3.ics (has no calendar data);"
        " /4.ics (has the status 403)"
    )
    bad = multistatus(response("/1.ics", "<C:calendar-data>BEGIN</C:calendar-data>"))
    with pytest.raises(UnreadableError, match=r"no event that can be read: /1\.ics"):
        read(bad, "2026-03-10T10:00", format="multistatus")


@pytest.mark.parametrize(
    "body", [b"", b"<html></html>", calendar(MEETING)[:-20], b"BEGIN:VEVENT\r\nEND:VEVENT\r\n"]
)
def test_what_is_not_a_calendar_is_refused(body: bytes) -> None:
    """Also a calendar whose end is missing: an event that was cut off would count as deleted."""
    with pytest.raises(UnreadableError, match="is not a calendar"):
        read(body, "2026-03-10T10:00")


def versions(body: bytes) -> dict[str, str]:
    """Return the version of each event."""
    found = read(body, "2026-03-10T10:00", kinds=["created", "changed"])
    return {event["uid"]: event["version"] for event in found["events"]}


def test_versions() -> None:
    """What people see makes another version; stamps and acknowledged alarms do not."""
    original = versions(calendar(MEETING + "DTSTAMP:20260101T000000Z"))
    stamped = MEETING + "DTSTAMP:20260301T000000Z\nX-MOZ-LASTACK:20260301T000000Z"
    assert versions(calendar(stamped)) == original
    for line in ("LOCATION:Room 2", "SEQUENCE:1", "ATTENDEE:mailto:dora@example.org"):
        assert versions(calendar(MEETING + line)) != original
    assert versions(calendar(DAILY, MOVED)) != versions(calendar(DAILY))
    assert versions(calendar(DAILY, MOVED)) == versions(calendar(MOVED, DAILY))


def test_an_event_far_away_has_a_version() -> None:
    """Events are created and changed whenever they are."""
    far = MEETING.replace("2026", "2036")
    assert versions(calendar(far)).keys() == {"meeting@example.org"}


def test_several_calendars_in_one_file() -> None:
    """All of them count."""
    other = MEETING.replace("meeting@", "other@")
    found = read(calendar(MEETING) + calendar(other), "2026-03-10T10:00")
    assert len(found["starting"]) == 2


def test_too_many_events_are_refused() -> None:
    """A poll is complete or it fails."""
    many = calendar(*(MEETING.replace("meeting@", f"{number}@") for number in range(5)))
    with pytest.raises(UnreadableError, match="more events than 4"):
        read(many, "2026-03-10T10:00", most_items=4)
