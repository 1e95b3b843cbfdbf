"""Memories over HTTP: `read` shows and searches them, `operate` adds and forgets."""

import httpx

from agent.server.schemas.memories import MemoryDocument, MemoryPage
from tests.support.server import Running

MEMORIES = "/api/v1/memories"


def test_memories_are_added_found_shown_and_forgotten(client: httpx.Client) -> None:
    """Documents validate; a forgotten memory is found no more and can still be shown."""
    made = client.post(MEMORIES, json={"scope": "life", "text": "Anna likes green tea 天気"})
    assert made.status_code == 201, made.text
    document = made.json()
    MemoryDocument.model_validate(document)
    assert document["written_by"] == "api:owner"
    assert made.headers["Location"] == f"{MEMORIES}/{document['id']}"
    for query in ("tea", "天", "gre ann"):
        found = client.get(MEMORIES, params={"q": query, "scope": "life"}).json()
        MemoryPage.model_validate(found)
        assert [each["id"] for each in found["memories"]] == [document["id"]], query
    assert client.get(MEMORIES, params={"q": "tea", "scope": "other"}).json()["memories"] == []
    address = f"{MEMORIES}/{document['id']}"
    assert client.get(address).json() == document
    assert client.post(f"{address}/forget").json()["forgotten_at"] is not None
    assert client.post(f"{address}/forget").status_code == 404
    assert client.get(MEMORIES, params={"q": "tea"}).json()["memories"] == []
    assert client.get(address).json()["forgotten_at"] is not None
    listed = client.get(MEMORIES, params={"scope": "life", "forgotten": "true"}).json()
    assert [each["id"] for each in listed["memories"]] == [document["id"]]
    assert client.get(f"{MEMORIES}/999999").status_code == 404


def test_a_list_has_pages(client: httpx.Client) -> None:
    """The newest first; `next` leads on, and new memories do not shift the pages."""
    for number in range(3):
        client.post(MEMORIES, json={"scope": "pages", "text": f"number {number}"})
    first = client.get(MEMORIES, params={"scope": "pages", "limit": 2}).json()
    assert [each["text"] for each in first["memories"]] == ["number 2", "number 1"]
    client.post(MEMORIES, json={"scope": "pages", "text": "number 3"})
    rest = client.get(
        MEMORIES, params={"scope": "pages", "limit": 2, "cursor": first["next"]}
    ).json()
    assert [each["text"] for each in rest["memories"]] == ["number 0"]
    assert rest["next"] is None


def test_a_repeated_request_adds_one_memory(client: httpx.Client) -> None:
    """Under one Idempotency-Key there is one memory; another text under it is refused."""
    body = {"scope": "keyed", "text": "once"}
    key = {"Idempotency-Key": "k-1"}
    ids = {client.post(MEMORIES, json=body, headers=key).json()["id"] for _ in range(2)}
    assert len(ids) == 1
    assert client.post(MEMORIES, json={**body, "text": "two"}, headers=key).status_code == 422
    assert len(client.get(MEMORIES, params={"scope": "keyed"}).json()["memories"]) == 1


def test_wrong_requests_say_what_is_wrong(client: httpx.Client) -> None:
    """Too long a text, an empty one, one that no database stores, an id that is no number."""
    for text in ("x" * 4001, ""):
        assert client.post(MEMORIES, json={"scope": "s", "text": text}).status_code == 422
    assert client.post(MEMORIES, json={"scope": "s", "text": "  "}).status_code == 409
    assert client.get(f"{MEMORIES}/abc").status_code == 422
    for query in ('"', "a AND", "*", "\\"):
        assert client.get(MEMORIES, params={"q": query}).status_code == 200, query


def test_scopes_of_tokens_hold(running: Running) -> None:
    """A token that may only read neither adds nor forgets."""
    with running.client(running.token_with("read")) as reader:
        assert reader.get(MEMORIES).status_code == 200
        assert reader.post(MEMORIES, json={"scope": "s", "text": "x"}).status_code == 403
        assert reader.post(f"{MEMORIES}/1/forget").status_code == 403
