"""Pages of one task, workflow or trigger are bounded in rows and statements, whatever its size."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.approvals.permission import Principal
from agent.core.scopes import SCOPES
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.renderings import Page
from agent.server.pages.page_set import PAGES
from agent.store.db.database import Connection, Database
from agent.store.schema import migrate
from tests.support.recorded_triggers import record_workflow
from tests.support.sample_work import nightly
from tests.support.server import Running, wait_for

MOST_STATEMENTS = 30
MOST_ROWS = 1500
PER_TRIGGER = 3
"""Statements for each listed trigger; a page lists 25 at most."""
PAGES_BY_PATH: dict[str, Page] = {page.path: page for registry in PAGES for page in registry.pages}
GROUP = """\
name: wide
steps:
  each: {foreach: %s, shell: {argv: ["true"], effect: none}}
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    """Return a server with a large task, a wide one, many small ones and many schedules."""
    home = tmp_path_factory.mktemp("large")
    database = Database(f"sqlite:///{home}/agent.db")
    migrate.upgrade(database)
    with Running(database, Path(home)) as running, running.client() as client:
        # Pages cache graphs by name and version: other tests of this process have a smaller one.
        running.add_workflow(nightly(400).replace("nightly-import", "large-import"))
        running.add_workflow(GROUP % list(range(300)))
        for number in range(40):
            record_workflow(
                database,
                f"name: plan-{number}\non: {{schedule: {{id: daily, every: 10d}}}}\n"
                "steps: {rest: {wait: 1ms}}\n",
            )
        tasks = {}
        for name in ("large-import", "wide"):
            tasks[name] = client.post(f"/api/v1/workflows/{name}/tasks").json()["id"]
        for number in range(60):
            client.post(f"/api/v1/workflows/plan-{number % 40}/tasks")
        running.wait_for_task(client, tasks["large-import"], "failed")
        running.wait_for_task(client, tasks["wide"], "succeeded")
        wait_for(lambda: not client.get("/api/v1/tasks?status=running").json()["tasks"])
        yield running, tasks


class Counted:
    """Counts the statements and rows of a connection."""

    def __init__(self, connection: Connection) -> None:
        self.statements = 0
        self.rows = 0
        query = connection.query

        def counting(sql: str, /, **params: Any) -> Any:
            found = query(sql, **params)
            self.statements += 1
            self.rows += len(found)
            return found

        connection.query = counting  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("path", "params", "extra"),
    [
        ("/tasks/{task_id}", {"task_id": "large-import"}, 0),
        ("/tasks/{task_id}", {"task_id": "wide"}, 0),
        ("/tasks/{task_id}/fork", {"task_id": "large-import"}, 0),
        ("/tasks/{task_id}/steps/{name}", {"task_id": "large-import", "name": "part_57"}, 0),
        ("/tasks/{task_id}/steps/{name}", {"task_id": "wide", "name": "each"}, 0),
        ("/workflows/{name}", {"name": "large-import"}, 0),
        ("/triggers", {}, 25 * PER_TRIGGER),
        ("/triggers/{trigger_id}", {"trigger_id": "plan-1:daily"}, 0),
    ],
)
def test_pages_are_bounded(
    large: tuple[Running, dict[str, str]], path: str, params: dict[str, str], extra: int
) -> None:
    """A page of 400 steps, 300 items and 40 schedules costs no more than one of a few."""
    running, tasks = large
    context = running.server._context
    assert context is not None
    given = {name: tasks[value] if name == "task_id" else value for name, value in params.items()}
    scopes = frozenset(SCOPES)
    owner = Principal("page", "owner", scopes)
    request = PageRequest(context, path, given, {}, [], scopes, owner)
    with running.database.connect("reader") as connection, connection.snapshot():
        counted = Counted(connection)
        page = PAGES_BY_PATH[path]
        page.version(connection, request)
        page.read(connection, request)
    assert 0 < counted.statements <= MOST_STATEMENTS + extra
    assert counted.rows <= MOST_ROWS
