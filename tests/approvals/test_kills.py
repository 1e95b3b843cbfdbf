"""Many questions, answered from three channels at once while the agent is killed.

In full there are a thousand, and on PostgreSQL two hundred, to spare the time: what differs there,
locks of rows and workers that are given up by their silence, is met as often by each of them.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from agent.approvals.answering import DecidedError, answer
from agent.approvals.permission import terminal_user
from agent.channels.link_signing import key_of, link_token
from agent.core.clock import SECOND
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from agent.workflows.compile.compiler import compile_text
from tests.support.cli import Cli
from tests.support.effort import short_or_full
from tests.support.engine import find_violations
from tests.support.free_port import free_port

TASKS = short_or_full({"sqlite": 15, "postgres": 8}, {"sqlite": 100, "postgres": 20})
QUESTIONS = 10
"""Questions per task, all at once: answers to one task compete with each other and the worker."""
KILLS = short_or_full(3, 5)
PATIENCE_SECONDS = 240
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

# Every kill counts as an attempt of what was running, and may hit the same steps each time.
ASKING = (
    "name: asking\nmax_parallel: 10\ndefaults: {retry: {max_attempts: 100}}\nsteps:\n"
    + "".join(
        f'  ask{number}: {{approval: {{message: "Go on with {number}?"}}}}\n'
        for number in range(QUESTIONS)
    )
)


class Person(ABC):
    """Answers every question, whether or not others have, until the result is known.

    A person whose answer counted repeats it: it must not count twice. One question of each task is left
    to each person until it is decided, so that a slow person has a share too.
    """

    reserved: ClassVar[dict[str, str]] = {"ask0": "ada", "ask1": "owner", "ask2": "link"}

    def __init__(self, name: str, database: Database, questions: int) -> None:
        assert name in self.reserved.values()
        self.name = name
        self.database = database
        self.questions = questions
        self.won: set[str] = set()
        self.late: set[str] = set()
        self.failure: BaseException | None = None
        self._dice = random.Random(name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @abstractmethod
    def give(self, approval_id: str) -> bool | None:
        """Approve; return whether it counted, or None if there was no response."""

    def close(self) -> None:  # noqa: B027  (most have opened nothing)
        """Close what was opened."""

    def join(self) -> None:
        """Wait until everything is answered."""
        self._thread.join(PATIENCE_SECONDS)
        assert self.failure is None, self.failure
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while len(self.won) + len(self.late) < self.questions:
                open_ones = self._unanswered()
                for approval_id in open_ones:
                    has_counted = self.give(approval_id)
                    if has_counted is None:
                        time.sleep(0.05)
                    elif has_counted:
                        self.won.add(approval_id)
                        assert not self.give(approval_id), "an answer counted twice"
                    else:
                        self.late.add(approval_id)
                if not open_ones:
                    time.sleep(0.05)
        except BaseException as failure:
            self.failure = failure
        finally:
            self.close()

    def _unanswered(self) -> list[str]:
        with self.database.connect("reader") as connection:
            rows = connection.query(
                "SELECT a.id, s.name, a.status FROM approvals AS a JOIN steps AS s"
                " ON s.id = a.step_id"
            )
        found = {
            approval_id
            for approval_id, step, status in rows
            if status != "pending" or self.reserved.get(step, self.name) == self.name
        }
        left = sorted(found - self.won - self.late)
        return self._dice.sample(left, min(len(left), 25))


class AtTheTerminal(Person):
    """Answers through the database, as the command line does, also while no agent runs."""

    def give(self, approval_id: str) -> bool | None:
        try:
            answer(self.database, approval_id, "approve", principal=terminal_user(self.name))
        except DecidedError:
            return False
        return True


class ByHttp(Person):
    """Answers by requests; a kill may take the response away."""

    def __init__(
        self, name: str, database: Database, questions: int, url: str, token: Path
    ) -> None:
        self._client = httpx.Client(base_url=url, timeout=20, trust_env=False, verify=False)
        self._token = token
        super().__init__(name, database, questions)

    def close(self) -> None:
        self._client.close()

    def request(self, approval_id: str) -> httpx.Response:
        """Approve through the API."""
        return self._client.post(
            f"/api/v1/approvals/{approval_id}/approve",
            headers={"Authorization": f"Bearer {self._token.read_text().strip()}"},
        )

    def give(self, approval_id: str) -> bool | None:
        try:
            done = self.request(approval_id)
        except (httpx.TransportError, FileNotFoundError):
            return None
        if done.status_code == 503:
            return None
        assert done.status_code in (200, 303, 409), done.text
        return done.status_code != 409


class ByLink(ByHttp):
    """Answers by the form behind a signed link."""

    def request(self, approval_id: str) -> httpx.Response:
        token = link_token(key_of(SECRET), approval_id, (int(time.time()) + 600) * SECOND)
        return self._client.post(f"/links/{token}", data={"decision": "approve"})


@pytest.mark.process
@pytest.mark.parametrize("kind", TASKS)
def test_answers_count_once_each_through_kills(
    cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """Each question is decided once, no answer is lost, and every task ends."""
    tasks = TASKS[kind]
    questions = tasks * QUESTIONS
    port = free_port()
    cli.environment |= {
        "AGENT_SERVER__PORT": str(port),
        "AGENT_CHANNELS__WEBHOOK__SECRET": "env:HOOK",
        "HOOK": SECRET,
    }
    home = tmp_path / "data"
    url = f"sqlite:///{home / 'agent.db'}"
    if kind == "postgres":
        url = request.getfixturevalue("empty_postgres_url")
        # The next process declares a killed one dead after this lease.
        cli.environment |= {"AGENT_DATABASE__URL": url, "AGENT_ENGINE__LEASE_SECONDS": "5"}
    cli("init")
    cli("db", "upgrade")
    database = Database(url)
    operator = Operator(database, database.clock)
    graph = compile_text(ASKING, "asking.yaml")
    for _ in range(tasks):
        operator.submit(Submission(graph=graph))
    at = f"http://127.0.0.1:{port}"
    people: list[Person] = [
        AtTheTerminal("ada", database, questions),
        ByHttp("owner", database, questions, at, home / "token"),
        ByLink("link", database, questions, at, home / "token"),
    ]
    for _ in range(KILLS):
        with cli.daemon() as process:
            wanted = _decided(database) + questions // (KILLS + 3)
            _wait(people, lambda: _decided(database) >= wanted or _ended(database) == tasks)  # noqa: B023
            process.kill()
    with cli.daemon():
        _wait(people, lambda: _ended(database) == tasks)
        for person in people:
            person.join()
    _check(database, people, tasks)


def _check(database: Database, people: list[Person], tasks: int) -> None:
    questions = tasks * QUESTIONS
    with database.connect("reader") as connection:
        statuses = Counter(row[0] for row in connection.query("SELECT status FROM tasks"))
        rows = connection.query("SELECT id, decided_by FROM approvals")
        states = Counter(row[0] for row in connection.query("SELECT status FROM approvals"))
        decisions = connection.query(
            "SELECT count(*), count(DISTINCT data) FROM events WHERE type = 'approval.decided'"
        )
    decided: dict[str, str] = {row[0]: row[1] for row in rows}
    assert statuses == {"succeeded": tasks}
    assert states == {"approved": questions}, "nothing was asked twice"
    assert decisions == [(questions, questions)], "each was decided once"
    for person in people:
        assert {name for name in person.won if decided[name] != person.name} == set()
        assert len(person.won) + len(person.late) == questions, "each has answered everything"
    # A person whose response a kill took away learned later that the answer counted: once.
    assert sum(len(person.won) for person in people) <= questions
    assert len(set(decided.values())) == len(people), "all three had their share"
    assert find_violations(database) == []


def _decided(database: Database) -> int:
    with database.connect("reader") as connection:
        ((count,),) = connection.query("SELECT count(*) FROM approvals WHERE status = 'approved'")
    return int(count)


def _ended(database: Database) -> int:
    with database.connect("reader") as connection:
        ((count,),) = connection.query("SELECT count(*) FROM tasks WHERE ended_at IS NOT NULL")
    return int(count)


def _wait(people: list[Person], condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert [person.failure for person in people if person.failure] == []
        assert time.monotonic() < give_up, "what should have happened did not"
        time.sleep(0.05)
