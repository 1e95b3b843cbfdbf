"""Reads the answers of CalDAV servers: multistatus documents. Runs in the process of `parser_child`."""

from importlib import import_module
from typing import Any

from agent.triggers.watchers.parser_child import UnreadableError, clean


def parse(body: bytes, _options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each resource of the answer to a PROPFIND: what it is and where it leads."""
    from caldav.elements import cdav, dav

    return [
        {
            "href": href,
            "name": clean(properties.findtext(dav.DisplayName.tag) or "").strip(),
            "is_calendar": properties.find(f"{dav.ResourceType.tag}/{cdav.Calendar.tag}")
            is not None,
            "has_events": _has_events(properties),
            "principal": properties.findtext(f"{dav.CurrentUserPrincipal.tag}/{dav.Href.tag}"),
            "home": properties.findtext(f"{cdav.CalendarHomeSet.tag}/{dav.Href.tag}"),
        }
        for href, properties in _resources(body)
    ]


def calendar_texts(body: bytes) -> list[str]:
    """Return the calendar of each resource in the answer to a calendar query."""
    from caldav.elements import cdav

    texts: list[str] = []
    for href, properties in _resources(body):
        text = properties.findtext(cdav.CalendarData.tag)
        if not text:
            # As if the event were not there: a poll is complete or it fails.
            raise UnreadableError(f"has no calendar data for {href[:200]}")
        texts.append(text)
    return texts


def _has_events(properties: Any) -> bool:
    """Whether a collection takes events; one that does not say takes everything."""
    from caldav.elements import cdav

    kinds = properties.find(cdav.SupportedCalendarComponentSet.tag)
    return kinds is None or any(kind.get("name", "").upper() == "VEVENT" for kind in kinds)


def _resources(body: bytes) -> list[tuple[str, Any]]:
    """Return the address of each resource, and an element with the properties that it has."""
    from caldav.elements import dav

    etree: Any = import_module("lxml.etree")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(body, parser)
    except etree.XMLSyntaxError as problem:
        raise UnreadableError(f"is not the XML of a CalDAV server: {problem}") from None
    if root.tag != dav.MultiStatus.tag:
        raise UnreadableError("is not the XML of a CalDAV server")
    found: list[tuple[str, Any]] = []
    for response in root.iterfind(dav.Response.tag):
        href = (response.findtext(dav.Href.tag) or "").strip()
        code = _code(response)
        if code == "404":
            # Deleted since the server began to answer.
            continue
        if code not in ("", "200"):
            raise UnreadableError(f"has the status {code} for {href[:200]}")
        properties = etree.Element("properties")
        for part in response.iterfind(dav.PropStat.tag):
            # A property that the resource does not have has the status 404.
            if _code(part) == "200":
                for group in part.iterfind(dav.Prop.tag):
                    properties.extend(list(group))
        found.append((href, properties))
    return found


def _code(element: Any) -> str:
    from caldav.elements import dav

    status = (element.findtext(dav.Status.tag) or "").split()
    return str(status[1]) if len(status) > 1 else ""
