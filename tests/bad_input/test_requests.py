"""Invalid bodies: rejected with a problem document, and nothing has changed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from agent.store.db.database import Database
from tests.bad_input.spoiling import spoiled
from tests.support.sample_workflows import QUICK
from tests.support.server import Running

HOOKED = """\
name: hooked
on: {webhook: {verify: token, secret: "env:BAD_INPUT_TOKEN"}}
inputs:
  a: {type: number, default: 0}
steps:
  ask: {wait: {signal: go}}
"""
JSON = {"Content-Type": "application/json"}
BODIES = {
    "/api/v1/workflows": b'{"name": "made", "steps": {"one": {"wait": "1ms"}}}',
    "/api/v1/workflows/quick/tasks": b'{"input": {"word": "hello"}, "priority": "high"}',
    "/api/v1/tasks/TASK/signals/other": b'{"value": {"a": [1, 2.5, null, "text"]}}',
    "/api/v1/tasks/TASK/pause": b"{}",
    "/api/v1/tasks/TASK/fork": b'{"from_step": "ask", "input": {"a": 1}}',
    "/hooks/hooked": b'{"type": "invoice.paid", "data": {"n": 1}}',
}


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a running server with two workflows."""
    home = tmp_path_factory.mktemp("server")
    shutil.copyfile(sqlite_template, home / "agent.db")
    with (
        pytest.MonkeyPatch.context() as patch,
        Running(Database(f"sqlite:///{home}/agent.db"), home) as started,
    ):
        patch.setenv("BAD_INPUT_TOKEN", "a token of some length")
        started.add_workflow(QUICK)
        started.add_workflow(HOOKED)
        yield started


def _rows(running: Running) -> list[Any]:
    with running.database.connect("reader") as reader:
        return [
            reader.query(f"SELECT count(*) FROM {table}")
            for table in ("tasks", "workflows", "signals", "approvals")
        ]


def _check(running: Running, client: httpx.Client, path: str, body: bytes) -> None:
    before = _rows(running)
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code < 500, (answer.status_code, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"].strip()
        assert "Traceback" not in answer.text
        assert _rows(running) == before


@pytest.mark.parametrize("path", BODIES)
def test_spoiled_bodies_change_nothing(running: Running, path: str) -> None:
    """Whatever a body became on its way: an answer below 500, and no change with a refusal."""
    with running.client() as client:
        task_id = client.post("/api/v1/workflows/hooked/tasks").json()["id"]
        place = path.replace("TASK", task_id)
        if path.startswith("/hooks"):
            client.headers["Authorization"] = "Bearer a token of some length"

        @settings(
            max_examples=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(spoiled([BODIES[path]]))
        def check(body: bytes) -> None:
            _check(running, client, place, body)

        check()


def test_good_bodies_are_taken(running: Running) -> None:
    """What bad bodies are made from is itself taken."""
    with running.client() as client:
        task_id = client.post("/api/v1/workflows/hooked/tasks").json()["id"]
        for path, body in BODIES.items():
            if path.startswith("/hooks"):
                client.headers["Authorization"] = "Bearer a token of some length"
            answer = client.post(path.replace("TASK", task_id), content=body, headers=JSON)
            assert answer.status_code < 300, (path, answer.text)
