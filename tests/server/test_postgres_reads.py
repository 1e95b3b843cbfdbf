"""Everything that can be read over HTTP can be read on PostgreSQL too: its SQL differs in places."""

import re
from pathlib import Path
from urllib.parse import quote

from agent.server.application import ROUTES
from agent.store.db.database import Database
from tests.screens.addresses import addresses
from tests.support.browser import sign_in
from tests.support.sample_dashboard import STEPS, Sample, fill, question_of
from tests.support.server import Running

ENDS_LATER = {"/api/v1/events/stream"}
"""Streams: their own tests read them."""
READS = [
    endpoint.path
    for registry in ROUTES
    for endpoint in registry.endpoints
    if endpoint.method == "GET" and endpoint.path not in ENDS_LATER
]


def test_pages_and_routes_on_postgres(postgres_database: Database, tmp_path: Path) -> None:
    """Each page and each reading route answers without an error of the server, and most with 200."""
    with Running(postgres_database, tmp_path, STEPS) as running, running.client() as client:
        sample = fill(running)
        pages = addresses(sample)
        paths = {path: _with_ids(path, sample) for path in READS}
        answers = {path: client.get(address).status_code for path, address in paths.items()}
        client.cookies.set(running.server.cookie, sign_in(running))
        del client.headers["Authorization"]
        shown = {name: client.get(address).status_code for name, address in pages.items()}
    assert {name for name, status in shown.items() if status != 200} == {"missing"}
    assert {path: status for path, status in answers.items() if status >= 500} == {}
    # Of these the sample has none: a stored artifact, a memory, a value of state, a link, …
    assert sum(status == 200 for status in answers.values()) >= len(answers) - 8, answers


def _with_ids(path: str, sample: Sample) -> str:
    """Return the address of a route for what the sample has."""
    task_id = sample.tasks["pay-invoice"]
    with sample.running.client() as client:
        question = question_of(client, task_id)["id"]
    of = {"version": "1", "step": "pay", "scope": "shared"}
    if path.startswith("/api/v1/tasks"):
        of |= {"id": task_id, "task_id": task_id, "name": "pay"}
    elif path.startswith("/api/v1/approvals"):
        of |= {"id": question, "approval_id": question}
    elif path.startswith("/api/v1/triggers"):
        of |= {"id": "backup:nightly", "trigger_id": "backup:nightly"}
    else:
        of |= {"name": "pay-invoice"}
    return re.sub(r"\{(\w+)\}", lambda match: quote(of.get(match[1], "none"), safe=""), path)
