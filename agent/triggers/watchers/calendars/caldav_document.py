"""Reads the answers of CalDAV servers: multistatus documents. Runs in the process of `parser_child`."""

from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree

from agent.triggers.watchers.calendars import caldav_names as names
from agent.triggers.watchers.parser_child import UnreadableError, clean

_CUT_SHORT: Final = "507"
"""The server left out resources: the answer became too large."""


def parse(body: bytes, _options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each resource of the answer to a PROPFIND: what it is and where it leads."""
    resources = list(_resources(body))
    problems = [problem for _, _, problem in resources if problem is not None]
    if problems and len(problems) == len(resources):
        raise UnreadableError(problems[0])
    return [
        {
            "href": href,
            "name": clean(properties.findtext(names.DISPLAY_NAME) or "").strip(),
            "is_calendar": properties.find(f"{names.RESOURCE_TYPE}/{names.CALENDAR}") is not None,
            "has_events": _has_events(properties),
            "principal": properties.findtext(f"{names.PRINCIPAL}/{names.HREF}"),
            "home": properties.findtext(f"{names.HOME_SET}/{names.HREF}"),
        }
        for href, properties, problem in resources
        if problem is None
    ]


def calendar_texts(body: bytes) -> Iterator[tuple[str, str, str | None]]:
    """Yield the address of each resource in the answer to a calendar query, its calendar, its problem."""
    for href, properties, problem in _resources(body):
        text = properties.findtext(names.CALENDAR_DATA) or ""
        yield href, text, problem or (None if text else "has no calendar data")


def _has_events(properties: Any) -> bool:
    """Whether a collection takes events; one that does not say takes everything."""
    kinds = properties.find(names.COMPONENTS)
    return kinds is None or any(kind.get("name", "").upper() == "VEVENT" for kind in kinds)


def _resources(body: bytes) -> Iterator[tuple[str, Any, str | None]]:
    """Yield the address of each resource, an element with the properties that it has, and its problem."""
    try:
        # Expat reads nothing from elsewhere; the limits of this process bound what entities expand to.
        root = ElementTree.fromstring(body)  # noqa: S314
    except (ElementTree.ParseError, ValueError) as error:
        raise UnreadableError(f"is not the XML of a CalDAV server: {error}") from None
    if root.tag != names.MULTISTATUS:
        raise UnreadableError("is not the XML of a CalDAV server")
    for response in root.iterfind(names.RESPONSE):
        href = (response.findtext(names.HREF) or "").strip()
        code = _code(response)
        if code == "404":
            # Deleted since the server began to answer.
            continue
        if code == _CUT_SHORT:
            raise UnreadableError(f"has the status {code} for {href[:200]}: it is incomplete")
        properties = ElementTree.Element("properties")
        for part in response.iterfind(names.PROPSTAT):
            # A property that the resource does not have has the status 404.
            if _code(part) == "200":
                for group in part.iterfind(names.PROP):
                    properties.extend(list(group))
        yield href, properties, None if code in ("", "200") else f"has the status {code}"


def _code(element: Any) -> str:
    status = (element.findtext(names.STATUS) or "").split()
    return str(status[1]) if len(status) > 1 else ""
