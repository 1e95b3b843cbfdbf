import pytest

from agent.triggers.watchers.calendars.caldav_document import calendar_texts, parse
from agent.triggers.watchers.parser_child import UnreadableError


def multistatus(*responses: str, head: str = "") -> bytes:
    """Return the answer of a server."""
    return (
        f'<?xml version="1.0" encoding="utf-8"?>{head}<D:multistatus xmlns:D="DAV:"'
        f' xmlns:C="urn:ietf:params:xml:ns:caldav">{"".join(responses)}</D:multistatus>'
    ).encode()


def response(href: str, properties: str, status: str = "HTTP/1.1 200 OK", more: str = "") -> str:
    """Return what a server says about one resource."""
    return (
        f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>{properties}</D:prop>"
        f"<D:status>{status}</D:status></D:propstat>{more}</D:response>"
    )


def test_resources() -> None:
    """A property with the status 404 is not there."""
    body = multistatus(
        response(
            "/office/",
            "<D:displayname> Wörk </D:displayname>"
            "<D:resourcetype><D:collection/><C:calendar/></D:resourcetype>"
            '<C:supported-calendar-component-set><C:comp name="VTODO"/>'
            "</C:supported-calendar-component-set>",
            more="<D:propstat><D:prop><C:calendar-home-set><D:href>/no/</D:href>"
            "</C:calendar-home-set></D:prop><D:status>HTTP/1.1 404 Not Found</D:status>"
            "</D:propstat>",
        ),
        response(
            "/",
            "<D:current-user-principal><D:href>/ann/</D:href></D:current-user-principal>"
            "<C:calendar-home-set><D:href>/ann/home/</D:href></C:calendar-home-set>",
        ),
    )
    assert parse(body, {}) == [
        {
            "href": "/office/",
            "name": "Wörk",
            "is_calendar": True,
            "has_events": False,
            "principal": None,
            "home": None,
        },
        {
            "href": "/",
            "name": "",
            "is_calendar": False,
            "has_events": True,
            "principal": "/ann/",
            "home": "/ann/home/",
        },
    ]


def test_calendars_of_a_query() -> None:
    """One that was deleted meanwhile is left out."""
    body = multistatus(
        response("/1.ics", "<C:calendar-data>BEGIN:VCALENDAR</C:calendar-data>"),
        "<D:response><D:href>/2.ics</D:href><D:status>HTTP/1.1 404 Not Found</D:status>"
        "</D:response>",
    )
    assert calendar_texts(body) == ["BEGIN:VCALENDAR"]


@pytest.mark.parametrize(
    ("part", "match"),
    [
        (
            "<D:response><D:href>/</D:href><D:status>HTTP/1.1 507 Insufficient Storage</D:status>"
            "</D:response>",
            "has the status 507",
        ),
        (
            response("/2.ics", "<C:calendar-data/>", "HTTP/1.1 500 Internal Server Error"),
            "has no calendar data for /2.ics",
        ),
    ],
)
def test_an_incomplete_answer_is_refused(part: str, match: str) -> None:
    """A server that leaves events out must not make them look deleted."""
    body = multistatus(
        response("/1.ics", "<C:calendar-data>BEGIN:VCALENDAR</C:calendar-data>"), part
    )
    with pytest.raises(UnreadableError, match=match):
        calendar_texts(body)


@pytest.mark.parametrize(
    "body", [b"", b"<html/>", b"not XML", multistatus(response("/", ""))[:-20]]
)
def test_another_document_is_refused(body: bytes) -> None:
    """Also one that was cut off."""
    with pytest.raises(UnreadableError, match="is not the XML of a CalDAV server"):
        parse(body, {})


def test_entities_are_not_read_from_files() -> None:
    """A document cannot name files of this machine."""
    head = '<!DOCTYPE x [<!ENTITY own SYSTEM "file:///etc/passwd">]>'
    body = multistatus(response("/", "<D:displayname>&own;</D:displayname>"), head=head)
    with pytest.raises(UnreadableError, match="undefined entity"):
        parse(body, {})
