"""The page of queues: what waits, leases, and dead letters that can be put back."""

import re

import httpx
import pytest

from agent.queue import Final, Work, Worker, handler
from tests.support.page_forms import csrf_in, send
from tests.support.server import Running, wait_for

FLOW = """\
name: page-flow
steps:
  job: {worker: {queue: page-jobs}, retry: {max_attempts: 1}}
"""


@handler("page-jobs")
def fail(_: Work) -> None:
    """Fail for good."""
    raise Final("no <b>ink</b>", code="no_ink")


@pytest.fixture(scope="module")
def dead(running: Running) -> list[str]:
    """Return the tasks of three dead letters; two more wait."""
    running.add_workflow(FLOW)
    with running.client() as client:
        tasks = [
            client.post("/api/v1/workflows/page-flow/tasks", json={"input": {}}).json()["id"]
            for _ in range(3)
        ]
        Worker(fail, server=running.server.url, token=running.token).run(limit=3)
        for task_id in tasks:
            running.wait_for_task(client, task_id, "failed")
        for _ in range(2):
            client.post("/api/v1/workflows/page-flow/tasks", json={"input": {}})
        wait_for(lambda: client.get("/api/v1/work/queues").json()["queues"][0]["queued"] == 2)
    return tasks


def test_it_shows_queues_and_dead_letters(visitor: httpx.Client, dead: list[str]) -> None:
    """Depth, dead letters with their error as text, and filters by queue and error."""
    page = visitor.get("/queues").text
    assert "2 waiting" in page
    assert "3 dead letters" in page
    assert "no worker has any of it" in page
    assert "no &lt;b&gt;ink&lt;/b&gt;" in page
    assert page.count('name="work"') == 3
    assert 'name="work"' not in visitor.get("/queues?error=heartbeat_timeout").text
    assert visitor.get("/queues?queue=page-jobs&error=no_ink").text.count('name="work"') == 3


def test_a_lease_is_shown_with_its_worker(
    running: Running, visitor: httpx.Client, client: httpx.Client, dead: list[str]
) -> None:
    """Who has it, since when, and until when."""
    claim = {"queues": ["page-jobs"], "worker": "lathe:7", "start": True}
    (work,) = client.post("/api/v1/work/claim", json=claim).json()["work"]
    page = visitor.get("/queues").text
    assert "lathe:7" in page
    assert "unless extended" in page
    client.post(f"/api/v1/work/{work['lease_id']}/complete", json={})


def test_chosen_dead_letters_are_put_back(
    running: Running, visitor: httpx.Client, client: httpx.Client, dead: list[str]
) -> None:
    """Each becomes a retry of its task; the form needs a choice, a token and the scope."""
    ids = re.findall(r'name="work" value="([^"]+)"', visitor.get("/queues").text)
    fields = {"work": "\n".join(ids[:2]), "reason": "refilled", "back": "/queues?queue=page-jobs"}
    page = send(visitor, "/queues/requeue", **fields)
    assert page.url.raw_path == b"/queues?queue=page-jobs"
    shown = page.text
    links = r'2 put back as <a href="/tasks/[^"]+"><code>\w{8}</code></a>, <a href="/tasks/[^"]+">'
    assert re.search(links, shown), "each new task is a link"
    assert shown.count('name="work"') == 1
    assert send(visitor, "/queues/requeue").status_code == 422
    assert visitor.post("/queues/requeue", data={"work": ids[2]}).status_code == 403


def test_who_may_only_read_sees_no_buttons(running: Running, dead: list[str]) -> None:
    """The list is the same, without choices; the action is refused."""
    from tests.support.browser import sign_in

    with running.client("") as reader:
        reader.cookies.set(running.server.cookie, sign_in(running, "read"))
        page = reader.get("/queues").text
        assert "dead letter" in page
        assert 'name="work"' not in page
        token = csrf_in(reader, "/queues")
        refused = reader.post("/queues/requeue", data={"csrf": token, "work": "x"})
        assert refused.status_code == 403
