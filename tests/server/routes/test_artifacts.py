"""Large values over HTTP, by their hash or the beginning of it."""

import httpx

from agent.store.artifacts import artifact_rows
from tests.support.server import Running


def test_a_large_value(running: Running, client: httpx.Client) -> None:
    """The stored value is returned; an unknown or malformed hash is refused."""
    content = b'"' + b"long " * 1000 + b'"'
    with running.database.connect("writer") as connection, connection.transaction():
        name = artifact_rows.put(connection, content, 1)
    for part in (name, name[:8]):
        response = client.get(f"/api/v1/artifacts/{part}")
        assert (response.status_code, response.content) == (200, content)
        assert response.headers["content-type"] == "application/json"
    assert client.get(f"/api/v1/artifacts/{'0' * 64}").status_code == 404
    for wrong in ("12345", "x" * 8, name.upper()):
        assert client.get(f"/api/v1/artifacts/{wrong}").status_code == 422


def test_an_ambiguous_hash(running: Running, client: httpx.Client) -> None:
    """An ambiguous beginning of a hash is refused."""
    with running.database.connect("writer") as connection, connection.transaction():
        for tail in ("a", "b"):
            connection.execute(
                "INSERT INTO artifacts (hash, size, encoding, data, created_at, touched_at)"
                " VALUES (:hash, 1, 'identity', :data, 1, 1)",
                hash="abcdef" + tail * 58,
                data=b"1",
            )
    refused = client.get("/api/v1/artifacts/abcdef")
    assert refused.status_code == 409
    assert "could be any of" in refused.json()["detail"]
