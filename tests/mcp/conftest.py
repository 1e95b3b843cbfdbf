"""Fixtures of the MCP server's tests: one daemon for a module, and clients of it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store.db.database import Database
from tests.support.mcp_client import McpClient, over_http
from tests.support.sample_workflows import ASKING, FAILING, GATED, QUICK, SIGNALLED
from tests.support.server import Running

OFFERED = """\
name: offered
description: Says a word twice.
inputs:
  word: {type: string, description: what to say}
  times: {type: integer, default: 2}
on: {mcp: true}
steps:
  say: {shell: {argv: [echo, "{{ inputs.word * inputs.times }}"], effect: none}}
output: {said: "{{ steps.say.output.stdout | trim }}"}
"""
WORKED = """\
name: worked
steps:
  review:
    worker: {queue: review, with: {text: hello}}
    retry: {max_attempts: 1}
output: "{{ steps.review.output }}"
"""
TIMED = """\
name: timed
on:
  schedule: {id: nightly, cron: "0 3 * * *", timezone: UTC}
  watch: {id: lines, command: {argv: [echo, '{"key": "1"}']}, every: 1h}
steps:
  rest: {wait: 1ms}
"""


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a daemon on SQLite with a few workflows, shared by a module's tests."""
    home = tmp_path_factory.mktemp("mcp")
    shutil.copyfile(sqlite_template, home / "agent.db")
    (home / "agent.db").chmod(0o600)
    with Running(Database(f"sqlite:///{home}/agent.db"), home) as started:
        add_workflows(started)
        yield started


def add_workflows(running: Running) -> None:
    """Record the workflows that tests start."""
    with running.client() as client:
        for text in (QUICK, SIGNALLED, FAILING, GATED, ASKING, OFFERED, TIMED, WORKED):
            media = {"Content-Type": "application/yaml"}
            response = client.post("/api/v1/workflows", content=text, headers=media)
            assert response.status_code == 201, response.text


@pytest.fixture(scope="module")
def owner(running: Running) -> Iterator[McpClient]:
    """Return a client with the owner's token."""
    with McpClient(over_http(running.server.url, running.token)) as client:
        yield client
