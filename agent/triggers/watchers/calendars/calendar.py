"""Watches a calendar, as an ICS file or over CalDAV: its events start, are created, or change.

- `starting`: an item for each occurrence, `before` its start. A poll asks for the next one in time
  (`next_seconds`). What started in the last day while no poll ran is an item too, older starts are
  not: of an event that is added later, only what started in the last hour. An occurrence that moves to another time is an item again; a cancelled one is none.
- `created` and `changed`: the cursor has a version of each event, made of what people see of it. A
  change is numbered, so that a change back is one too. These kinds read the whole calendar; `starting`
  alone asks a CalDAV server for the next weeks only.

An address that ends in `.ics`, or that does not speak CalDAV, is an ICS file. Where the calendar is on
its server is found once and kept in the cursor.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from agent.core.clock import SECOND
from agent.core.ids import content_hash
from agent.triggers.local_time import to_local
from agent.triggers.watchers.calendars.caldav_client import (
    CalendarClient,
    Response,
    check_status,
    find_calendar,
)
from agent.triggers.watchers.calendars.calendar_document import AHEAD_SECONDS, LATE_SECONDS
from agent.triggers.watchers.http_poll import redact_value, shown
from agent.triggers.watchers.item_checks import bounded_key
from agent.triggers.watchers.parser_process import parse_apart
from agent.triggers.watchers.source import Item, Json, Poll, PollContext, SourceError, require

_ICS: Final = "ics"
"""Where a cursor keeps the address of a calendar: there is none, the address is a file's."""
_ADDED_LATE_SECONDS: Final = 3_600.0
"""An event that people add this long after its start still counts: they round times."""
_MOST_EVENTS: Final = 20_000
"""The cursor has an entry for each."""


def open_source(keys: dict[str, Any]) -> "CalendarSource":
    """Return the source of a compiled `calendar` block."""
    return CalendarSource(keys)


class CalendarSource:
    """A calendar; its cursor has the calendar's address and the versions of its events."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys
        self._kinds: list[str] = keys["events"]
        self._before_seconds: float = keys.get("before_seconds") or 0.0
        self._definition = content_hash(f"{keys['url']} {keys.get('calendar')}")[:16]

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Return the events that are due, and those that are new or changed."""
        self._check()
        reason = None
        if cursor is not None and cursor["definition"] != self._definition:
            reason = "the watcher reads another calendar now"
        known: dict[str, Json] = {} if cursor is None or reason is not None else cursor
        now_us = context.clock.now()
        where, parsed = await self._read(known, now_us, context)
        items = [Item(bounded_key(event["key"]), event["data"]) for event in parsed["starting"]]
        versions: dict[str, str] | None = None
        if self._reads_versions:
            changes, versions = self._compare(parsed["events"], known.get("versions"))
            if parsed["passed_over"] is not None:
                # What cannot be read now is not deleted.
                versions = {**(known.get("versions") or {}), **versions}
            # A kind that an edit of the definition adds begins with what is there.
            items += changes if not known or known["versions"] is not None else []
        new_cursor = {
            "definition": self._definition,
            "calendar": where,
            "versions": versions,
            "polled_us": now_us,
        }
        return Poll(
            [Item(item.key, redact_value(item.data)) for item in items],
            new_cursor,
            new_baseline=reason,
            next_seconds=_seconds_until(parsed["next_us"], now_us),
            passed_over=redact_value(parsed["passed_over"]),
        )

    def _check(self) -> None:
        require("icalendar", "icalendar")
        require("recurring_ical_events", "recurring-ical-events")
        try:
            ZoneInfo(self._keys.get("timezone") or "UTC")
        except (KeyError, ValueError, OSError):
            zone = self._keys["timezone"]
            raise SourceError(
                f"there is no time zone {zone!r}; write one such as Europe/Berlin"
            ) from None

    @property
    def _reads_versions(self) -> bool:
        return "created" in self._kinds or "changed" in self._kinds

    async def _read(
        self, known: dict[str, Json], now_us: int, context: PollContext
    ) -> tuple[str, dict[str, Json]]:
        """Return where the calendar is, and what it contains."""
        where: str | None = known.get("calendar")
        late_seconds = _late_seconds(known.get("polled_us"), now_us)
        client = CalendarClient(self._keys, context)
        if where is None:
            where = await self._find(client, context)
        if where == _ICS:
            response = await client.get()
        else:
            response = await client.events(where, self._span(now_us))
            if response.status in (404, 405, 410):
                # It may have moved since it was found.
                where = await find_calendar(client, self._keys, context) or where
                response = await client.events(where, self._span(now_us))
        check_status(response, 200 if where == _ICS else 207)
        return where, await self._parse(response, where, now_us, late_seconds, context)

    async def _find(self, client: CalendarClient, context: PollContext) -> str:
        if self._keys["url"].partition("?")[0].lower().endswith(".ics"):
            return _ICS
        return await find_calendar(client, self._keys, context) or _ICS

    def _span(self, now_us: int) -> tuple[datetime, datetime] | None:
        if self._reads_versions:
            return None
        now = to_local(now_us, UTC)
        # Two days more: local times are up to a day from UTC.
        early = timedelta(seconds=LATE_SECONDS, days=2)
        return now - early, now + timedelta(seconds=self._before_seconds + AHEAD_SECONDS)

    async def _parse(
        self,
        response: Response,
        where: str,
        now_us: int,
        late_seconds: float,
        context: PollContext,
    ) -> dict[str, Json]:
        options = {
            "format": "ics" if where == _ICS else "multistatus",
            "now_us": now_us,
            "late_seconds": late_seconds,
            "before_seconds": self._before_seconds,
            "timezone": self._keys.get("timezone"),
            "kinds": self._kinds,
            "most_items": min(context.most_items, _MOST_EVENTS),
        }
        try:
            parsed: dict[str, Json] = await parse_apart(
                "calendars.calendar_document", response.body, options, context
            )
        except SourceError as error:
            kind = response.content_type[:80] or "without a content type"
            raise SourceError(f"{shown(response.url)} ({kind}) {error}") from None
        return parsed

    def _compare(
        self, events: list[dict[str, Json]], before: dict[str, str] | None
    ) -> tuple[list[Item], dict[str, str]]:
        """Return the events that are new or changed, and the versions of all.

        A version is `HASH`, after changes `HASH/NUMBER`. Without any from before, all are new.
        """
        items: list[Item] = []
        versions: dict[str, str] = {}
        for event in events:
            uid, version = event["uid"], event["version"]
            name = content_hash(uid)[:16]
            last = (before or {}).get(name)
            if last is None:
                versions[name] = version
                self._add(items, "created", f"created:{uid}", event)
                continue
            hash_before, _, number = last.partition("/")
            versions[name] = last
            if hash_before != version:
                count = int(number or 0) + 1
                versions[name] = f"{version}/{count}"
                self._add(items, "changed", f"changed:{uid}:{count}:{version}", event)
        return items, versions

    def _add(self, items: list[Item], kind: str, key: str, event: dict[str, Json]) -> None:
        if kind in self._kinds:
            items.append(Item(bounded_key(key), {**event["data"], "kind": kind}))


def _late_seconds(polled_us: int | None, now_us: int) -> float:
    """Return how long ago an event may have started, by when the last poll was."""
    if polled_us is None:
        return LATE_SECONDS
    return min(LATE_SECONDS, max(_ADDED_LATE_SECONDS, (now_us - polled_us) / SECOND + 60.0))


def _seconds_until(due_us: int | None, now_us: int) -> float | None:
    return None if due_us is None else (due_us - now_us) / SECOND
