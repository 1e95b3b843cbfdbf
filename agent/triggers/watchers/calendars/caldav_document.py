"""Reads the answers of CalDAV servers: multistatus documents. Runs in the process of `parser_child`."""

from typing import Any
from xml.etree import ElementTree

from agent.triggers.watchers.calendars import caldav_names as names
from agent.triggers.watchers.parser_child import UnreadableError, clean


def parse(body: bytes, _options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each resource of the answer to a PROPFIND: what it is and where it leads."""
    return [
        {
            "href": href,
            "name": clean(properties.findtext(names.DISPLAY_NAME) or "").strip(),
            "is_calendar": properties.find(f"{names.RESOURCE_TYPE}/{names.CALENDAR}") is not None,
            "has_events": _has_events(properties),
            "principal": properties.findtext(f"{names.PRINCIPAL}/{names.HREF}"),
            "home": properties.findtext(f"{names.HOME_SET}/{names.HREF}"),
        }
        for href, properties in _resources(body)
    ]


def calendar_texts(body: bytes) -> list[str]:
    """Return the calendar of each resource in the answer to a calendar query."""
    texts: list[str] = []
    for href, properties in _resources(body):
        text = properties.findtext(names.CALENDAR_DATA)
        if not text:
            # As if the event were not there: a poll is complete or it fails.
            raise UnreadableError(f"has no calendar data for {href[:200]}")
        texts.append(text)
    return texts


def _has_events(properties: Any) -> bool:
    """Whether a collection takes events; one that does not say takes everything."""
    kinds = properties.find(names.COMPONENTS)
    return kinds is None or any(kind.get("name", "").upper() == "VEVENT" for kind in kinds)


def _resources(body: bytes) -> list[tuple[str, Any]]:
    """Return the address of each resource, and an element with the properties that it has."""
    try:
        # Expat reads nothing from elsewhere; the limits of this process bound what entities expand to.
        root = ElementTree.fromstring(body)  # noqa: S314
    except (ElementTree.ParseError, ValueError) as error:
        raise UnreadableError(f"is not the XML of a CalDAV server: {error}") from None
    if root.tag != names.MULTISTATUS:
        raise UnreadableError("is not the XML of a CalDAV server")
    resources: list[tuple[str, Any]] = []
    for response in root.iterfind(names.RESPONSE):
        href = (response.findtext(names.HREF) or "").strip()
        code = _code(response)
        if code == "404":
            # Deleted since the server began to answer.
            continue
        if code not in ("", "200"):
            raise UnreadableError(f"has the status {code} for {href[:200]}")
        properties = ElementTree.Element("properties")
        for part in response.iterfind(names.PROPSTAT):
            # A property that the resource does not have has the status 404.
            if _code(part) == "200":
                for group in part.iterfind(names.PROP):
                    properties.extend(list(group))
        resources.append((href, properties))
    return resources


def _code(element: Any) -> str:
    status = (element.findtext(names.STATUS) or "").split()
    return str(status[1]) if len(status) > 1 else ""
