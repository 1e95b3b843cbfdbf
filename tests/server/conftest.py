"""Fixtures of the server's tests: one server for all of a process that need nothing special."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent.store.db.database import Database
from tests.support.server import Running

QUICK = """\
name: quick
description: Two steps that end at once.
inputs:
  word: {type: string, default: hello}
steps:
  one: {shell: {argv: [echo, "{{ inputs.word }}"], effect: none}}
  two: {depends_on: [one], wait: 1ms}
output: "{{ steps.one.output.stdout | trim }}"
"""

SIGNALLED = """\
name: signalled
steps:
  ask: {wait: {signal: go}}
  tell: {depends_on: [ask], wait: 1ms}
output: "{{ steps.ask.output }}"
"""

FAILING = """\
name: failing
steps:
  fine: {shell: {argv: [echo, fine], effect: none}}
  bad: {depends_on: [fine], shell: {argv: ["false"], effect: none}, retry: {max_attempts: 1}}
"""


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a running server on SQLite with a few workflows, shared by a module's tests."""
    home = tmp_path_factory.mktemp("server")
    shutil.copyfile(sqlite_template, home / "agent.db")
    (home / "agent.db").chmod(0o600)
    with Running(Database(f"sqlite:///{home}/agent.db"), home) as started:
        for text in (QUICK, SIGNALLED, FAILING):
            started.add_workflow(text)
        started.add_workflow(QUICK.replace("name: quick", "name: filed"), "/somewhere/filed.yaml")
        yield started


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    """Return a client with the owner's token."""
    with running.client() as client:
        yield client
