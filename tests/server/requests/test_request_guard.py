"""Access: every route with its scope, tokens, hosts, origins and failed logins."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from agent.core.clock import SECOND, to_iso
from agent.core.logs.log_limit import LogLimit
from agent.core.scopes import SCOPES
from agent.server.access import failed_auth_limiter
from agent.server.application import ROUTES
from agent.server.requests import route_registry
from agent.server.requests.route_registry import Endpoint
from agent.store.db.database import Database
from tests.support.server import Running, wait_for

ENDPOINTS = [endpoint for registry in ROUTES for endpoint in registry.endpoints]
GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.scope != "public"]


def _named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def _ask(client: httpx.Client, endpoint: Endpoint, **headers: str) -> httpx.Response:
    """Send a request whose body is not JSON, which shows if the body is read before the checks."""
    path = re.sub(r"\{\w+\}", "nothing", endpoint.path)
    return client.request(
        endpoint.method,
        path,
        content=b"{" if endpoint.method == "POST" else None,
        headers={"Content-Type": "application/json", **headers},
    )


@pytest.fixture
def _patience_with_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", 100_000)


@pytest.fixture
def stranger(running: Running, _patience_with_failures: None) -> Iterator[httpx.Client]:
    """Return a client without a token."""
    with running.client("") as client:
        yield client


def test_only_health_and_signed_routes_are_public() -> None:
    """No other route works without a token; a new public route fails here first."""
    public = {_named(endpoint) for endpoint in ENDPOINTS if endpoint.scope == "public"}
    assert public == {
        "GET /healthz",
        "GET /readyz",
        "POST /hooks/{name}",
        "GET /links/{token}",
        "POST /links/{token}",
        "POST /answers",
    }
    assert "GET /api/v1/events/stream" in {_named(endpoint) for endpoint in GUARDED}


@pytest.mark.parametrize("endpoint", GUARDED, ids=_named)
def test_every_route_refuses_without_a_token(stranger: httpx.Client, endpoint: Endpoint) -> None:
    """No token, a wrong one, one by another scheme or in the address: 401, before the body is read."""
    assert _ask(stranger, endpoint).status_code == 401
    for authorization in ("Bearer wrong", "Bearer", "Basic d3Jvbmc6", "nonsense"):
        refused = _ask(stranger, endpoint, Authorization=authorization)
        assert refused.status_code == 401, authorization
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("endpoint", GUARDED, ids=_named)
def test_every_route_refuses_a_token_without_its_scope(
    running: Running, endpoint: Endpoint
) -> None:
    """A token without the scope that a route needs gets 403, before the body is read."""
    implications = {"admin": {*SCOPES, "work"}, "work:jobs": {"work"}}
    for scope in (*SCOPES, "work:jobs"):
        with running.client(running.token_with(scope)) as client:
            implied = implications.get(scope, {scope, "read"})
            if endpoint.scope in implied:
                continue
            refused = _ask(client, endpoint)
            assert refused.status_code == 403
            assert refused.json()["needs"] == endpoint.scope


@pytest.mark.parametrize("path", ["/", "/api/v1/nothing", "/docs", "/openapi.json", "/HEALTHZ"])
def test_missing_addresses_need_a_token_too(stranger: httpx.Client, path: str) -> None:
    """Without a token, existing and missing addresses look the same."""
    assert stranger.get(path).status_code == 401


def test_no_token_in_an_address(running: Running, stranger: httpx.Client) -> None:
    """A token is accepted only in its header: addresses end up in logs."""
    for name in ("token", "access_token", "authorization"):
        assert stranger.get("/api/v1/tasks", params={name: running.token}).status_code == 401


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:99", True),
        ("127.0.0.1:1", True),
        ("[::1]:8420", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("evil.example@localhost", False),
        ("localhost/evil", False),
        ("localhost.", False),
        ("", False),
        ("[", False),
    ],
)
def test_only_known_hosts(client: httpx.Client, host: str, *, is_allowed: bool) -> None:
    """A DNS name rebound to this machine does not reach the API, with or without a token."""
    response = client.get("/api/v1/tasks", headers={"Host": host})
    assert response.status_code == (200 if is_allowed else 400)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "file://", "http://[", ""]
)
def test_no_foreign_origin(client: httpx.Client, origin: str) -> None:
    """A web page of another origin is refused, also a local one; no response has CORS headers."""
    response = client.get("/api/v1/tasks", headers={"Origin": origin})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_two_host_headers_are_refused(running: Running) -> None:
    """With two Host headers it is unclear which one a proxy used."""
    headers = f"Authorization: Bearer {running.token}\r\nHost: localhost\r\nHost: evil.example"
    with running.connected() as client:
        client.sendall(f"GET /api/v1/tasks HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 400"


def test_own_and_listed_origins(running: Running, client: httpx.Client) -> None:
    """The server's own origin may call it."""
    response = client.get("/api/v1/tasks", headers={"Origin": running.server.url})
    assert response.status_code == 200


def test_failed_logins_are_limited(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many wrong tokens get 429 with `Retry-After`; the right one still works."""
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", 3)
    # No test is so slow that the first failure is forgotten before the last.
    monkeypatch.setattr(failed_auth_limiter, "WINDOW_SECONDS", 3600.0)
    with Running(sqlite_database, tmp_path) as running:
        with running.client("wrong") as guessing:
            answers = [guessing.get("/api/v1/tasks") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 3600
        with running.client() as client:
            assert client.get("/api/v1/tasks").status_code == 200


def test_failed_logins_expire() -> None:
    """After the window the count starts again; other addresses are not affected."""
    now = 0.0
    counted = failed_auth_limiter.FailedAuthLimiter(lambda: now)
    for _ in range(failed_auth_limiter.MAX_FAILURES):
        assert counted.add("a") == 0
    assert counted.add("a") > 0
    assert counted.add("b") == 0
    now = failed_auth_limiter.WINDOW_SECONDS + 1
    assert counted.add("a") == 0


def test_a_damaged_list_of_tokens_does_not_lock_the_owner_out(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """The owner's token still works; listed tokens get 401."""
    with Running(sqlite_database, tmp_path) as running, running.client() as owner:
        with running.client(running.token_with("read")) as reader:
            assert reader.get("/api/v1/tasks").status_code == 200
            (running.home / "tokens.json").write_text("[")
            wait_for(lambda: reader.get("/api/v1/tasks").status_code == 401)
        assert owner.get("/api/v1/tasks").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/api/v1/tasks"])
def test_head_is_get_without_a_body(client: httpx.Client, path: str) -> None:
    """HEAD returns the status and headers of GET."""
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")
    assert client.head("/api/v1/nothing").status_code == 404


@pytest.mark.usefixtures("_patience_with_failures")
def test_a_revoked_token_is_soon_refused(running: Running) -> None:
    """Creating a token takes effect at once, revoking it within a second, without a restart."""
    with running.client(running.token_with("read")) as client:
        assert client.get("/api/v1/tasks").status_code == 200
        running.server.tokens.revoke("read")
        wait_for(lambda: client.get("/api/v1/tasks").status_code == 401)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Origin", ("http://localhost", "http://evil.example")),
        ("Authorization", ("Bearer {token}", "Bearer wrong")),
        ("Content-Type", ("application/json", "text/plain")),
        ("Idempotency-Key", ("a", "b")),
    ],
)
def test_repeated_security_headers_are_refused(
    running: Running, name: str, values: tuple[str, str]
) -> None:
    """A request that repeats such a header is refused."""
    headers = [("Host", "localhost"), ("Authorization", f"Bearer {running.token}")]
    headers = [header for header in headers if header[0] != name]
    headers += [(name, value.format(token=running.token)) for value in values]
    head = "".join(f"{key}: {value}\r\n" for key, value in headers)
    with running.connected() as client:
        client.sendall(f"GET /api/v1/tasks HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert f"{name.lower()} occurs twice".encode() in answer


def test_an_expired_token_is_refused(
    running: Running, monkeypatch: pytest.MonkeyPatch, _patience_with_failures: None
) -> None:
    """A token is valid until it expires; then it gets 401, and its open stream ends."""
    tokens = running.server.tokens
    now = tokens._now()
    text = tokens.create("brief", ["read"], None, to_iso(now + 3600 * SECOND))
    with running.client(text) as client:
        assert client.get("/api/v1/tasks").status_code == 200
        with client.stream("GET", "/api/v1/events/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": events follow"
            monkeypatch.setattr(tokens, "_now", lambda: now + 3601 * SECOND)
            assert [line for line in lines if line.startswith("data")] == []
        refused = client.get("/api/v1/tasks")
        assert refused.status_code == 401
        assert refused.json()["type"] == "urn:agent:problem:expired"
        assert "brief" in refused.json()["detail"]
    tokens.revoke("brief")


def test_refusals_are_logged_at_a_limited_rate(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed logins and refused scopes are logged, without the token and at a limited rate."""
    monkeypatch.setattr(route_registry, "_refusals", LogLimit(most=10, window_seconds=60.0))
    with (
        Running(sqlite_database, tmp_path) as running,
        running.client(reader := running.token_with("read")) as client,
        running.client("") as stranger,
        capture_logs() as lines,
    ):
        for _ in range(30):
            stranger.get("/api/v1/tasks", headers={"Authorization": "Bearer not-a-token"})
            assert client.post("/api/v1/tasks/none/pause").status_code == 403
    for event in ("api.login_refused", "api.scope_refused"):
        entries = [line for line in lines if line["event"] == event]
        assert 1 <= len(entries) <= 10
        assert entries[0]["address"] == "127.0.0.1"
    assert "not-a-token" not in str(lines)
    assert reader not in str(lines)


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": {"word": ' + b"1" * 5000 + b"}}",
        b"[" * 100_000,
        b'{"input": {"word": "\xff"}}',
    ],
)
def test_json_that_python_cannot_read_is_refused(client: httpx.Client, body: bytes) -> None:
    """A number of thousands of digits, deep nesting and bad UTF-8 are client errors."""
    headers = {"Content-Type": "application/json"}
    refused = client.post("/api/v1/workflows/quick/tasks", content=body, headers=headers)
    assert refused.status_code == 400
    refused = client.post("/api/v1/workflows", content=body, headers=headers)
    assert refused.status_code == 422


def test_numbers_in_addresses_are_limited(client: httpx.Client) -> None:
    """An item number of thousands of digits is 404, not a defect."""
    task_id = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
    name = "ask[" + "1" * 5000 + "]"
    for answer in (
        client.post(f"/api/v1/tasks/{task_id}/steps/{name}/resolve", json={"verdict": "done"}),
        client.get(f"/api/v1/tasks/{task_id}/steps/{name}/logs"),
        client.get("/api/v1/events", params={"after": "1" * 5000 + "-1"}),
    ):
        assert answer.status_code in (200, 404, 422), answer.text


def test_readiness_queries_the_database_once_a_second(running: Running) -> None:
    """Frequent calls without a token cause one query a second."""
    queries = 0
    read_pool = running.server._context.read_pool  # type: ignore[union-attr]
    read = read_pool.read

    async def count(function: Callable[..., object]) -> object:
        nonlocal queries
        queries += 1
        return await read(function)

    read_pool.read = count  # type: ignore[method-assign]
    try:
        began = time.monotonic()
        with running.client("") as stranger:
            for _ in range(100):
                assert stranger.get("/readyz").status_code == 200
        assert queries <= time.monotonic() - began + 1
    finally:
        read_pool.read = read  # type: ignore[method-assign]
