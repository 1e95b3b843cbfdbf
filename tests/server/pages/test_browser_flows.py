"""What people do on the dashboard, in a real browser: answer, act on many, and lose a race."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from agent.core.logs import audit
from agent.store.read import overview
from tests.support.browser import viewing
from tests.support.page_forms import send
from tests.support.sample_dashboard import CHOICE, PAY_INVOICE, TRIP, question_of
from tests.support.sample_workflows import SIGNALLED
from tests.support.server import Running, wait_for

TRANSFER = """\
name: transfer
steps:
  pay:
    approval:
      message: |
        Pay invoice 4711?
        Amount: **249.50 EUR**
        Due: tomorrow

        - checked
    http:
      post: http://127.0.0.1:9/accounts/4711/transfers
      headers: {Accept: application/json, Idempotency-Key: "{{ task.id }}"}
      json:
        amount: 249.5
        currency: EUR
        creditor: {name: "Müller & Söhne GmbH", iban: DE02120300000000202051, bic: BYLADEM1001}
        reference: RE-4711
"""
INNER = """\
name: inner
steps:
  go: {wait: {signal: go}}
  ask: {depends_on: [go], approval: {message: "Go on below?"}}
"""
MIDDLE = "name: middle\nsteps: {call: {workflow: inner}}\n"
OUTER = "name: outer\nsteps: {call: {workflow: middle}}\n"
DAYS = """\
name: count-days
steps:
  ask: {input: {message: "How many days?", schema: {type: integer}}}
output: "{{ steps.ask.output.value }}"
"""


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    for text in (PAY_INVOICE, TRIP, CHOICE, SIGNALLED, TRANSFER, DAYS, INNER, MIDDLE, OUTER):
        running.add_workflow(text)


@pytest.fixture(autouse=True)
def _nothing_open(running: Running, client: httpx.Client) -> None:
    """Each test begins with an empty inbox."""
    for asked in client.get("/api/v1/approvals").json()["approvals"]:
        client.post(f"/api/v1/tasks/{asked['task']}/cancel")


def _ask(client: httpx.Client, workflow: str) -> tuple[str, str]:
    """Start a workflow; return its task and its question."""
    created = client.post(f"/api/v1/workflows/{workflow}/tasks")
    assert created.status_code == 201, created.text
    task_id = str(created.json()["id"])
    return task_id, str(question_of(client, task_id)["id"])


def _card(page: Page, question: str) -> str:
    card = f'[data-question="{question}"]'
    expect(page.locator(card)).to_be_visible()
    return card


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_approve_with_an_edit(
    browser: Browser, running: Running, client: httpx.Client, scripts: bool
) -> None:
    """The changed value is what runs; the comment is kept; the notice says what was decided."""
    task_id, question = _ask(client, "pay-invoice")
    with viewing(browser, running, scripts=scripts, name="phone") as viewer:
        page = viewer.open("/")
        card = page.locator(_card(page, question))
        card.get_by_text("Change it before you approve").click()
        card.get_by_label("argv").fill('["echo", "pay", "--amount", "99"]')
        card.get_by_label("Comment").fill("less, as agreed")
        card.get_by_role("button", name="Approve").click()
        expect(page.locator(".notice")).to_contain_text("Approved: Pay invoice 4711")
        expect(page.locator(f'[data-question="{question}"]')).to_have_count(0)
    done = running.wait_for_task(client, task_id, "succeeded")
    assert done["output"] == "pay --amount 99"
    decision = client.get(f"/api/v1/approvals/{question}").json()["decision"]
    assert (decision["channel"], decision["comment"]) == ("page", "less, as agreed")
    assert decision["by"].startswith("phone")


def test_answer_by_schema(browser: Browser, running: Running, client: httpx.Client) -> None:
    """A value that does not fit is refused with what was typed; then it is corrected."""
    task_id, question = _ask(client, "book-trip")
    with viewing(browser, running, has_refusals=True) as viewer:
        page = viewer.open("/")
        card = page.locator(_card(page, question))
        card.get_by_label("City").fill("Görlitz")
        card.get_by_label("Nights").fill("99")
        card.get_by_label("Breakfast").select_option("yes")
        card.get_by_role("button", name="Answer").click()
        expect(page.locator("#problem")).to_contain_text("99")
        expect(page.get_by_label("City")).to_have_value("Görlitz")
        page.get_by_label("Nights").fill("3")
        page.get_by_role("button", name="Answer").click()
        expect(page.locator(".notice.done")).to_contain_text("Answered")
    output = running.wait_for_task(client, task_id, "succeeded")["output"]
    assert output == {"city": "Görlitz", "nights": 3, "room": "double", "breakfast": True}


def test_an_ordinary_payment_is_shown_in_full(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The text keeps its lines and its looks, and what will be done needs no press to be read."""
    _, question = _ask(client, "transfer")
    with viewing(browser, running) as viewer:
        card = viewer.open("/").locator(f'[data-question="{question}"]')
        expect(card.get_by_role("heading")).to_have_text("Pay invoice 4711?")
        expect(card.locator(".formatted strong")).to_have_text("**249.50 EUR**")
        lines = card.locator(".formatted").inner_text().splitlines()
        assert [line for line in lines if line] == [
            "Amount: **249.50 EUR**",
            "Due: tomorrow",
            "- checked",
        ]
        expect(card.get_by_text("DE02120300000000202051")).to_be_visible()


def test_a_number_is_asked_for_in_a_number_field(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """A phone shows its digits, a wrong number is explained, and the answer is a number."""
    task_id, _ = _ask(client, "count-days")
    with viewing(browser, running, has_refusals=True) as viewer:
        page = viewer.open("/")
        answer = page.get_by_label("Your answer")
        expect(answer).to_have_attribute("inputmode", "numeric")
        answer.fill("2,5")
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#problem")).to_contain_text("not a whole number")
        expect(answer).to_have_value("2,5")
        answer.fill("1.000")
        page.get_by_role("button", name="Answer").click()
        expect(page.locator(".notice.done")).to_contain_text("Answered")
    assert running.wait_for_task(client, task_id, "succeeded")["output"] == 1000


def test_a_task_shows_what_those_below_it_ask(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The question of a child's child appears on the page, links to its task, and is answered there."""
    task_id = str(client.post("/api/v1/workflows/outer/tasks").json()["id"])

    def inner() -> dict[str, Any] | None:
        found = client.get("/api/v1/tasks", params={"workflow": "inner", "status": "running"})
        return next((each for each in found.json()["tasks"] if each["activity"] == "waiting"), None)

    def version() -> Any:
        with running.database.connect("reader") as connection:
            return overview.version(connection, task_id)

    below, before = wait_for(inner)["id"], version()
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        expect(page.get_by_text("waits for its child task").first).to_be_visible()
        assert client.post(f"/api/v1/tasks/{below}/signals/go").is_success
        card = page.get_by_role("article").filter(has_text="Go on below?")
        expect(card).to_contain_text("The child task inner asks in ask")
        assert version() != before, "the page is rendered again for what happens below"
        expect(card.get_by_role("link", name="inner")).to_have_attribute("href", f"/tasks/{below}")
        expect(card.locator('a[href^="/questions/"]')).to_be_visible()
        card.get_by_role("button", name="Approve").click()
        expect(page.locator(".notice")).to_contain_text("Approved")
        expect(page).to_have_url(re.compile(task_id))
    running.wait_for_task(client, task_id, "succeeded")


def test_choose_deny_and_defer(browser: Browser, running: Running, client: httpx.Client) -> None:
    """A choice is answered, a payment denied, and another one put off."""
    chosen, _ = _ask(client, "pick-cover")
    denied, refused = _ask(client, "pay-invoice")
    _, later = _ask(client, "pay-invoice")
    with viewing(browser, running) as viewer:
        page = viewer.open("/")
        page.get_by_label("Forest").check()
        page.get_by_role("button", name="Answer").click()
        expect(page.locator(".notice")).to_contain_text("Answered")
        card = page.locator(_card(page, refused))
        card.get_by_label("Comment").fill("too much")
        card.get_by_role("button", name="Deny").click()
        expect(page.locator(".notice")).to_contain_text("Denied")
        card = page.locator(_card(page, later))
        card.get_by_text("Decide later").click()
        card.get_by_role("button", name="4 hours").click()
        expect(page.locator("#deferred-title")).to_be_visible()
        expect(page.locator(_card(page, later))).to_contain_text("reminder")
    assert running.wait_for_task(client, chosen, "succeeded")["output"] == "Forest"
    assert "too much" in str(running.wait_for_task(client, denied, "failed")["error"])


def test_the_difference_from_the_last_time(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """A step that was approved before shows what is different now, or that nothing is."""
    _, first = _ask(client, "pay-invoice")
    edits = {"edits": {"env": {"REFERENCE": "RE-1"}}}
    client.post(f"/api/v1/approvals/{first}/approve", json=edits)
    _, second = _ask(client, "pay-invoice")
    with viewing(browser, running) as viewer:
        page = viewer.open("/")
        difference = page.locator(_card(page, second)).locator(".diff")
        expect(difference.locator("del")).to_contain_text("RE-1")
        expect(difference.locator("ins")).to_contain_text("RE-4711")
        client.post(f"/api/v1/approvals/{second}/approve")
        _, third = _ask(client, "pay-invoice")
        expect(page.locator(_card(page, third))).to_contain_text("The same as the last time")


def test_two_browsers_race_for_one_answer(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The second answer changes nothing, and its author sees who was first."""
    _, question = _ask(client, "pay-invoice")
    with (
        viewing(browser, running, name="first", scripts=False) as one,
        viewing(browser, running, name="second", scripts=False) as two,
    ):
        pages = [viewer.open("/") for viewer in (one, two)]
        for page, button in zip(pages, ("Approve", "Deny"), strict=True):
            page.locator(_card(page, question)).get_by_role("button", name=button).click()
        expect(pages[0].locator(".notice")).to_contain_text("Approved")
        expect(pages[1].locator(".notice.problem")).to_contain_text("approved already by first")
    assert client.get(f"/api/v1/approvals/{question}").json()["status"] == "approved"


def test_bulk_cancel_with_a_preview(
    browser: Browser,
    running: Running,
    client: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The preview says what happens to each task; only what can be canceled is, and is audited."""
    monkeypatch.setattr(audit, "_path", tmp_path / "audit")
    ids = [
        str(client.post(f"/api/v1/workflows/{name}/tasks").json()["id"])
        for name in ("signalled", "signalled", "quick")
    ]
    running.wait_for_task(client, ids[2], "succeeded")
    with viewing(browser, running, name="bulk") as viewer:
        page = viewer.open("/tasks")
        for task_id in ids:
            page.locator(f"#task-{task_id} input[type=checkbox]").check()
        page.get_by_role("button", name="Cancel…").click()
        expect(page.locator("h1")).to_have_text("Cancel 2 tasks?")
        expect(page.locator(f"#task-{ids[2]}")).to_contain_text("Nothing to cancel")
        expect(page.locator(f"#task-{ids[0]}")).to_contain_text("never run")
        page.get_by_role("button", name="Cancel 2 tasks").click()
        expect(page.locator(".notice")).to_contain_text("2 canceled.")
    for task_id in ids[:2]:
        assert client.get(f"/api/v1/tasks/{task_id}").json()["status"] == "canceled"
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    canceled = [line for line in lines if line["what"] == "cancel" and line["who"] == "page:bulk"]
    assert {line["task"] for line in canceled} == set(ids[:2])


def test_many_tasks_are_chosen_and_confirmed_without_scrolling(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """On a phone: the box for all stands above the list, and the buttons at the foot of the screen."""
    running.add_workflow("name: many\nsteps: {rest: {wait: 6h}}\n")
    for _ in range(25):
        client.post("/api/v1/workflows/many/tasks")
    with viewing(browser, running) as viewer:
        page = viewer.open("/tasks?workflow=many&activity=waiting")
        box = page.get_by_label("All on this page")
        expect(box).to_be_in_viewport()
        box.check()
        expect(page.locator("[name=task]:checked")).to_have_count(25)
        choose = page.locator("#bulk").get_by_role("button", name="Cancel…")
        expect(choose).to_be_in_viewport()
        choose.click()
        confirm = page.get_by_role("button", name="Cancel 25 tasks")
        expect(confirm).to_be_in_viewport(ratio=1)
        assert page.evaluate("scrollY") == 0
        confirm.click()
        expect(page.locator(".notice")).to_contain_text("25 canceled.")


def test_a_filtered_list_offers_what_would_change_its_tasks(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Also for all tasks that match: what has failed can be retried, and not be canceled."""
    waiting, _ = _ask(client, "pick-cover")
    failed = str(client.post("/api/v1/workflows/failing/tasks").json()["id"])
    running.wait_for_task(client, failed, "failed")
    done = str(client.post("/api/v1/workflows/quick/tasks").json()["id"])
    running.wait_for_task(client, done, "succeeded")
    for activity, expected in (
        ("failed", {"retry"}),
        ("waiting", {"cancel", "pause"}),
        ("succeeded", set()),
    ):
        page = visitor.get("/tasks", params={"activity": activity}).text
        offered = re.findall(r'name="do" value="(\w+)"', page)
        assert set(offered) == expected
        assert len(offered) == 2 * len(expected), "for chosen tasks, and for all that match"
    address = "/tasks?activity=waiting&workflow=pick-cover"
    page = visitor.get(address).text
    assert page.count(f'name="back" value="{address.replace("&", "&amp;")}"') == 2
    preview = visitor.get(
        "/tasks/bulk", params={"all": "1", "activity": "waiting", "do": "pause", "back": address}
    )
    assert f'<a class="button" href="{address.replace("&", "&amp;")}">Back</a>' in preview.text
    assert "Pause 1 task?" in preview.text
    assert f'id="task-{waiting}"' in preview.text
    paused = send(visitor, "/tasks/bulk", do="pause", task=waiting, back=address)
    assert paused.url.raw_path.decode() == address
    assert "1 paused." in paused.text
    again = send(visitor, "/tasks/bulk", do="retry", task=failed, back="/tasks?activity=failed")
    assert re.search(r'1 retried as <a href="/tasks/[^"]+">', again.text)
    assert send(visitor, "/tasks/bulk", do="pause", task=waiting, back="//x").url.path == "/tasks"


def test_an_answer_that_came_too_late_says_when_it_was_given(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """In local time, as all instants on pages."""
    _, question = _ask(client, "pick-cover")
    answered = client.post(f"/api/v1/approvals/{question}/answer", json={"value": "Sea"})
    assert answered.is_success
    page = send(visitor, f"/questions/{question}/answer", decision="answer", choice="1").text
    notice = re.search(r'<p class="notice problem".*?</p>', page)
    assert notice is not None
    assert "came too late" in notice[0]
    assert re.search(r'at <time datetime="[^"]+Z" title="[^"]+UTC" data-date>', notice[0])


def test_search_and_filters_are_in_the_address(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """Tasks are found by id, workflow, input and error; a found list can be sent as a link."""
    created = client.post("/api/v1/workflows/quick/tasks", json={"input": {"word": "heureka"}})
    found = str(created.json()["id"])
    failed = str(client.post("/api/v1/workflows/failing/tasks").json()["id"])
    running.wait_for_task(client, failed, "failed")
    with viewing(browser, running) as viewer:
        page = viewer.open("/tasks")
        for text, expected in (
            ("heureka", found),
            (found[-8:], found),
            ("failing", failed),
            ("exit code 1", failed),
        ):
            page.get_by_label("Search").fill(text)
            page.get_by_label("Search").press("Enter")
            page.wait_for_url(re.compile("search="))
            expect(page.locator(f"#task-{expected}")).to_be_visible()
        page.goto("/tasks?activity=failed")
        row = page.locator(f"#task-{failed}")
        expect(row).to_contain_text("bad")
        expect(row).to_contain_text("exit code 1")
        expect(page.locator(".state.succeeded")).to_have_count(0)
        page.goto("/tasks?search=nothinglikethis")
        expect(page.locator(".empty")).to_contain_text("No tasks match")


def test_a_task_can_be_printed(browser: Browser, running: Running, client: httpx.Client) -> None:
    """On paper there are no buttons, forms or navigation, and what is folded on the screen is open."""
    task_id, _ = _ask(client, "pay-invoice")
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        folded = page.get_by_text("--amount").first
        expect(page.locator("button:visible").first).to_be_visible()
        page.get_by_text("Exactly what will be done").click()
        expect(folded).to_be_hidden()
        page.emulate_media(media="print")
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("button:visible, nav:visible, input:visible")).to_have_count(0)
        expect(folded).to_be_visible()
        expect(page.get_by_text("What you can do")).to_be_hidden()
        expect(page.locator(".lede time").first).to_have_text(re.compile(r"\d{4}.*\d\d:\d\d:\d\d"))
