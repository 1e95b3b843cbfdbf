"""What people do with tasks, workflows and schedules in a real browser."""

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import DESKTOP, viewing
from tests.support.sample_dashboard import question_of
from tests.support.sample_work import TRIAGE, nightly
from tests.support.sample_workflows import SIGNALLED
from tests.support.server import Running, wait_for

SEND = """\
name: send-greeting
inputs:
  count: {type: integer, default: 1, description: How many}
  to: {type: string, default: world}
steps:
  send: {shell: {argv: [echo, "{{ inputs.count }} to {{ inputs.to }}"]}}
  tell: {depends_on: [send], shell: {argv: [echo, told], effect: none}}
output: "{{ steps.send.output.stdout | trim }}"
"""
SLOW_COPY = """\
name: slow-copy
steps:
  copy: {shell: {argv: [sleep, "60"]}, timeout: 100ms}
"""
SLOW_READ = """\
name: slow-read
steps:
  read: {shell: {argv: [sleep, "60"], effect: none}, timeout: 100ms, retry: {max_attempts: 1}}
"""
LOST = """\
name: parcel
steps:
  book:
    python: {call: "tests.support.step_functions:cut_off", with: {token: flow}}
    timeout: 200ms
    retry: {max_attempts: 2, delay: 1ms}
output: "{{ steps.book.output }}"
"""


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    for text in (SEND, SIGNALLED, TRIAGE, LOST, SLOW_COPY, SLOW_READ, nightly(120)):
        running.add_workflow(text)


def _start(client: httpx.Client, workflow: str) -> str:
    created = client.post(f"/api/v1/workflows/{workflow}/tasks")
    assert created.status_code == 201, created.text
    return str(created.json()["id"])


def _shown_task(url: str) -> str:
    return url.rpartition("/")[2]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_an_emptied_field_is_empty(
    browser: Browser, running: Running, client: httpx.Client, scripts: bool
) -> None:
    """Neither a new task nor a fork goes on with a default or an old value that a person has cleared."""
    with viewing(browser, running, scripts=scripts) as viewer:

        def sent(button: str) -> tuple[Any, str]:
            page.get_by_role("button", name=button).click()
            expect(page).to_have_url(re.compile("/tasks/[^/]+$"))
            task_id = _shown_task(page.url)
            return running.wait_for_task(client, task_id, "succeeded")["input"]["to"], task_id

        page = viewer.open("/workflows/send-greeting")
        page.locator('[name="value:to"]').clear()
        emptied, task_id = sent("Run")
        named = client.post("/api/v1/workflows/send-greeting/tasks", json={"input": {"to": "Ada"}})
        running.wait_for_task(client, named.json()["id"], "succeeded")
        page = viewer.open(f"/tasks/{named.json()['id']}/fork")
        page.locator('[name="value:to"]').clear()
        forked, _ = sent("Fork from send")
        page = viewer.open(f"/tasks/{task_id}/fork")
        expect(page.locator('[name="value:to"]')).to_have_value("")
        page.locator('[name="without:to"]').check()
        default, _ = sent("Fork from send")
    assert (emptied, forked, default) == ("", "", "world")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_fork_with_an_edited_input(
    browser: Browser, running: Running, client: httpx.Client, scripts: bool
) -> None:
    """The page says what is repeated; a bad value is explained and stays; a good one runs."""
    task_id = _start(client, "send-greeting")
    running.wait_for_task(client, task_id, "succeeded")
    with viewing(browser, running, scripts=scripts, has_refusals=True) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        page.get_by_role("link", name="Fork").click()
        expect(page.locator("#repeats")).to_contain_text("Repeats the effects of: send")
        page.get_by_label("Start from").select_option("tell")
        if not scripts:
            page.get_by_role("button", name="Show what it repeats").click()
        expect(page.locator("#repeats")).to_contain_text("Repeats no recorded effect")
        page.get_by_label("Start from").select_option("send")
        if not scripts:
            page.get_by_role("button", name="Show what it repeats").click()
        expect(page.locator("#repeats")).to_contain_text("send")
        page.get_by_label("count").fill("several")
        page.get_by_role("button", name="Fork from send").click()
        expect(page.get_by_role("alert")).to_contain_text("'count' must be")
        expect(page.get_by_label("count")).to_have_value("several")
        page.get_by_label("count").fill("3")
        page.get_by_role("button", name="Fork from send").click()
        expect(page.locator(".notice")).to_contain_text("will repeat the effects of: send")
        forked = _shown_task(page.url)
    assert running.wait_for_task(client, forked, "succeeded")["output"] == "3 to world"


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_run_form_explains_a_bad_input(
    browser: Browser, running: Running, client: httpx.Client, scripts: bool
) -> None:
    """Nothing is lost of what was typed, and nothing starts before it is right."""
    with viewing(browser, running, scripts=scripts, has_refusals=True) as viewer:
        page = viewer.open("/workflows/send-greeting")
        page.get_by_label("count").fill("one or two")
        page.get_by_label("to (optional)").fill("you")
        page.get_by_role("button", name="Run send-greeting").click()
        expect(page.get_by_role("alert")).to_contain_text("Nothing was started")
        expect(page.get_by_label("to (optional)")).to_have_value("you")
        page.get_by_label("count").fill("2")
        page.get_by_role("button", name="Run send-greeting").click()
        expect(page.locator(".notice")).to_contain_text("Started")
        started = _shown_task(page.url)
    assert running.wait_for_task(client, started, "succeeded")["output"] == "2 to you"


def test_a_signal_moves_the_graph_while_it_is_looked_at(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The waiting box becomes done without a reload."""
    task_id = _start(client, "signalled")
    wait_for(lambda: client.get(f"/api/v1/tasks/{task_id}").json()["activity"] == "waiting")
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        expect(page.locator(".box.waiting")).to_have_count(1)
        page.locator("#signal-1").get_by_label("Value").fill('"hello"')
        page.get_by_role("button", name="Send go").click()
        expect(page.locator(".box.succeeded")).to_have_count(2)
        expect(page.locator(".head .state")).to_have_text("Done")
        expect(page.locator("#signal-1")).to_have_count(0)


def test_a_failed_task_is_retried(browser: Browser, running: Running, client: httpx.Client) -> None:
    """The log of the failed step is on the first screen; the retry keeps what was done."""
    task_id = _start(client, "triage")
    running.wait_for_task(client, task_id, "failed")
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        expect(page.locator("#failed .log")).to_contain_text("line 7 has no amount")
        expect(page.locator("#failed").get_by_role("button", name="Retry")).to_be_in_viewport()
        page.locator("#failed").get_by_role("button", name="Retry").click()
        expect(page.locator(".notice")).to_contain_text("Retried as")
        expect(page.locator(".box.kept").first).to_be_visible()


@pytest.mark.parametrize(
    ("button", "notice"),
    [
        ("It happened", "It happened: step 'copy' counts as done."),
        ("Give up", "Given up: step 'copy' has failed."),
    ],
)
def test_an_effect_that_a_timeout_ended_is_resolved_in_the_inbox(
    browser: Browser, running: Running, client: httpx.Client, button: str, notice: str
) -> None:
    """The question says that it was a timeout, the notice names the verdict, and no safe button is pale."""
    task_id = _start(client, "slow-copy")
    question_of(client, task_id)
    with viewing(browser, running) as viewer:
        page = viewer.open("/")
        card = page.get_by_role("article").filter(has_text="slow-copy")
        expect(card).to_contain_text("interrupted (timeout: the attempt took longer than 0.1 s)")
        pale = card.evaluate("card => getComputedStyle(card).backgroundColor")
        for name in ("It happened", "Give up"):
            safe = card.get_by_role("button", name=name)
            assert safe.evaluate("each => getComputedStyle(each).backgroundColor") != pale, name
        card.get_by_role("button", name=button).click()
        expect(page.locator(".notice")).to_have_text(notice)
        client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_a_timeout_is_called_one(browser: Browser, running: Running, client: httpx.Client) -> None:
    """On the page of the task and of the step, and in the list."""
    task_id = _start(client, "slow-read")
    running.wait_for_task(client, task_id, "failed")
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        expect(page.locator("#failed h2")).to_contain_text("read timed out")
        expect(page.locator("#step-read .state")).to_have_text("Timed out")
        page = viewer.open(f"/tasks/{task_id}/steps/read")
        expect(page.locator(".head .state")).to_have_text("Timed out")
        expect(page.locator("#attempt-1 .state")).to_have_text("Timed out")
        page = viewer.open("/tasks?workflow=slow-read")
        expect(page.locator(f"#task-{task_id} .state")).to_have_text("Timed out")


def test_an_unknown_effect_is_resolved_on_the_page_of_its_step(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The verdict with its output ends the step."""
    task_id = _start(client, "parcel")
    wait_for(lambda: client.get(f"/api/v1/approvals?task={task_id}").json()["approvals"])
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}/steps/book")
        page.get_by_label("Its output, if it happened").fill('"parcel 12"')
        page.get_by_role("button", name="It happened").click()
        expect(page.locator(".notice")).to_contain_text("counts as done")
    assert running.wait_for_task(client, task_id, "succeeded")["output"] == "parcel 12"


def test_text_stays_inside_its_box(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The widths that are assumed on the server hold for the fonts of a browser."""
    tasks = [_start(client, name) for name in ("triage", "nightly-import")]
    for task_id in tasks:
        running.wait_for_task(client, task_id, "failed")
    with viewing(browser, running, size=DESKTOP) as viewer:
        for task_id in tasks:
            page = viewer.open(f"/tasks/{task_id}")
            overflowing = page.locator(".graph .box").evaluate_all(
                "boxes => boxes.filter(box => { const frame = box.querySelector('.front').getBBox();"
                " return [...box.querySelectorAll('text')].some(text => { const own = text.getBBox();"
                " return own.x + own.width > frame.width - 4; }); }).length"
            )
            assert overflowing == 0


def test_long_times_leave_room_for_events(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """Without scripts a time has its date and offset; on a phone the event then stands below it."""
    task_id = _start(client, "send-greeting")
    running.wait_for_task(client, task_id, "succeeded")
    for scripts in (True, False):
        with viewing(browser, running, scripts=scripts) as viewer:
            page = viewer.open(f"/tasks/{task_id}")
            time, event = (
                page.locator(".event-pair").first.locator(f"> :{place}-child").bounding_box()
                for place in ("first", "last")
            )
            assert time is not None
            assert event is not None
            assert (event["y"] > time["y"] + 10) == (not scripts)
            assert event["width"] > 160


def test_what_is_under_way_shows_how_long(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The seconds of a waiting step are counted while it is looked at, in the list and in the timeline."""
    task_id = _start(client, "signalled")
    wait_for(lambda: client.get(f"/api/v1/tasks/{task_id}").json()["activity"] == "waiting")
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        for part in ("#steps", "#timeline"):
            lasted = page.locator(f"{part} time[data-since]")
            expect(lasted).to_have_text(re.compile(r"^[1-9]\d*\ss$"))
            expect(lasted).to_have_attribute("title", re.compile(r"\d{4}"))
    client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_a_half_typed_form_survives_a_refresh(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The page of a task changes while a signal is being typed; focus and text stay."""
    task_id = _start(client, "signalled")
    wait_for(lambda: client.get(f"/api/v1/tasks/{task_id}").json()["activity"] == "waiting")
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task_id}")
        field = page.locator("#signal-1").get_by_label("Value")
        field.fill("half")
        client.post(f"/api/v1/tasks/{task_id}/pause", json={"reason": "wait a moment"})
        expect(page.locator("#paused")).to_contain_text("wait a moment")
        expect(field).to_have_value("half")
        expect(field).to_be_focused()
    client.post(f"/api/v1/tasks/{task_id}/cancel")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_double_click_starts_one_task(
    browser: Browser, running: Running, client: httpx.Client, scripts: bool
) -> None:
    """One task, whose page is shown; with scripts the button of a page gone back to is meant again."""
    name = f"clicked-{scripts}".lower()
    running.add_workflow(SEND.replace("send-greeting", name))
    with viewing(browser, running, scripts=scripts) as viewer:
        page = viewer.open(f"/workflows/{name}")
        page.get_by_role("button", name=f"Run {name}").dblclick()
        expect(page.locator("h1")).to_contain_text(name)
        expect(page).to_have_url(re.compile("/tasks/"))
        assert len(client.get("/api/v1/tasks", params={"workflow": name}).json()["tasks"]) == 1
        page.go_back()
        page.get_by_role("button", name=f"Run {name}").click()
        expect(page).to_have_url(re.compile("/tasks/"))
        assert len(client.get("/api/v1/tasks", params={"workflow": name}).json()["tasks"]) == (
            2 if scripts else 1
        )
