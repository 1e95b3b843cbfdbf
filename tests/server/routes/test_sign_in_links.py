"""One-time links to the dashboard, made over the API."""

from typing import Any

import httpx

from agent.core.clock import SECOND, to_iso
from tests.support.server import Running


def _visit(running: Running, path: str) -> httpx.Response:
    """Press the button of a link; return the page that it leads to."""
    with running.client("") as visitor:
        begun = visitor.post(path)
        assert begun.status_code == 303, begun.text
        return visitor.get("/")


def test_a_link_begins_a_session_of_its_scopes(running: Running) -> None:
    """It opens the dashboard once, with no more than it was made for, and is a session as any other."""
    with running.client() as client:
        made = client.post("/api/v1/sign-in-links", json={"name": "tablet", "scopes": ["read"]})
        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        assert made.json()["url"] is None, "no public_url is set"
        assert _visit(running, made.json()["path"]).status_code == 200
        with running.client("") as visitor:
            assert visitor.post(made.json()["path"]).status_code == 404
    sessions = {each["name"]: each["scopes"] for each in running.server.sessions.listed()}
    assert sessions["tablet"] == ["read"]


def test_only_admin_may_make_one(running: Running) -> None:
    """Other scopes are refused, and so are scopes and names that do not exist."""
    for scope in ("read", "operate", "approve"):
        with running.client(running.token_with(scope)) as client:
            assert client.post("/api/v1/sign-in-links").status_code == 403
    with running.client() as client:
        refused: list[dict[str, Any]] = [{"scopes": ["root"]}, {"scopes": []}, {"name": "\n"}]
        for wrong in (*refused, {"seconds": 0}):
            assert client.post("/api/v1/sign-in-links", json=wrong).status_code == 422


def test_the_session_ends_with_the_token(running: Running) -> None:
    """A token that expires cannot make a session that lasts longer."""
    end = running.database.clock.now() + 3600 * SECOND
    token = running.server.tokens.create("brief", ["admin"], None, to_iso(end))
    with running.client(token) as client:
        made = client.post("/api/v1/sign-in-links", json={"name": "brief-page"}).json()
    _visit(running, made["path"])
    (session,) = (each for each in running.server.sessions.listed() if each["name"] == "brief-page")
    assert session["expires"] <= (to_iso(end) or "")
