"""The agent at a glance, and the reload of its settings, over HTTP."""

from typing import Any

from tests.support.sample_workflows import ASKING
from tests.support.server import Running


def test_status_at_a_glance(running: Running) -> None:
    """It counts what has not ended, and names what waits for a person."""
    running.add_workflow(ASKING)
    with running.client() as client:
        document = client.get("/api/v1/status").json()
    assert document["tasks"] == {}
    assert document["questions"] == {"count": 0, "first": []}
    assert document["started_at"]
    assert document["spend"]["tokens"] == 0


def test_reload_needs_the_scope_admin(running: Running) -> None:
    """A token to operate tasks may not change what the agent does."""
    with running.client(running.token_with("operate")) as client:
        assert client.post("/api/v1/reload").status_code == 403


def test_reload_answers_what_was_done(running: Running) -> None:
    """Applied keys, keys that need a restart, or what is wrong with the file."""
    answers: list[dict[str, Any]] = [
        {"applied": ["engine.slots"], "needs_restart": [], "problems": [], "at": "now"},
        {"applied": [], "needs_restart": [], "problems": ["config.toml:2: bad"], "at": "now"},
    ]

    async def reload() -> dict[str, Any]:
        return answers.pop(0)

    context = running.server._context
    assert context is not None
    with running.client() as client:
        assert client.post("/api/v1/reload").status_code == 409
        context.reload = reload
        done = client.post("/api/v1/reload")
        refused = client.post("/api/v1/reload")
    context.reload = None
    assert done.json() == {"applied": ["engine.slots"], "needs_restart": [], "at": "now"}
    assert refused.status_code == 422
    assert "config.toml:2: bad" in refused.json()["detail"]
