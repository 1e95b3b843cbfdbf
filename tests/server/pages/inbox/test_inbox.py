"""The inbox: what it lists besides questions, and what its forms refuse."""

import re

import httpx
import pytest

from agent.core.clock import SECOND
from agent.server.pages.framework.rendering import back_of
from agent.server.pages.inbox.question_cards import difference
from agent.store.engine import firing_rows, trigger_rows
from tests.support.browser import sign_in
from tests.support.page_forms import send
from tests.support.recorded_triggers import record_workflow
from tests.support.sample_dashboard import (
    CHOICE,
    PAY_INVOICE,
    SCHEDULED,
    SUMMARY,
    WATCHED,
    question_of,
)
from tests.support.server import Running, wait_for

WHO = """\
name: only-one
steps:
  ask: {approval: {message: "Only for one?", who: ["page:the-one"]}}
"""
TIMED = """\
name: timed
budget: {time: 1s, on_exhausted: pause}
steps:
  until: {wait: 1h}
"""


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    for text in (CHOICE, SUMMARY, WHO, TIMED):
        running.add_workflow(text)


def _start(client: httpx.Client, workflow: str) -> str:
    return str(client.post(f"/api/v1/workflows/{workflow}/tasks").json()["id"])


def _csrf(visitor: httpx.Client) -> str:
    found = re.search(r'name="csrf" value="(\w{64})"', visitor.get("/").text)
    assert found is not None
    return found[1]


def test_a_used_up_budget_is_raised(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The card says what is used and takes the new limit; the task then goes on."""
    task_id = _start(client, "summarize-letter")
    running.wait_for_task(client, task_id, "paused")
    page = visitor.get("/").text
    assert f'id="budget-{task_id}"' in page
    assert "Tokens in total" in page and "Minutes in total" not in page
    assert "of 10 used" in page
    address = f"/tasks/{task_id}/budget"
    for wrong in (
        {},
        {"tokens": "many"},
        {"tokens": "-5"},
        {"tokens": "1.000,50"},
        {"tokens": "1e300"},
    ):
        for back, heading in (("/", "Inbox"), (f"/tasks/{task_id}", "summarize-letter")):
            form = {"csrf": _csrf(visitor), "back": back, **wrong}
            refused = visitor.post(address, data=form)
            assert refused.status_code == 422, wrong
            assert f"<h1>{heading}</h1>" in refused.text
            assert f'value="{wrong.get("tokens", "")}"' in refused.text
    form = {"csrf": _csrf(visitor), "tokens": "100,000", "usd": "6,50", "back": "/"}
    raised = visitor.post(address, data=form)
    assert (raised.status_code, raised.headers["location"]) == (303, "/")
    assert "Budget set to 100,000 tokens and $6.50, and resumed" in visitor.get("/").text
    limits = client.get(f"/api/v1/tasks/{task_id}/budget").json()["budgets"][0]
    assert (limits["tokens_limit"], limits["usd_limit"]) == (100_000, 6.5)
    running.wait_for_task(client, task_id, "succeeded")
    assert f'id="budget-{task_id}"' not in visitor.get("/").text


def test_time_that_is_over_is_raised_in_minutes(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """A budget of time takes minutes."""
    task_id = _start(client, "timed")
    running.wait_for_task(client, task_id, "paused")
    for path in ("/", f"/tasks/{task_id}"):
        page = visitor.get(path).text
        assert "Minutes in total" in page and "Tokens in total" not in page, path
        assert page.count('name="minutes"') == 1, path
    form = {"csrf": _csrf(visitor), "minutes": "90"}
    assert visitor.post(f"/tasks/{task_id}/budget", data=form).status_code == 303
    running.wait_for_task(client, task_id, "running")
    client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_triggers_in_trouble_are_listed(running: Running, visitor: httpx.Client) -> None:
    """A watcher whose polls fail, and a schedule that was missed and has not run since."""
    for text in (SCHEDULED, WATCHED):
        record_workflow(running.database, text)
    now = running.database.clock.now()
    missed = {
        "trigger_id": "backup:nightly",
        "key": "2026-01-01T02:00:00Z",
        "status": "missed",
        "reason": "the agent was not running",
        "nominal_at": now - 3600 * SECOND,
        "recorded_at": now,
    }
    with running.database.connect("writer") as tx, tx.transaction():
        trigger_rows.update(tx, [("read-news:feed", {"alert": "failed", "failures": 4})])
        firing_rows.insert(tx, [missed])
    page = visitor.get("/").text
    assert 'id="trouble-read-news:feed"' in page and "Polls fail" in page
    assert 'id="missed-backup:nightly"' in page and "the agent was not running" in page
    started = {"key": "2026-01-01T03:00:00Z", "status": "skipped", "recorded_at": now + 1}
    with running.database.connect("writer") as tx, tx.transaction():
        firing_rows.insert(tx, [{**missed, **started}])
    assert 'id="missed-backup:nightly"' not in visitor.get("/").text


def test_every_page_counts_what_waits_now(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """A question until it is postponed or answered, each used-up budget once, and a broken watcher."""

    def count() -> int:
        counts = {
            int(found[1]) if (found := re.search(r'id="waiting-count">(\d+)', text)) else 0
            for text in (visitor.get("/").text, visitor.get("/events").text)
        }
        (number,) = counts
        return number

    before = count()
    asked = question_of(client, _start(client, "pick-cover"))
    assert count() == before + 1
    send(visitor, f"/questions/{asked['id']}/defer", seconds="86400", back="/")
    assert count() == before
    other = question_of(client, _start(client, "pick-cover"))
    running.wait_for_task(client, _start(client, "summarize-letter"), "paused")
    assert count() == before + 2
    record_workflow(running.database, WATCHED.replace("read-news", "read-more"))
    with running.database.connect("writer") as tx, tx.transaction():
        trigger_rows.update(tx, [("read-more:feed", {"alert": "failed"})])
    wait_for(lambda: count() == before + 3)
    client.post(f"/api/v1/approvals/{other['id']}/answer", json={"value": "Sea"})
    assert count() == before + 2


def test_an_edit_that_is_not_json_is_refused_with_the_place(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The key, the line and the column; the text stays typed."""
    running.add_workflow(PAY_INVOICE)
    task_id = _start(client, "pay-invoice")
    asked = question_of(client, task_id)
    edits = {"edit:argv": '[\n  "echo",\n  "pay"\n  "more"\n]'}
    refused = send(visitor, f"/questions/{asked['id']}/answer", decision="approve", **edits)
    assert refused.status_code == 422
    assert re.search(
        r'id="problem">For argv give JSON, not .*: line 4, column 3: Exp', refused.text
    )
    assert "&#34;more&#34;\n]</textarea>" in refused.text
    client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_a_denial_is_called_so(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """On each page of the task; what failed by itself is called failed."""
    running.add_workflow("name: may-i\nsteps: {ask: {approval: {message: May I?}}}\n")
    task_id = _start(client, "may-i")
    asked = question_of(client, task_id)
    send(visitor, f"/questions/{asked['id']}/answer", decision="deny", back="/")
    running.wait_for_task(client, task_id, "failed")
    row = visitor.get("/tasks?workflow=may-i").text
    for text in (
        row,
        *(visitor.get(f"/tasks/{task_id}{path}").text for path in ("", "/steps/ask")),
    ):
        assert re.search(r'class="state failed">.*?</svg>Denied<', text)
        assert not re.search(r'class="state failed">.*?</svg>Failed<', text)


def test_a_question_for_one_session(running: Running, client: httpx.Client) -> None:
    """`who: ["page:NAME"]`: others see it without buttons, and are refused if they try."""
    asked = question_of(client, _start(client, "only-one"))
    address = f"/questions/{asked['id']}/answer"
    for name, may in (("another", False), ("the-one", True)):
        with running.client("") as browser:
            browser.cookies.set(running.server.cookie, sign_in(running, name=name))
            page = browser.get(f"/questions/{asked['id']}").text
            assert (address in page) is may
            # The step only asks: nothing is done in it that the question would come before.
            assert "asks in <strong>ask</strong>" in page
            assert ("Only page:the-one may answer" in page) is not may
            form = {"csrf": _csrf(browser), "decision": "approve"}
            assert browser.post(address, data=form).status_code == (303 if may else 403)


def test_an_answer_without_a_choice_is_refused(client: httpx.Client, visitor: httpx.Client) -> None:
    """The question is shown again, with the reason and what was typed."""
    asked = question_of(client, _start(client, "pick-cover"))
    form = {"csrf": _csrf(visitor), "decision": "answer", "comment": "which one?"}
    refused = visitor.post(f"/questions/{asked['id']}/answer", data=form)
    assert refused.status_code == 422
    assert "Choose one of the answers" in refused.text
    assert 'value="which one?"' in refused.text
    later = visitor.post(
        f"/questions/{asked['id']}/defer", data={"csrf": _csrf(visitor), "seconds": "soon"}
    )
    assert later.status_code == 422
    client.post(f"/api/v1/tasks/{asked['task']}/cancel")
    wait_for(lambda: "withdrawn" in visitor.get(f"/questions/{asked['id']}").text)


@pytest.mark.parametrize(
    ("back", "page"),
    [
        ("/tasks?activity=failed", "/tasks?activity=failed"),
        ("", "/"),
        ("//elsewhere.example", "/"),
        ("/\\elsewhere.example", "/"),
        ("https://elsewhere.example", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
    ],
)
def test_forms_lead_back_to_pages_of_ours(back: str, page: str) -> None:
    """A form cannot send the browser elsewhere."""
    assert back_of({"back": back}) == page


def test_differences() -> None:
    """Changed lines are marked, equal values have none, large ones are not compared."""
    lines = [
        (line.sign, line.text.strip()) for line in difference({"a": 1, "b": 2}, {"a": 1, "b": 3})
    ]
    assert ("-", '"b": 2') in lines and ("+", '"b": 3') in lines
    assert list(difference({"a": 1}, {"a": 1})) == []
    assert list(difference({"a": "x" * 30_000}, {"a": 1})) == []
