"""Reads events of a calendar: those that start, with every recurrence, and each event's version.

Runs in the process of `parser_child`: a recurrence rule can have any number of occurrences.

Events come from invitations of strangers, so each component is parsed alone. What cannot be read is passed
over and reported; the others are not affected. A calendar whose end is missing is refused as a whole, and so
is one without any event that can be read, if something was passed over: it must not look like an empty one.
"""

import hashlib
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
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
_TIME_FIELDS: Final = frozenset({"DTSTART", "DTEND", "DURATION", "EXDATE", *_RECURRENCE_FIELDS})
"""Where one of these cannot be read, the event would start at a wrong time."""
_CALENDAR: Final = "VCALENDAR"
_DEPTHS: Final = {
    _CALENDAR: 0,
    **dict.fromkeys(("VEVENT", "VTODO", "VJOURNAL", "VFREEBUSY", "VTIMEZONE"), 1),
}
"""Components that stand at one depth only: what is open there has no end."""
_DEEPEST: Final = 10
_MOST_NAMED: Final = 5
"""How many of the parts that were passed over are named."""

_controls: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_newline: Final = re.compile(r"\r?\n")
_fold: Final = re.compile(r"(?<![\r\n])[\r\n]++[ \t]")
_property: Final = re.compile(r"[^\s:;]+ *[:;]")
_Component = Any


def parse(body: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return `starting` (due events), `next_us` (when the next is due), `events` and `passed_over`.

    `passed_over` says what could not be read; None if everything was read.
    `options`: `format` (`ics`, or `multistatus` for the answer to a CalDAV query), `now_us`,
    `late_seconds` (how long ago an event that is due may have started), `before_seconds`, `timezone`, `kinds` and `most_items`.
    """
    reader = _Reader(options)
    with warnings.catch_warnings():
        # The libraries warn of what they repair.
        warnings.simplefilter("ignore")
        if options["format"] == "multistatus":
            from agent.triggers.watchers.calendars.caldav_document import calendar_texts

            for href, text, problem in calendar_texts(body):
                reader.read_object(href, text, problem)
        else:
            reader.read(body.decode("utf-8-sig", "replace"))
    return reader.found()


@dataclass(slots=True)
class _Written:
    """A component as it is written."""

    name: str
    lines: list[str] = field(default_factory=list)
    """Its own, without those of components in it."""
    parts: list["_Written"] = field(default_factory=list)
    is_cut: bool = False
    """Whether its end is missing, or that of a component in it."""


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
        self._read_count = 0
        """Of events that recur or not, each with its changes."""
        self._passed_over: set[str] = set()

    def read(self, text: str) -> None:
        """Read all calendars of one text."""
        calendars = self._split(text)
        if not calendars:
            raise UnreadableError("is not a calendar")
        for calendar in calendars:
            self._read_calendar(calendar)

    def read_object(self, href: str, text: str, problem: str | None) -> None:
        """Read the calendar of one object of a server; a bad one is passed over."""
        try:
            if problem is not None:
                raise UnreadableError(problem)
            self.read(text)
        except UnreadableError as error:
            self._pass_over(href, error)

    def found(self) -> dict[str, Any]:
        """Return what was read, due events in the order of their starts."""
        passed_over = self._summary()
        if passed_over is not None and self._read_count == 0:
            raise UnreadableError(f"has no event that can be read: {passed_over}")
        starting = sorted(self._starting.items(), key=lambda pair: (pair[1][0], pair[0]))
        if len(starting) > self._most_items or len(self._events) > self._most_items:
            raise UnreadableError(f"has more events than {self._most_items}")
        return {
            "starting": [{"key": key, "data": data} for key, (_, data) in starting],
            "next_us": self._next_us,
            "events": list(self._events.values()),
            "passed_over": passed_over,
        }

    def _pass_over(self, what: str, reason: object) -> None:
        self._passed_over.add(f"{_bounded(what, 200)} ({_bounded(reason, 200)})")

    def _summary(self) -> str | None:
        """Return what was passed over, in an order that is the same at every poll."""
        named = sorted(self._passed_over)
        more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        return "; ".join(named[:_MOST_NAMED]) + more if named else None

    def _split(self, text: str) -> list[_Written]:
        """Return the calendars of a text."""
        calendars: list[_Written] = []
        stack: list[_Written] = []
        for line in filter(str.strip, _newline.split(_fold.sub("", text))):
            word, _, name = (part.strip().upper() for part in line.partition(":"))
            open_at = {part.name: depth for depth, part in enumerate(stack, 1)}
            if word == "BEGIN" and name in _DEPTHS:
                _cut_off(stack, _DEPTHS[name])
            if word == "BEGIN" and (stack or name == _CALENDAR) and len(stack) < _DEEPEST:
                stack.append(_Written(name))
            elif word == "END" and name in open_at:
                _cut_off(stack, open_at[name])
                ended = stack.pop()
                (stack[-1].parts if stack else calendars).append(ended)
            elif stack and word not in ("BEGIN", "END") and _property.match(line):
                stack[-1].lines.append(line)
            elif stack or calendars:
                self._pass_over(line, "no property of a calendar")
        _cut_off(stack, 0)
        return calendars

    def _read_calendar(self, calendar: _Written) -> None:
        zones, lost_zones = self._zones(calendar)
        series: dict[str, list[_Component]] = {}
        for written in calendar.parts:
            if written.name == "VEVENT" and (event := self._event(written, lost_zones)):
                series.setdefault(_uid(event), []).append(event)
        own_zone = _value(calendar, "X-WR-TIMEZONE")
        for uid, events in series.items():
            try:
                if "starting" in self._kinds:
                    self._read_starts(uid, _alone(own_zone, [*zones, *events]), events)
                if "created" in self._kinds or "changed" in self._kinds:
                    self._read_version(uid, events)
            except Exception as error:
                self._pass_over(uid, error)
            else:
                self._read_count += 1

    def _zones(self, calendar: _Written) -> tuple[list[_Component], set[str]]:
        """Return the time zones that a calendar describes, and the names of unknown ones."""
        from icalendar import Timezone
        from icalendar.timezone import tzp

        zones: list[_Component] = []
        lost: set[str] = set()
        for written in calendar.parts:
            if written.name != "VTIMEZONE":
                continue
            name = _value(written, "TZID") or ""
            try:
                if written.is_cut:
                    raise UnreadableError("its end is missing")
                zones.append(Timezone.from_ical(_text_of(written)))
            except Exception as error:
                self._pass_over(f"time zone {name}", error)
                # Most zones have names that need no description.
                if tzp.timezone(name) is None:
                    lost.add(name)
        return zones, lost

    def _event(self, written: _Written, lost_zones: set[str]) -> _Component | None:
        """Return an event without its alarms; None if it cannot be read."""
        from icalendar import Event

        try:
            if written.is_cut:
                raise UnreadableError("its end is missing")
            event = Event.from_ical(_text_of(_Written(written.name, written.lines)))
            for name, problem in event.errors:
                if name in _TIME_FIELDS:
                    raise UnreadableError(f"{name}: {problem}")
            if "DTSTART" not in event:
                raise UnreadableError("it has no DTSTART")
            for value in (value for name in _TIME_FIELDS for value in _values(event, name)):
                if (zone := getattr(value, "params", {}).get("TZID")) in lost_zones:
                    raise UnreadableError(f"nothing describes its time zone {zone}")
        except Exception as error:
            self._pass_over(_value(written, "UID") or "an event without a UID", error)
            return None
        return event

    def _read_starts(self, uid: str, calendar: _Component, events: list[_Component]) -> None:
        # The library gives an event that does not recur its start as a recurrence; its key keeps
        # that, so that an event which begins to recur does not start twice.
        is_recurring = any(name in event for event in events for name in _RECURRENCE_FIELDS)
        for occurrence in _occurrences(calendar, *self._span()):
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


def _cut_off(stack: list[_Written], depth: int) -> None:
    """End the components that are open from a depth on, although their ends are missing."""
    while len(stack) > depth:
        part = stack.pop()
        if not stack:
            raise UnreadableError("is not a calendar, or its end is missing")
        part.is_cut = True
        # Lines of the outer component may be among those of the inner one.
        stack[-1].is_cut = len(stack) > 1
        stack[-1].parts.append(part)


def _text_of(written: _Written) -> str:
    inner = (_text_of(part) for part in written.parts)
    lines = (f"BEGIN:{written.name}", *written.lines, *inner, f"END:{written.name}")
    return "\r\n".join(lines)


def _value(written: _Written, name: str) -> str | None:
    """Return the value of a property without parsing it."""
    for line in written.lines:
        key, _, value = line.partition(":")
        if key.partition(";")[0].strip().upper() == name:
            return clean(value).strip()
    return None


def _alone(own_zone: str | None, components: list[_Component]) -> _Component:
    """Return a calendar of these components."""
    from icalendar import Calendar

    calendar = Calendar()
    if own_zone is not None:
        calendar.add("X-WR-TIMEZONE", own_zone)
    for component in components:
        calendar.add_component(component)
    return calendar


def _occurrences(calendar: _Component, start: datetime, stop: datetime) -> Iterator[_Component]:
    """Yield the occurrences of a calendar with one series, overrides and exceptions applied."""
    recurring_ical_events: Any = import_module("recurring_ical_events")

    if any(_is_too_frequent(event) for event in calendar.walk("VEVENT")):
        raise UnreadableError("it recurs each minute")
    yield from recurring_ical_events.of(calendar).between(start, stop)


def _is_too_frequent(event: _Component) -> bool:
    return any(set(rule.get("FREQ", [])) & _TOO_FREQUENT for rule in _values(event, "RRULE"))


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
        for value in _values(event, name):
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
    return next((_bounded(value, most) for value in _values(event, name)), "")


def _values(event: _Component, name: str) -> list[Any]:
    """Return the values of a property, which may stand in an event several times."""
    values = event.get(name, [])
    return values if isinstance(values, list) else [values]


def _people(event: _Component, name: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for value in _values(event, name):
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
