"""The names of WebDAV and CalDAV elements, as XML libraries write them.

The requests and answers of CalDAV need few of them. The package `caldav` knows them all, but its HTTP
client replaces `urllib3` for the whole environment, and it knows no address policy.
"""

from typing import Final

DAV: Final = "DAV:"
CALDAV: Final = "urn:ietf:params:xml:ns:caldav"


def dav(name: str) -> str:
    """Return the name of a WebDAV element."""
    return f"{{{DAV}}}{name}"


def caldav(name: str) -> str:
    """Return the name of a CalDAV element."""
    return f"{{{CALDAV}}}{name}"


PROP: Final = dav("prop")
HREF: Final = dav("href")
STATUS: Final = dav("status")
MULTISTATUS: Final = dav("multistatus")
RESPONSE: Final = dav("response")
PROPSTAT: Final = dav("propstat")
RESOURCE_TYPE: Final = dav("resourcetype")
DISPLAY_NAME: Final = dav("displayname")
PRINCIPAL: Final = dav("current-user-principal")
CALENDAR: Final = caldav("calendar")
CALENDAR_DATA: Final = caldav("calendar-data")
HOME_SET: Final = caldav("calendar-home-set")
COMPONENTS: Final = caldav("supported-calendar-component-set")
