"""Finds a calendar on a CalDAV server and queries its events.

The requests go through the client and the address policy of the `http` step. Credentials are sent to the
origin of the definition alone.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit
from xml.etree.ElementTree import Element, SubElement, tostring

from agent.core.redaction import everywhere
from agent.steps.attempt.secrets import Secrets
from agent.steps.http.response import delay_seconds
from agent.steps.types.errors import DefiniteFailure
from agent.triggers.watchers.calendars import caldav_names as names
from agent.triggers.watchers.http_poll import redact, shown
from agent.triggers.watchers.parser_process import parse_apart
from agent.triggers.watchers.source import Json, PollContext, SourceError

_REFUSED_SECONDS: Final = 300.0
"""Servers lock accounts after a number of wrong passwords."""
_REFUSED: Final = frozenset({401, 403})
_OVERLOADED: Final = frozenset({429, 503})
_CALENDARS_SHOWN: Final = 30


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response to one request."""

    status: int
    content_type: str
    body: bytes
    url: str
    retry_seconds: float | None
    """What `Retry-After` asks for."""


_ABOUT: Final = (
    names.RESOURCE_TYPE,
    names.DISPLAY_NAME,
    names.PRINCIPAL,
    names.HOME_SET,
    names.COMPONENTS,
)
"""What is asked about a resource to find the calendar."""


class CalendarClient:
    """Sends the requests of one poll."""

    def __init__(self, keys: dict[str, Any], context: PollContext) -> None:
        self._url: str = keys["url"]
        self._context = context
        self._keys = keys
        self._headers: dict[str, str] | None = None
        """The authorization, once it has been read."""

    async def get(self) -> Response:
        """Fetch the address itself."""
        return await self.send("GET", self._url, {"Accept": "text/calendar, */*;q=0.5"})

    async def propfind(self, url: str, properties: Sequence[str], depth: int) -> Response:
        """Ask for properties of a resource, and with depth 1 of those in it."""
        query = Element(names.dav("propfind"))
        wanted = SubElement(query, names.PROP)
        for name in properties:
            SubElement(wanted, name)
        return await self.send("PROPFIND", url, {"Depth": str(depth)}, _xml(query))

    async def events(self, url: str, span: tuple[datetime, datetime] | None) -> Response:
        """Query the events of a calendar, all of them or those in a span."""
        query = Element(names.caldav("calendar-query"))
        SubElement(SubElement(query, names.PROP), names.CALENDAR_DATA)
        kind = names.caldav("comp-filter")
        calendar = SubElement(SubElement(query, names.caldav("filter")), kind, name="VCALENDAR")
        event = SubElement(calendar, kind, name="VEVENT")
        if span is not None:
            start, end = (f"{instant.astimezone(UTC):%Y%m%dT%H%M%SZ}" for instant in span)
            SubElement(event, names.caldav("time-range"), start=start, end=end)
        return await self.send("REPORT", url, {"Depth": "1"}, _xml(query))

    async def send(
        self, method: str, url: str, headers: dict[str, str], body: str | None = None
    ) -> Response:
        """Send one request and return its response, whatever its status."""
        from agent.steps.http.exchange import Exchange

        if _origin(url) != _origin(self._url):
            raise SourceError(
                f"the calendar of {shown(self._url)} is at {shown(url)}, another server; write"
                " that address as `url`"
            )
        if self._headers is None:
            self._headers = await _authorization(self._keys)
        values: dict[str, Any] = {"headers": {**headers, **self._headers}}
        if body is not None:
            values["headers"]["Content-Type"] = "application/xml; charset=utf-8"
            values["data"] = body
        limit_bytes = self._context.limits.response_bytes
        try:
            response = await Exchange(self._context, is_effect=False).fetch(
                method, url, values, set(self._headers), limit_bytes
            )
        except DefiniteFailure as error:
            text = str(error).replace(url, shown(url))
            raise SourceError(redact(f"{shown(url)}: {text}")) from None
        if response.body is None:
            raise SourceError(f"{shown(url)}: the response is larger than {limit_bytes} bytes")
        kind = response.headers.get("content-type", "")
        now_us = self._context.clock.now()
        retry_seconds = delay_seconds(response.headers.get("retry-after"), now_us)
        return Response(response.status, kind, response.body, str(response.url), retry_seconds)


def check_status(response: Response, expected: int) -> None:
    """Raise `SourceError` for another status than this one."""
    if response.status == expected:
        return
    text = f"{shown(response.url)} was answered with status {response.status}"
    if response.status in _REFUSED:
        raise SourceError(
            f"{text}: check `user` and `password` (Basic authentication is used)",
            retry_seconds=_REFUSED_SECONDS,
        )
    raise SourceError(
        text, retry_seconds=response.retry_seconds if response.status in _OVERLOADED else None
    )


async def find_calendar(
    client: CalendarClient, keys: dict[str, Any], context: PollContext
) -> str | None:
    """Return the address of the calendar; None if the address is not of a CalDAV server."""
    url: str = keys["url"]
    response = await client.propfind(url, _ABOUT, 0)
    if response.status == 401 and keys.get("user") is not None:
        check_status(response, 207)
    if response.status != 207:
        return None
    resource = await _first(response, context)
    name: str | None = keys.get("calendar")
    if resource["is_calendar"] and (name is None or _is_named(resource, name)):
        return response.url
    home, principal = resource["home"], resource["principal"]
    if home is None and principal is not None:
        response = await client.propfind(urljoin(response.url, principal), _ABOUT, 0)
        check_status(response, 207)
        home = (await _first(response, context))["home"]
    response = await client.propfind(urljoin(response.url, home or ""), _ABOUT, 1)
    check_status(response, 207)
    resources = await _resources(response, context)
    calendars = [
        collection
        for collection in resources
        if collection["is_calendar"] and collection["has_events"]
    ]
    return urljoin(response.url, str(_chosen(url, calendars, name)["href"]))


def _chosen(url: str, calendars: list[dict[str, Json]], name: str | None) -> dict[str, Json]:
    fitting = [calendar for calendar in calendars if name is None or _is_named(calendar, name)]
    if len(fitting) == 1:
        return fitting[0]
    known = sorted(_name(calendar) for calendar in calendars)
    names = ", ".join(map(repr, known[:_CALENDARS_SHOWN])) or "none"
    if name is None:
        raise SourceError(f"{shown(url)} has several calendars or none; name one: {names}")
    count = "no calendar" if not fitting else f"{len(fitting)} calendars"
    raise SourceError(f"{shown(url)} has {count} called {name!r}; there are {names}")


def _name(resource: dict[str, Json]) -> str:
    segment = unquote(urlsplit(resource["href"]).path.rstrip("/").rpartition("/")[2])
    return str(resource["name"] or segment)


def _is_named(resource: dict[str, Json], name: str) -> bool:
    segment = unquote(urlsplit(resource["href"]).path.rstrip("/").rpartition("/")[2])
    return name in (resource["name"], segment)


async def _resources(response: Response, context: PollContext) -> list[dict[str, Json]]:
    try:
        resources: list[dict[str, Json]] = await parse_apart(
            "calendars.caldav_document", response.body, {}, context
        )
    except SourceError as error:
        raise SourceError(redact(f"the answer of {shown(response.url)} {error}")) from None
    return resources


async def _first(response: Response, context: PollContext) -> dict[str, Json]:
    resources = await _resources(response, context)
    if not resources:
        raise SourceError(f"the answer of {shown(response.url)} is empty")
    return resources[0]


async def _authorization(keys: dict[str, Any]) -> dict[str, str]:
    if keys.get("user") is None:
        return {}
    password = ""
    if keys.get("password") is not None:
        try:
            password = await Secrets().read(keys["password"], frozenset({()}))
        except DefiniteFailure as error:
            raise SourceError(f"the password for {shown(keys['url'])}: {error}") from None
    encoded = base64.b64encode(f"{keys['user']}:{password}".encode()).decode("ascii")
    if password:
        everywhere.hide(encoded, f"{keys['user']} {keys['password']}")
    return {"Authorization": f"Basic {encoded}"}


def _xml(query: Element) -> str:
    return tostring(query, encoding="unicode", xml_declaration=True)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port
