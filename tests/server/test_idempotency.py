"""`Idempotency-Key`: repeated and racing requests create one task."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.core.ids import content_hash, request_hash
from agent.store import idempotency_keys
from agent.store.db.database import Database
from agent.store.idempotency_keys import KeyedRequest
from tests.support.sample_workflows import QUICK, SIGNALLED
from tests.support.server import Running


def _post(client: httpx.Client, key: str, body: Any, workflow: str = "quick") -> httpx.Response:
    return client.post(
        f"/api/v1/workflows/{workflow}/tasks", json=body, headers={"Idempotency-Key": key}
    )


def test_racing_requests_create_one_task(database: Database, tmp_path: Path) -> None:
    """Many requests under few keys: one task per key, the same response for all, on both databases."""
    with Running(database, tmp_path) as running, running.client() as client:
        running.add_workflow(QUICK)
        keys = [f"key-{number % 5}" for number in range(60)]
        with ThreadPoolExecutor(12) as threads:
            answers = list(
                threads.map(lambda key: _post(client, key, {"input": {"word": key}}), keys)
            )
        assert {answer.status_code for answer in answers} == {201}
        by_key: dict[str, set[str]] = {}
        for key, answer in zip(keys, answers, strict=True):
            by_key.setdefault(key, set()).add(answer.text)
        assert [len(texts) for texts in by_key.values()] == [1] * 5
        listed = client.get("/api/v1/tasks", params={"limit": 500}).json()["tasks"]
        assert len(listed) == 5


def test_another_request_under_a_key_is_refused(client: httpx.Client) -> None:
    """A known key with another body or address is 422 and creates nothing."""
    first = _post(client, "once", {"input": {"word": "a"}})
    assert _post(client, "once", {"input": {"word": "a"}}).text == first.text
    for other in (
        _post(client, "once", {"input": {"word": "b"}}),
        _post(client, "once", {"input": {"word": "a"}, "priority": "high"}),
        _post(client, "once", {"input": {"word": "a"}}, "filed"),
    ):
        assert other.status_code == 422
        assert other.json()["type"] == "urn:agent:problem:key-reused"


def test_keys_are_separate_per_token(running: Running, client: httpx.Client) -> None:
    """Two tokens can use the same key for different tasks."""
    mine = _post(client, "shared", {})
    with running.client(running.token_with("operate")) as other:
        theirs = _post(other, "shared", {"input": {"word": "theirs"}})
    assert theirs.status_code == 201
    assert theirs.json()["id"] != mine.json()["id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\u00e9"])
def test_invalid_keys_are_refused(client: httpx.Client, key: str) -> None:
    """A key is visible ASCII of limited length."""
    refused = client.post(
        "/api/v1/workflows/quick/tasks", headers={b"Idempotency-Key": key.encode("latin-1")}
    )
    assert refused.status_code == 422


def test_a_fork_under_a_key(running: Running, client: httpx.Client) -> None:
    """A fork requested twice under one key is one task."""
    running.add_workflow(SIGNALLED)
    old = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
    answers = [
        client.post(
            f"/api/v1/tasks/{old}/fork",
            json={"from_step": "ask"},
            headers={"Idempotency-Key": "fork"},
        ).json()
        for _ in range(3)
    ]
    assert len({answer["task_id"] for answer in answers}) == 1
    assert [answer["changed"] for answer in answers] == [True, False, False]


def test_a_key_outlives_the_agent(sqlite_database: Database, tmp_path: Path) -> None:
    """After a restart the same request returns the same task, and another one is refused."""
    with Running(sqlite_database, tmp_path) as running, running.client() as client:
        running.add_workflow(QUICK)
        first = _post(client, "kept", {"input": {"word": "a"}})
        # On record before its task: as if the agent had ended between the two.
        idempotency_keys.claim(
            sqlite_database, [KeyedRequest(_own("half"), _request_hash({"word": "b"}))], 1
        )
    with Running(sqlite_database, tmp_path) as running, running.client() as client:
        assert _post(client, "kept", {"input": {"word": "a"}}).text == first.text
        assert _post(client, "kept", {"input": {"word": "c"}}).status_code == 422
        answers = {_post(client, "half", {"input": {"word": "b"}}).text for _ in range(3)}
        assert len(answers) == 1
        assert len(client.get("/api/v1/tasks").json()["tasks"]) == 2


def _own(key: str) -> str:
    """Return the stored form of the owner's key."""
    return f"request:{request_hash(['owner', key])}"


def _request_hash(inputs: dict[str, str]) -> str:
    """Return the hash of a request that starts a task."""
    return request_hash(["POST /workflows/quick/tasks", {"input": inputs, "priority": None}])


def test_old_keys_are_pruned(database: Database) -> None:
    """Pruning removes keys by age; a removed key can be used again."""
    assert _claim(database, "old", "a", 1) == "a"
    assert _claim(database, "old", "b", 2) == "a"
    assert _claim(database, "new", "a", 9) == "a"
    with database.connect("writer") as connection:
        assert list(idempotency_keys.prune_in_steps(connection, 5)) == [1]
    assert _claim(database, "old", "b", 6) == "b"
    assert _claim(database, "new", "b", 10) == "a"


def test_keys_are_recorded_in_batches(database: Database) -> None:
    """In one batch every claim gets the first request under its key, duplicates included."""
    assert _claim(database, "known", "k", 1) == "k"
    requests = [("b", "1"), ("known", "x"), ("a", "2"), ("b", "3"), ("a", "2")]
    claims = idempotency_keys.claim(database, [KeyedRequest(*request) for request in requests], 2)
    assert claims == [("b", "1"), ("known", "k"), ("a", "2"), ("b", "1"), ("a", "2")]


def _claim(database: Database, key: str, request_hash: str, now: int) -> str:
    ((_, first_hash),) = idempotency_keys.claim(database, [KeyedRequest(key, request_hash)], now)
    return first_hash


def test_names_with_colons_do_not_collide(running: Running) -> None:
    """The token `bob` with the key `ci:job1` does not collide with `bob:ci` and `job1`."""
    tokens = running.server.tokens
    bob = tokens.create("bob", ["operate"], None)
    ci = tokens.create("bob:ci", ["operate"], None)
    with running.client(bob) as one, running.client(ci) as other:
        answers = [_post(one, "ci:job1", {}), _post(other, "job1", {})]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert len({answer.json()["id"] for answer in answers}) == 2


def test_keys_of_earlier_versions_still_count(running: Running, client: httpx.Client) -> None:
    """A key stored in the earlier form is found; if it is ambiguous, only with the same request."""
    for key, is_sure in (("plain", True), ("with:colon", False)):
        earlier = f"request:{content_hash(f'owner:{key}')}"
        idempotency_keys.claim(
            running.database, [KeyedRequest(earlier, _request_hash({"word": key}))], 1
        )
        first, again = (_post(client, key, {"input": {"word": key}}) for _ in range(2))
        assert first.json()["id"] == again.json()["id"]
        another = _post(client, key, {"input": {"word": "another"}})
        assert another.status_code == (422 if is_sure else 201)
