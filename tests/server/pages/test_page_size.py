"""Pages of a large database read a bounded number of rows in a bounded number of statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.renderings import Page
from agent.server.pages.page_set import PAGES
from agent.store.db.database import Connection
from bench import copies
from tests.support.sample_dashboard import CHOICE, QUICK, SIGNALLED, question_of
from tests.support.server import Running

MAX_STATEMENTS = 60
MAX_ROWS = 1500
LISTS = [page for registry in PAGES for page in registry.pages if "{" not in page.path]


@pytest.fixture(scope="module")
def grown(running: Running) -> Running:
    """Return a server to whose database tasks are added."""
    for text in (CHOICE, QUICK, SIGNALLED):
        running.add_workflow(text)
    with running.client() as client:
        done = _start(client, "tidy-downloads")
        running.wait_for_task(client, done, "succeeded")
        failed = _start(client, "failing")
        running.wait_for_task(client, failed, "failed")
        for _ in range(3):
            question_of(client, _start(client, "pick-cover"))
        waiting = _start(client, "deploy-site")
    running.seeds = [done, failed, waiting]  # type: ignore[attr-defined]
    return running


def _start(client: httpx.Client, workflow: str) -> str:
    return str(client.post(f"/api/v1/workflows/{workflow}/tasks").json()["id"])


def _add(running: Running, number: int, series: int) -> None:
    with running.database.connect("writer") as tx, tx.transaction():
        for at, task_id in enumerate(running.seeds):  # type: ignore[attr-defined]
            copies.multiply(tx, task_id, number, series=series + at)


@contextmanager
def _counted(connection: Connection) -> Iterator[dict[str, int]]:
    """Count the statements of a connection, and the rows that they return."""
    counts = {"statements": 0, "rows": 0}
    query = connection.query

    def counting(sql: str, /, **parameters: Any) -> Any:
        rows = query(sql, **parameters)
        counts["statements"] += 1
        counts["rows"] += len(rows)
        return rows

    connection.query = counting  # type: ignore[method-assign]
    yield counts


def _measure(running: Running, page: Page, **query: str) -> dict[str, int]:
    context = running.server._context
    assert context is not None
    scopes = frozenset({"read", "operate", "approve", "admin"})
    items = tuple(query.items())
    request = PageRequest(context, page.path, {}, query, items, scopes, None)  # type: ignore[arg-type]
    with (
        running.database.connect("reader") as connection,
        connection.snapshot(),
        _counted(connection) as counts,
    ):
        page.read(connection, request)
    return counts


def test_pages_do_not_grow_with_the_database(grown: Running) -> None:
    """Six times as many tasks: the same statements, and no more rows than fit a page."""
    shown = {
        page.path: {"do": "cancel", "all": "1"} if "bulk" in page.path else {} for page in LISTS
    }
    few: dict[str, dict[str, int]] = {}
    many: dict[str, dict[str, int]] = {}
    for series, number, found in ((1, 100, few), (4, 500, many)):
        _add(grown, number, series)
        for page in LISTS:
            found[page.path] = _measure(grown, page, **shown[page.path])
    for path, counts in many.items():
        assert counts["statements"] <= MAX_STATEMENTS, (path, counts)
        assert counts["rows"] <= MAX_ROWS, (path, counts)
        assert counts["statements"] <= few[path]["statements"] + 3, (path, few[path], counts)
