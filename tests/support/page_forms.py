"""Forms of pages, sent as a browser without scripts sends them."""

import re

import httpx


def csrf_in(visitor: httpx.Client, path: str) -> str:
    """Return the CSRF token of a page's forms."""
    found = re.search(r'name="csrf" value="(\w{64})"', visitor.get(path).text)
    assert found is not None
    return found[1]


def send(visitor: httpx.Client, action: str, **fields: str) -> httpx.Response:
    """Send a form and follow the redirect to the page that shows what was done."""
    token = csrf_in(visitor, "/workflows")
    return visitor.post(action, data={"csrf": token, **fields}, follow_redirects=True)
