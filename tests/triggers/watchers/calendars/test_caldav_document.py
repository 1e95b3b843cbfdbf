import pytest

from agent.triggers.watchers.calendars.caldav_document import calendar_texts, parse
from agent.triggers.watchers.parser_child import UnreadableError
from tests.support.multistatus import multistatus, response


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
    assert list(calendar_texts(body)) == [("/1.ics", "BEGIN:VCALENDAR", None)]


FULL = "<D:response><D:href>/</D:href><D:status>HTTP/1.1 507 Full</D:status></D:response>"
REFUSED = FULL.replace("507", "403")


def test_an_answer_that_is_cut_short_is_refused() -> None:
    """A server that leaves events out must not make them look deleted."""
    one = response("/1.ics", "<C:calendar-data>BEGIN:VCALENDAR</C:calendar-data>")
    with pytest.raises(UnreadableError, match="has the status 507 for /: it is incomplete"):
        list(calendar_texts(multistatus(one, FULL)))


def test_a_collection_that_is_refused_hides_no_other() -> None:
    """An account may have collections that are not for everybody; one that has no other is refused."""
    other = response("/office/", "<D:displayname>Work</D:displayname>")
    assert [one["name"] for one in parse(multistatus(REFUSED, other), {})] == ["Work"]
    with pytest.raises(UnreadableError, match="has the status 403"):
        parse(multistatus(REFUSED), {})


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
