"""What every page has: its headers, its ETag, its CSRF tokens, and a signed-out page without a session."""

import re

import httpx
import pytest

from agent.server.pages.page_set import PAGES
from tests.support.browser import sign_in
from tests.support.server import Running

# An action on many needs to know which.
_QUERIES = {"/tasks/bulk": "?do=cancel&all=1"}
PATHS = [
    page.path + _QUERIES.get(page.path, "")
    for registry in PAGES
    for page in registry.pages
    if "{" not in page.path
]


@pytest.mark.parametrize("path", PATHS)
def test_pages_have_a_strict_policy_and_are_never_kept_by_others(
    visitor: httpx.Client, path: str
) -> None:
    """No inline script or style, no frame; only the browser itself may keep a page, and must ask."""
    page = visitor.get(path)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy and "*" not in policy
    assert page.headers["cache-control"] == "private, no-cache"
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=)", page.text)


@pytest.mark.parametrize("path", PATHS)
def test_pages_that_have_not_changed_are_not_sent_again(visitor: httpx.Client, path: str) -> None:
    """The second request with the page's ETag is answered with 304."""
    tag = visitor.get(path).headers["etag"]
    second = visitor.get(path, headers={"If-None-Match": tag})
    assert (second.status_code, second.content) == (304, b"")


@pytest.mark.parametrize("path", PATHS)
def test_pages_need_a_session(running: Running, path: str) -> None:
    """Without one, and with a token only, there is a page that says how to sign in."""
    for token in ("", running.token):
        with running.client(token) as client:
            refused = client.get(path)
            assert refused.status_code == 401
            assert "agent open" in refused.text
            assert "<script" not in refused.text


def test_a_session_is_no_token(running: Running, visitor: httpx.Client) -> None:
    """A browser's cookie does not open the API, which other sites could then call."""
    assert visitor.get("/api/v1/tasks").status_code == 401


def test_a_person_at_a_wrong_address_sees_a_page(running: Running, visitor: httpx.Client) -> None:
    """A browser gets a page, with the way back or how to sign in; a program gets a problem document."""
    browser = {"Accept": "text/html,application/xhtml+xml"}
    for path in ("/tasks/a/b/c", "/nowhere"):
        missing = visitor.get(path, headers=browser)
        assert (missing.status_code, "Go to the inbox" in missing.text) == (404, True), path
    for path in ("/api/v1/tasks", "/metrics", "/mcp"):
        assert visitor.get(path, headers=browser).status_code == 401, "a session is no token"
    with running.client("") as stranger:
        assert "<h1>Signed out</h1>" in stranger.get("/nowhere", headers=browser).text
        assert stranger.get("/nowhere").json()["status"] == 401
        assert "<h1>" in stranger.get("/sign-in", headers=browser).text
        assert stranger.get("/sign-in").json()["status"] == 404


def test_browsers_find_an_icon_where_no_page_names_one(running: Running) -> None:
    """A browser that shows a JSON document asks for it: that is no failed login."""
    with running.client("") as stranger:
        icon = stranger.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.headers["cache-control"] == "public, max-age=86400"


def test_renderings_are_shared_and_csrf_tokens_are_not(running: Running) -> None:
    """Two sessions of one scope get the same page, each with its own token and key of its forms."""
    texts = []
    for name in ("one", "two"):
        with running.client("") as client:
            client.cookies.set(running.server.cookie, sign_in(running, name=name))
            texts.append(client.get("/").text)
    keys = [re.findall(r'name="form_key" value="([^"]+)"', text) for text in texts]
    assert keys[0] and keys[0] != keys[1]
    texts = [text.replace(key[0], "") for text, key in zip(texts, keys, strict=True)]
    tokens = [re.findall(r'name="csrf" value="(\w{64})"', text) for text in texts]
    assert tokens[0] and tokens[0] != tokens[1]
    assert texts[0].replace(tokens[0][0], "") == texts[1].replace(tokens[1][0], "")


def test_times_without_scripts_are_of_the_configured_zone(
    running: Running, visitor: httpx.Client
) -> None:
    """The page itself has local times with their offset, and the exact instant on hover."""
    context = running.server._context
    assert context is not None
    before = context.settings
    with running.client() as client:
        task_id = client.post("/api/v1/workflows/quick/tasks").json()["id"]
    for zone, offset in (("Asia/Kolkata", r"\+05:30"), ("America/St_Johns", "-0[23]:30")):
        own = before.agent.model_copy(update={"timezone": zone})
        context.settings = before.model_copy(update={"agent": own})
        shown = visitor.get("/tasks", params={"search": task_id, "trigger": "", "zone": zone}).text
        context.settings = before
        pattern = (
            r'<time datetime="\d{4}-\d\d-\d\dT[\d:.]+Z" title="[\d-]+ [\d:.]+ UTC">'
            rf"\d{{4}}-\d\d-\d\d \d\d:\d\d {offset}</time>"
        )
        assert re.search(pattern, shown), zone
