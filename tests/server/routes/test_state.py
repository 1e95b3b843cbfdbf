"""State over HTTP: `read` shows values, `operate` changes them."""

import httpx
import pytest

from agent.server.schemas.state import StateAnswer, StateHistory, StateList
from agent.tasks.read_models import state_documents
from tests.support.server import Running

ADDRESS = "/api/v1/state/shared/rate"


def test_a_value_is_set_shown_and_deleted(running: Running, client: httpx.Client) -> None:
    """The documents equal those of the command line; versions count on after a deletion."""
    assert client.get(ADDRESS).status_code == 404
    set_first = client.post(ADDRESS, json={"value": {"eur": 1.1}})
    StateAnswer.model_validate(set_first.json())
    assert (set_first.status_code, set_first.json()["version"]) == (200, 1)
    assert client.post(ADDRESS, json={"value": None, "if_version": 1}).json()["version"] == 2
    conflict = client.post(ADDRESS, json={"value": 5, "if_version": 1})
    assert (conflict.status_code, "is at version 2" in conflict.text) == (409, True)
    listed = client.get("/api/v1/state", params={"shared": True, "name": "rate"}).json()
    StateList.model_validate(listed)
    assert [(value["name"], value["value"]) for value in listed["state"]] == [("rate", None)]
    assert client.post(f"{ADDRESS}/delete").json()["version"] == 3
    assert client.post(f"{ADDRESS}/delete").status_code == 404
    document = client.get(ADDRESS).json()
    StateHistory.model_validate(document)
    assert document["deleted"]
    assert [version["version"] for version in document["history"]] == [3, 2, 1]
    with running.database.connect("reader") as connection:
        assert document == state_documents.value_document(connection, ("shared", "rate"))
    assert client.get("/api/v1/state", params={"name": "rate"}).json()["state"] == []


def test_a_list_comes_in_pages(client: httpx.Client) -> None:
    """Pages follow each other by scope and name, and miss nothing."""
    for number in range(5):
        client.post(f"/api/v1/state/shared/paged_{number}", json={"value": number})
    found: list[str] = []
    cursor = None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/v1/state", params=params).json()
        found += [value["name"] for value in page["state"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert [name for name in found if name.startswith("paged_")] == [f"paged_{n}" for n in range(5)]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("shared/Bad", {"value": 1}, 422),
        ("elsewhere/rate", {"value": 1}, 422),
        ("shared/get", {"value": 1}, 409),
        ("workflow:nowhere/rate", {"value": 1}, 404),
        ("shared/rate", {}, 422),
        ("shared/rate", {"value": 1, "if_version": -1}, 422),
        ("shared/rate", {"value": "x" * 70_000}, 409),
    ],
)
def test_invalid_values_are_refused(
    client: httpx.Client, path: str, body: dict[str, object], code: int
) -> None:
    """An invalid value is refused."""
    assert client.post(f"/api/v1/state/{path}", json=body).status_code == code


def test_reading_needs_read_and_changing_needs_operate(running: Running) -> None:
    """A token without the scope is refused."""
    with running.client(running.token_with("read")) as reader:
        assert reader.get("/api/v1/state").status_code == 200
        assert reader.post(ADDRESS, json={"value": 1}).status_code == 403
        assert reader.post(f"{ADDRESS}/delete").status_code == 403
