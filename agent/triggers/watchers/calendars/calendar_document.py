"""Reads events of a calendar: those that start, with every recurrence, and each event's version.

Runs in the process of `parser_child`: a recurrence rule can have any number of occurrences. An event
that cannot be read is left out and counted; the others are not affected. A calendar whose end is
missing is refused as a whole.
"""

import hashlib
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from importlib import import_module
from typing import Any, Final
from zoneinfo import ZoneInfo

from agent.core.clock import SECOND
from agent.core.local_zone import machine_zone
from agent.triggers.local_time import first_instant, to_local
from agent.triggers.watchers.parser_child import UnreadableError, clean

LATE_SECONDS: Final = 86_400
"""An event that started this long ago is still an item; after a longer pause it is not."""
AHEAD_SECONDS: Final = 31 * 86_400
"""How far ahead the next start is looked for."""
_MARGIN: Final = timedelta(days=2)
"""Local times are up to a day from UTC."""
_LINE_LENGTH: Final = 2_000
_TEXT_LENGTH: Final = 20_000
_MOST_ATTENDEES: Final = 100
_TOO_FREQUENT: Final = frozenset({"SECONDLY", "MINUTELY"})
_VERSION_FIELDS: Final = (
    "SUMMARY",
    "DESCRIPTION",
    "LOCATION",
    "DTSTART",
    "DTEND",
    "DURATION",
    "RRULE",
    "RDATE",
    "EXDATE",
    "RECURRENCE-ID",
    "STATUS",
    "SEQUENCE",
    "ORGANIZER",
    "ATTENDEE",
    "URL",
)
"""What a change of an event is: servers also change time stamps, and acknowledged alarms."""

_RECURRENCE_FIELDS: Final = ("RRULE", "RDATE", "RECURRENCE-ID")

_controls: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_Component = Any


def parse(body: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return `starting` (due events), `next_us` (when the next is due), `events` and `unreadable`.

    `options`: `format` (`ics`, or `multistatus` for the answer to a CalDAV query), `now_us`,
    `late_seconds` (how long ago an event that is due may have started), `before_seconds`, `timezone`, `kinds` and `most_items`.
    """
    if options["format"] == "multistatus":
        from agent.triggers.watchers.calendars.caldav_document import calendar_texts

        texts = calendar_texts(body)
    else:
        texts = [body.decode("utf-8-sig", "replace")]
    reader = _Reader(options)
    with warnings.catch_warnings():
        # The libraries warn of what they repair.
        warnings.simplefilter("ignore")
        for text in texts:
            reader.read(text)
    return reader.found()


class _Reader:
    """Collects the events of one or many calendar files."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._now_us: int = options["now_us"]
        self._before_us = int(options["before_seconds"] * SECOND)
        self._late_us = int(options.get("late_seconds", LATE_SECONDS) * SECOND)
        self._kinds: list[str] = options["kinds"]
        self._most_items: int = options["most_items"]
        zone = options["timezone"]
        self._zone: tzinfo = machine_zone() if zone is None else ZoneInfo(zone)
        self._starting: dict[str, tuple[int, dict[str, Any]]] = {}
        self._events: dict[str, dict[str, Any]] = {}
        self._next_us: int | None = None
        self._unreadable: set[str] = set()

    def read(self, text: str) -> None:
        """Read all calendars of one text."""
        from icalendar import Calendar

        if not re.search(r"END:VCALENDAR\s*\Z", text, re.IGNORECASE):
            raise UnreadableError("is not a calendar, or its end is missing")
        try:
            calendars = Calendar.from_ical(text, multiple=True)
        except (ValueError, IndexError, KeyError) as error:
            raise UnreadableError(f"is not a calendar: {error}") from None
        for calendar in calendars:
            if calendar.name != "VCALENDAR":
                raise UnreadableError(f"is not a calendar, but {calendar.name}")
            self._read_calendar(calendar)

    def found(self) -> dict[str, Any]:
        """Return what was read, due events in the order of their starts."""
        starting = sorted(self._starting.items(), key=lambda pair: (pair[1][0], pair[0]))
        if len(starting) > self._most_items or len(self._events) > self._most_items:
            raise UnreadableError(f"has more events than {self._most_items}")
        return {
            "starting": [{"key": key, "data": data} for key, (_, data) in starting],
            "next_us": self._next_us,
            "events": list(self._events.values()),
            "unreadable": sorted(self._unreadable)[:20],
        }

    def _read_calendar(self, calendar: _Component) -> None:
        series: dict[str, list[_Component]] = {}
        for event in calendar.walk("VEVENT"):
            series.setdefault(_uid(event), []).append(event)
        for uid, events in series.items():
            try:
                if "starting" in self._kinds:
                    self._read_starts(uid, calendar, events)
                if "created" in self._kinds or "changed" in self._kinds:
                    self._read_version(uid, events)
            except Exception:
                # Events come from invitations of strangers: one must not hide the others.
                self._unreadable.add(uid)

    def _read_starts(self, uid: str, calendar: _Component, events: list[_Component]) -> None:
        # The library gives an event that does not recur its start as a recurrence; its key keeps
        # that, so that an event which begins to recur does not start twice.
        is_recurring = any(name in event for event in events for name in _RECURRENCE_FIELDS)
        for occurrence in _occurrences(calendar, events, *self._span()):
            if str(occurrence.get("STATUS", "")).upper() == "CANCELLED":
                continue
            start_us = self._instant(occurrence["DTSTART"].dt)
            due_us = start_us - self._before_us
            if due_us > self._now_us:
                self._next_us = due_us if self._next_us is None else min(self._next_us, due_us)
            elif start_us >= self._now_us - self._late_us:
                data = self._data(uid, occurrence, "starting")
                key = f"starting:{uid}:{data['recurrence_id'] or ''}:{_in_utc(start_us)}"
                if not is_recurring:
                    data["recurrence_id"] = None
                self._starting[key] = (start_us, data)

    def _span(self) -> tuple[datetime, datetime]:
        now = to_local(self._now_us, UTC)
        ahead = timedelta(seconds=self._before_us / SECOND + AHEAD_SECONDS)
        return now - timedelta(seconds=LATE_SECONDS) - _MARGIN, now + ahead

    def _read_version(self, uid: str, events: list[_Component]) -> None:
        master = next((event for event in events if "RECURRENCE-ID" not in event), events[0])
        written = sorted(_version_text(event) for event in events)
        version = hashlib.sha256("\n\n".join(written).encode("utf-8", "replace")).hexdigest()[:12]
        self._events[uid] = {
            "uid": uid,
            "version": version,
            "data": self._data(uid, master, "created"),
        }

    def _instant(self, moment: date | datetime) -> int:
        """Return when a time comes; a date at midnight, and a time without a zone, in our zone."""
        if not isinstance(moment, datetime):
            return first_instant(datetime.combine(moment, time()), self._zone)
        if moment.tzinfo is None:
            return first_instant(moment, self._zone)
        return math.floor(moment.timestamp() * SECOND)

    def _shown(self, moment: date | datetime) -> str:
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            return moment.isoformat()
        return to_local(self._instant(moment), self._zone).isoformat()

    def _data(self, uid: str, event: _Component, kind: str) -> dict[str, Any]:
        start = event["DTSTART"].dt
        recurrence = event.get("RECURRENCE-ID")
        return {
            "kind": kind,
            "uid": uid,
            "summary": _text(event, "SUMMARY", _LINE_LENGTH),
            "description": _text(event, "DESCRIPTION", _TEXT_LENGTH),
            "location": _text(event, "LOCATION", _LINE_LENGTH),
            "start": self._shown(start),
            "end": self._shown(_end(event, start)),
            "all_day": not isinstance(start, datetime),
            "status": _text(event, "STATUS", 100).lower() or None,
            "organizer": next(iter(_people(event, "ORGANIZER")), None),
            "attendees": _people(event, "ATTENDEE")[:_MOST_ATTENDEES],
            "url": _text(event, "URL", _LINE_LENGTH) or None,
            # In one form, whether it is a date, in UTC or in the zone of the event.
            "recurrence_id": None if recurrence is None else _in_utc(self._instant(recurrence.dt)),
        }


def _in_utc(instant_us: int) -> str:
    return to_local(instant_us, UTC).isoformat().replace("+00:00", "Z")


def _occurrences(
    calendar: _Component, events: list[_Component], start: datetime, stop: datetime
) -> Iterator[_Component]:
    """Yield the occurrences of one series, overrides and exceptions applied."""
    from icalendar import Calendar

    recurring_ical_events: Any = import_module("recurring_ical_events")

    if any(_is_too_frequent(event) for event in events):
        raise ValueError("an event that recurs each minute")
    alone = Calendar()
    if "X-WR-TIMEZONE" in calendar:
        alone["X-WR-TIMEZONE"] = calendar["X-WR-TIMEZONE"]
    for component in (*calendar.walk("VTIMEZONE"), *events):
        alone.add_component(component)
    yield from recurring_ical_events.of(alone).between(start, stop)


def _is_too_frequent(event: _Component) -> bool:
    rules = event.get("RRULE", [])
    rules = rules if isinstance(rules, list) else [rules]
    return any(set(rule.get("FREQ", [])) & _TOO_FREQUENT for rule in rules)


def _uid(event: _Component) -> str:
    uid = clean(event.get("UID", "")).strip()
    if uid:
        return uid if len(uid) <= 300 else hashlib.sha256(uid.encode()).hexdigest()
    # Not allowed, and common in hand-made files.
    written = _version_text(event).encode("utf-8", "replace")
    return f"sha256:{hashlib.sha256(written).hexdigest()[:32]}"


def _version_text(event: _Component) -> str:
    lines: list[str] = []
    for name in _VERSION_FIELDS:
        values = event.get(name, [])
        for value in values if isinstance(values, list) else [values]:
            parameters = sorted(getattr(value, "params", {}).items())
            written = value.to_ical() if hasattr(value, "to_ical") else str(value)
            lines.append(f"{name}{parameters}:{written!r}")
    return "\n".join(lines)


def _end(event: _Component, start: date | datetime) -> date | datetime:
    end: date | datetime
    if "DTEND" in event:
        end = event["DTEND"].dt
    elif "DURATION" in event:
        end = start + event["DURATION"].dt
    elif isinstance(start, datetime):
        end = start
    else:
        end = start + timedelta(days=1)
    return end


def _text(event: _Component, name: str, most: int) -> str:
    values = event.get(name)
    value = values[0] if isinstance(values, list) and values else values
    return "" if value is None else _bounded(value, most)


def _people(event: _Component, name: str) -> list[dict[str, Any]]:
    values = event.get(name, [])
    events: list[dict[str, Any]] = []
    for value in values if isinstance(values, list) else [values]:
        with suppress(Exception):
            events.append(_person(value))
    return events


def _person(value: Any) -> dict[str, Any]:
    parameters = getattr(value, "params", {})
    return {
        "name": _bounded(parameters.get("CN", ""), 200),
        "address": re.sub(r"^mailto:", "", _bounded(value, 320), flags=re.IGNORECASE),
        "status": _bounded(parameters.get("PARTSTAT", ""), 50).lower() or None,
    }


def _bounded(value: Any, most: int) -> str:
    # JSON writes six characters for a control character, and an item has a limit.
    return _controls.sub("\ufffd", clean(value)[:most])
