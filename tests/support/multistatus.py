"""Answers of CalDAV servers, as they write them."""


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
