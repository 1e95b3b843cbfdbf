"""PostgreSQL is upgraded while workers of an earlier version run."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.store.db.database import Database
from agent.store.schema import migrate
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from agent.workflows.compile.compiler import compile_text
from tests.support.cli import PATIENCE_SECONDS, PROGRAM, Cli
from tests.support.engine import eventually, find_violations
from tests.upgrade.history import extract, known, last_with_revision, program_of

pytestmark = pytest.mark.process

CONFIGURATION = """\
[engine]
lease_seconds = 4
[models.parrot]
provider = "echo"
"""
THINKING = """\
name: thinking
steps:
  one: {python: {call: "statistics:mean", with: {data: [1, 2, 3]}}}
  two: {depends_on: [one], llm: {model: parrot, prompt: Hello, max_tokens: 100}}
"""
NAPPING = """\
name: napping
steps:
  one: {wait: 2s}
  two: {depends_on: [one], llm: {model: parrot, prompt: Hello, max_tokens: 100}}
"""


@contextmanager
def _worker(cli: Cli) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*PROGRAM, "worker"],
        cwd=cli.directory,
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert "agent worker" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def _submit(database: Database, text: str, count: int = 1) -> None:
    operator = Operator(database, database.clock)
    for _ in range(count):
        operator.submit(Submission(graph=compile_text(text, "a.yaml")))


def _statuses(database: Database) -> list[str]:
    with database.connect("reader") as reader:
        return [status for (status,) in reader.query("SELECT status FROM tasks ORDER BY id")]


def _worker_states(database: Database) -> list[int]:
    with database.connect("reader") as reader:
        return [dead for (dead,) in reader.query("SELECT dead FROM workers")]


@pytest.mark.parametrize(
    ("revision", "commit"),
    # The frozen database of 0011 is of this commit.
    [("0002", None), ("0003", None), ("0011", "ffa28aa3")],
)
def test_an_older_worker_goes_on_after_the_upgrade(
    revision: str, commit: str | None, tmp_path: Path, empty_postgres_url: str
) -> None:
    """It ends its running tasks and later ones, alone and beside a worker of this version."""
    present = Cli(tmp_path / "home", AGENT_DATABASE__URL=empty_postgres_url)
    present.write("config.toml", CONFIGURATION)
    present.write("napping.yaml", NAPPING)
    commit = last_with_revision(revision) if commit is None else known(commit)
    older = program_of(extract(commit, tmp_path / "earlier"), present)
    older("db", "upgrade")
    database = Database(empty_postgres_url)
    with database.connect("reader") as reader:
        assert migrate.current(reader) == revision != migrate.HEAD
    with _worker(older) as old:
        older("run", "napping.yaml")
        assert "will end" not in present("db", "upgrade").err
        # Longer than a quarter of a lease: then it has looked at the new schema.
        _submit(database, NAPPING)
        eventually(lambda: _statuses(database) == ["succeeded"] * 2, lambda: _statuses(database))
        _submit(database, THINKING, 3)
        eventually(lambda: _statuses(database) == ["succeeded"] * 5, lambda: _statuses(database))
        with _worker(present) as new:
            eventually(lambda: len(_worker_states(database)) == 2, "the new worker enrols")
            _submit(database, THINKING, 10)
            eventually(
                lambda: _statuses(database) == ["succeeded"] * 15, lambda: _statuses(database)
            )
            assert _worker_states(database) == [0, 0]
            for process in (old, new):
                process.send_signal(signal.SIGTERM)
            assert [process.wait(PATIENCE_SECONDS) for process in (old, new)] == [0, 0]
    migrate.check(database)
    assert find_violations(database) == []


def test_the_upgrade_names_the_workers_that_will_end(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    """Workers of schemas 0005 to 0010 end at any newer schema, and the message names them."""
    present = Cli(tmp_path / "home", AGENT_DATABASE__URL=empty_postgres_url)
    present.write("config.toml", CONFIGURATION)
    older = program_of(extract(last_with_revision("0010"), tmp_path / "earlier"), present)
    older("db", "upgrade")
    database = Database(empty_postgres_url)
    with _worker(older) as old:
        # It says that it runs a moment before it enrols.
        eventually(lambda: _worker_states(database))
        said = present("db", "upgrade").err
        assert f"process {old.pid} on" in said
        assert "workers of schema 0010 will end" in said
        assert old.wait(PATIENCE_SECONDS) == 5
