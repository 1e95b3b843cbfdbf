"""Sign-in: one-time links, sessions, cookies, CSRF tokens and what each scope may do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent.approvals.permission import Principal
from agent.config.settings import ServerSettings, Settings
from agent.core.clock import SECOND
from agent.core.scopes import implied
from agent.server.access import failed_auth_limiter
from agent.server.access.grants import TokenError
from agent.server.access.one_time_links import address_of, chat_links
from agent.server.access.sessions import LINK_SECONDS, LinkError, Sessions
from agent.server.access.tokens import Tokens
from agent.store.db.database import Database
from tests.support.browser import sign_in
from tests.support.sample_workflows import GATED
from tests.support.server import Running, wait_for


@pytest.fixture(autouse=True)
def _patience_with_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", 100_000)


@pytest.fixture
def stranger(running: Running) -> Iterator[httpx.Client]:
    """Return a browser without a session."""
    with running.client("") as client:
        yield client


def _link(running: Running, *scopes: str) -> str:
    code, _ = running.server.sessions.create_link("browser", scopes or ("admin",))
    return f"/sign-in/{code}"


def _csrf(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="(\w{64})"', page.text)
    assert found is not None
    return found[1]


def test_a_link_signs_in_once(running: Running, stranger: httpx.Client) -> None:
    """Looking at a link uses nothing up; its button begins a session; then it is used up."""
    link = _link(running)
    for _ in range(3):
        page = stranger.get(link)
        assert page.status_code == 200
        assert '<form method="post">' in page.text
    begun = stranger.post(link)
    assert (begun.status_code, begun.headers["location"]) == (303, "/")
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    assert "Secure" not in cookie
    assert stranger.get("/").status_code == 200
    with running.client("") as second:
        assert second.post(link).status_code == 404
        assert "used already" in second.get(link).text


def test_a_link_that_was_opened_twice_does_not_sign_out(
    running: Running, stranger: httpx.Client
) -> None:
    """A browser with a session is led to the inbox."""
    link = _link(running)
    stranger.post(link)
    again = stranger.get(link)
    assert again.status_code == 404
    assert "You are signed in" in again.text
    assert "Signed out" not in again.text
    assert '<a class="button" href="/">' in again.text


def test_a_link_is_good_for_a_minute(tmp_path: Path) -> None:
    """After that it begins nothing, and its name is free again."""
    now = [1_000_000 * SECOND]
    sessions = Sessions(tmp_path, now=lambda: now[0])
    code, name = sessions.create_link("phone", ["read"])
    now[0] += LINK_SECONDS * SECOND
    with pytest.raises(LinkError, match="has expired"):
        sessions.begin(code)
    assert sessions.create_link("phone", ["read"])[1] == name == "phone"


def test_no_secret_is_stored(tmp_path: Path) -> None:
    """The file has hashes only, and only its owner can read it."""
    sessions = Sessions(tmp_path)
    code, _ = sessions.create_link("phone", ["read"])
    token = sessions.begin(code).token
    path = tmp_path / "sessions.json"
    assert code not in path.read_text() and token not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(path.read_text())[0]["kind"] == "session"


def test_names_are_unique_among_sessions_and_tokens(tmp_path: Path) -> None:
    """`agent token revoke NAME` means one credential."""
    Tokens(tmp_path).create("browser", ["read"], None)
    sessions = Sessions(tmp_path)
    names = [sessions.create_link("browser", ["read"])[1] for _ in range(2)]
    assert names == ["browser-2", "browser-3"]
    with pytest.raises(TokenError, match="no scope"):
        sessions.create_link("other", ["root"])


def test_a_session_ends_when_it_expires(tmp_path: Path) -> None:
    """An expired session is not listed, and its cookie opens nothing."""
    now = [1_000_000 * SECOND]
    sessions = Sessions(tmp_path, now=lambda: now[0])
    begun = sessions.begin(sessions.create_link("phone", ["read"], seconds=3600)[0])
    grant = sessions.grant_of(begun.token)
    assert grant is not None and sessions.still_holds(grant)
    assert (grant.principal.channel, grant.principal.identity) == ("page", "phone")
    now[0] += 3600 * SECOND
    assert not sessions.still_holds(grant)
    assert sessions.listed() == []


def test_a_revoked_session_is_signed_out(running: Running, stranger: httpx.Client) -> None:
    """The next page says how to sign in, and loads no script."""
    stranger.cookies.set(running.server.cookie, sign_in(running, name="lost-phone"))
    assert stranger.get("/").status_code == 200
    running.server.sessions.revoke("lost-phone")
    page = wait_for(lambda: found if (found := stranger.get("/")).status_code == 401 else None)
    assert "agent open" in page.text and "<script" not in page.text


def test_sign_out_ends_the_session(running: Running, stranger: httpx.Client) -> None:
    """The session is gone from the list, and its cookie is removed."""
    stranger.cookies.set(running.server.cookie, sign_in(running, name="leaving"))
    csrf = _csrf(stranger.get("/"))
    out = stranger.post("/sign-out", data={"csrf": csrf})
    assert out.status_code == 303
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert "leaving" not in {each["name"] for each in running.server.sessions.listed()}


def test_every_action_needs_the_sessions_own_csrf_token(
    running: Running, visitor: httpx.Client, stranger: httpx.Client
) -> None:
    """Without it, or with another session's, nothing is done."""
    stranger.cookies.set(running.server.cookie, sign_in(running, name="other"))
    for fields in (
        {"other": "field"},
        {"csrf": ""},
        {"csrf": "0" * 64},
        {"csrf": _csrf(visitor.get("/"))},
    ):
        refused = stranger.post("/sign-out", data=fields)
        assert refused.status_code == 403, fields
    assert stranger.get("/").status_code == 200


def test_forms_of_other_sites_are_refused(visitor: httpx.Client) -> None:
    """The rules for hosts and origins hold for pages too, and only forms are taken."""
    csrf = _csrf(visitor.get("/"))
    elsewhere = {"Origin": "https://elsewhere.example"}
    assert visitor.post("/sign-out", data={"csrf": csrf}, headers=elsewhere).status_code == 403
    assert visitor.get("/", headers={"Host": "elsewhere.example"}).status_code == 400
    assert visitor.post("/sign-out", json={"csrf": csrf}).status_code == 415
    assert visitor.get("/").status_code == 200


def test_a_visit_from_another_site_reloads_once(running: Running, stranger: httpx.Client) -> None:
    """Browsers hold back the cookie of such a visit: the page asks again by itself."""
    page = stranger.get("/tasks", headers={"Sec-Fetch-Site": "cross-site"})
    assert page.status_code == 200
    assert 'http-equiv="refresh"' in page.text
    signed_out = stranger.get("/tasks", headers={"Sec-Fetch-Site": "same-origin"})
    assert signed_out.status_code == 401
    assert 'http-equiv="refresh"' not in signed_out.text


def test_scopes_decide_what_is_offered(running: Running) -> None:
    """A session that may only read sees no button that would be refused, and is refused if it tries."""
    running.add_workflow(GATED)
    with running.client() as client:
        client.post("/api/v1/workflows/gated/tasks")
        asked = wait_for(lambda: client.get("/api/v1/approvals").json()["approvals"])[0]
    address = f"/questions/{asked['id']}/answer"
    with running.client("") as reader:
        reader.cookies.set(running.server.cookie, sign_in(running, "read", name="reader"))
        page = reader.get("/")
        assert "This session may read, but not answer" in page.text
        assert "/answer" not in page.text
        assert 'name="task"' not in reader.get("/tasks").text
        refused = reader.post(address, data={"csrf": _csrf(page), "decision": "approve"})
        assert refused.status_code == 403
        assert "the scope" in refused.text
        assert reader.get("/tasks/bulk?do=cancel&task=x").status_code == 403
    with running.client("") as person:
        person.cookies.set(running.server.cookie, sign_in(running, "approve", name="person"))
        form = {"csrf": _csrf(person.get("/")), "decision": "approve"}
        assert person.post(address, data=form).status_code == 303
    with running.client() as client:
        decision = client.get(f"/api/v1/approvals/{asked['id']}").json()["decision"]
        assert (decision["channel"], decision["by"]) == ("page", "person")


def test_cookies_are_secure_behind_tls(sqlite_database: Database, tmp_path: Path) -> None:
    """At the public address the cookie is `Secure` and bound to its host, which is then allowed."""
    public = {"Host": "agent.example.com", "Origin": "https://agent.example.com"}
    with (
        Running(sqlite_database, tmp_path, public_url="https://agent.example.com") as running,
        running.client("") as client,
    ):
        begun = client.post(_link(running), headers=public)
        assert begun.status_code == 303
        cookie = begun.headers["set-cookie"]
        assert cookie.startswith(f"__Host-{running.server.cookie}=") and "Secure" in cookie
        pair = cookie.partition(";")[0]
        assert client.get("/", headers={**public, "Cookie": pair}).status_code == 200


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ({}, "http://127.0.0.1:8420"),
        ({"host": "0.0.0.0", "allow_remote": True, "port": 80}, "http://127.0.0.1:80"),
        ({"public_url": "https://agent.example.com"}, "https://agent.example.com"),
    ],
)
def test_links_name_an_address_that_browsers_reach(
    tmp_path: Path, server: dict[str, object], address: str
) -> None:
    """The public one, else one of this machine."""
    settings = Settings(base=tmp_path, server=ServerSettings.model_validate(server))
    assert address_of(settings) == address
    for unknown in ({"port": 0}, {"enabled": False}):
        with pytest.raises(TokenError):
            address_of(Settings(base=tmp_path, server=ServerSettings.model_validate(unknown)))


def test_a_chat_gets_a_link_with_the_persons_scopes(tmp_path: Path) -> None:
    """`/open` never gives more than the person in the chat may do."""
    settings = Settings(base=tmp_path)
    text = chat_links(settings)(Principal("telegram", "7", implied(["approve"]), is_paired=True))
    code = text.split()[0].rpartition("/")[2]
    begun = Sessions(settings.home).begin(code)
    assert begun.scopes == {"read", "approve"}
    assert begun.name == "telegram"
    assert "public_url" in text
