"""Conversations over HTTP: listed, shown page by page, deleted."""

import httpx

from agent.server.schemas.conversations import ConversationDocument, ConversationList
from tests.support.conversations import said_before
from tests.support.server import Running


def test_conversations_are_listed_shown_and_deleted(running: Running, client: httpx.Client) -> None:
    """`read` shows them, page by page; deleting needs `operate` and leaves nothing to show."""
    said_before(running.database, "slack:D1:1.2", ("hello", "yes"), ("more", "here"))
    listed = client.get("/api/v1/conversations").json()
    ConversationList.model_validate(listed)
    (found,) = listed["conversations"]
    assert (found["id"], found["entries"], found["summaries"]) == ("slack:D1:1.2", 4, 0)
    address = "/api/v1/conversations/slack%3AD1%3A1.2"
    first = client.get(address, params={"limit": 3}).json()
    ConversationDocument.model_validate(first)
    assert [entry["text"] for entry in first["entries"]] == ["hello", "yes", "more"]
    rest = client.get(address, params={"after": first["next"]}).json()
    assert [entry["number"] for entry in rest["entries"]] == [4] and rest["next"] is None
    with running.client(running.token_with("read")) as reader:
        assert reader.post(f"{address}/forget").status_code == 403
    assert client.post(f"{address}/forget").json() == {"id": "slack:D1:1.2", "deleted": 4}
    assert client.get(address).status_code == 404
    assert client.post(f"{address}/forget").status_code == 404
    assert client.get("/api/v1/conversations").json() == {"conversations": []}
