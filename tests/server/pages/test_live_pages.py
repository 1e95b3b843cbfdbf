"""Pages in a real browser show a change soon after its commit, and survive what happens to them."""

import re
import time
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.browser import DESKTOP, viewing
from tests.support.sample_dashboard import PAY_INVOICE, TRIP, question_of
from tests.support.sample_workflows import SIGNALLED
from tests.support.server import Running


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    running.add_workflow(PAY_INVOICE)
    running.add_workflow(SIGNALLED)


def _start(client: httpx.Client, workflow: str) -> str:
    return str(client.post(f"/api/v1/workflows/{workflow}/tasks").json()["id"])


@pytest.mark.measured
def test_a_change_is_shown_within_a_second(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The median of a few commits; a single one may wait for the machine."""
    with viewing(browser, running) as viewer:
        page = viewer.open("/tasks")
        expect(page.locator("h1")).to_have_text("Tasks")
        seconds = []
        for _ in range(5):
            task_id = _start(client, "signalled")
            committed = time.monotonic()
            expect(page.locator(f"#task-{task_id}")).to_be_visible()
            seconds.append(time.monotonic() - committed)
    assert sorted(seconds)[2] < 1.0, seconds


def test_the_top_of_a_list_shows_what_is_new(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """Rows move down while a person watches; below the top they stay where they are."""
    for _ in range(12):
        _start(client, "signalled")
    with viewing(browser, running, size=DESKTOP) as viewer:
        page = viewer.open("/tasks")
        page.mouse.move(640, 500)
        expect(page.locator(f"#task-{_start(client, 'signalled')}")).to_be_attached()
        assert page.evaluate("scrollY") == 0
        page.mouse.wheel(0, 200)
        page.wait_for_function("() => scrollY > 100")
        before = page.evaluate("scrollY")
        expect(page.locator(f"#task-{_start(client, 'signalled')}")).to_be_attached()
        assert page.evaluate("scrollY") > before


def test_a_refresh_keeps_what_a_person_is_doing(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """Focus, the caret, typed text, opened details and the scroll stay while the page changes."""
    asked = question_of(client, _start(client, "pay-invoice"))
    with viewing(browser, running) as viewer:
        page = viewer.open("/")
        card = page.locator(f'[data-question="{asked["id"]}"]')
        card.get_by_text("Change it before you approve").click()
        comment = card.get_by_label("Comment")
        comment.fill("half a sentence")
        comment.press("ArrowLeft")
        before = page.evaluate("[scrollY, document.activeElement.selectionStart]")
        second = question_of(client, _start(client, "pay-invoice"))
        expect(page.locator(f'[data-question="{second["id"]}"]')).to_be_visible()
        expect(comment).to_be_focused()
        expect(comment).to_have_value("half a sentence")
        expect(card.get_by_label("argv")).to_be_visible()
        assert page.evaluate("[scrollY, document.activeElement.selectionStart]") == before


def test_the_page_of_a_refused_form_is_live(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """It stands at its own address, keeps what was typed and chosen, and follows what happens."""
    running.add_workflow(TRIP)
    task_id = _start(client, "book-trip")
    asked = question_of(client, task_id)
    with viewing(browser, running, has_refusals=True) as viewer:
        page = viewer.open("/")
        card = page.locator(f'[data-question="{asked["id"]}"]')
        card.get_by_label("City").fill("Riga")
        card.get_by_label("Nights").fill("many")
        card.get_by_label("Room").select_option("single")
        card.get_by_role("button", name="Answer").click()
        expect(page.locator("#problem")).to_contain_text("many")
        expect(page).to_have_url(re.compile(f"/questions/{asked['id']}$"))
        other = question_of(client, _start(client, "pay-invoice"))
        expect(page.locator("#waiting-count")).not_to_have_text("1 waiting for you")
        for label, value in (("City", "Riga"), ("Nights", "many"), ("Room", "single")):
            expect(page.get_by_label(label)).to_have_value(value)
        body = {"value": {"city": "Oslo", "nights": 1, "room": "double"}}
        answered = client.post(f"/api/v1/approvals/{asked['id']}/answer", json=body)
        assert answered.is_success, answered.text
        expect(page.get_by_role("status").filter(has_text="answered by")).to_be_visible()
        client.post(f"/api/v1/tasks/{other['task']}/cancel")


def test_an_address_that_does_not_exist_stays_as_it_is(browser: Browser, running: Running) -> None:
    """Its page neither fetches itself nor reloads: each time would count as a failed sign-in."""
    with viewing(browser, running, has_refusals=True) as viewer:
        requests: list[str] = []
        viewer.page.on("request", lambda request: requests.append(request.url))
        for path in ("/nonsense", "/tasks/nonsense"):
            page = viewer.open(path)
            expect(page.locator("h1")).to_have_text("Not found")
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            page.wait_for_load_state("networkidle")
            assert [url.endswith(path) for url in requests].count(True) == 1
            assert not any("/live" in url for url in requests)


def test_a_session_that_is_revoked_while_looking(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The open page becomes the signed-out page by itself, and stays it."""
    with viewing(browser, running, name="revoked", has_refusals=True) as viewer:
        page = viewer.open("/tasks")
        running.server.sessions.revoke("revoked")
        expect(page.locator("h1")).to_have_text("Signed out")
        expect(page.locator("script")).to_have_count(0)


def test_a_page_survives_a_restart_of_the_daemon(browser: Browser, tmp_path: Path) -> None:
    """It says that it is not connected, keeps what was typed, and is live again afterwards."""
    database = Database(f"sqlite:///{tmp_path}/agent.db")
    migrate.upgrade(database)
    with Running(database, tmp_path) as first:
        first.add_workflow(PAY_INVOICE)
        port = int(first.server.url.rpartition(":")[2])
        with first.client() as client:
            asked = question_of(client, _start(client, "pay-invoice"))
        with viewing(browser, first, has_refusals=True) as viewer:
            page = viewer.open("/")
            comment = page.locator(f'[data-question="{asked["id"]}"]').get_by_label("Comment")
            comment.fill("typed before")
            approve = page.locator(f'[data-question="{asked["id"]}"]').get_by_role(
                "button", name="Approve"
            )
            expect(approve).to_be_enabled()
            first.stop()
            expect(page.locator(".offline")).to_be_visible()
            expect(approve).to_be_disabled()
            with Running(Database(f"sqlite:///{tmp_path}/agent.db"), tmp_path, port=port) as second:
                with second.client() as client:
                    task_id = _start(client, "pay-invoice")
                    later = question_of(client, task_id)
                expect(page.locator(f'[data-question="{later["id"]}"]')).to_be_visible()
                expect(page.locator(".offline")).to_be_hidden()
                expect(approve).to_be_enabled()
                expect(comment).to_have_value("typed before")
                page.goto("about:blank")


@pytest.mark.parametrize("every", ["5", "soon", "²"])
def test_a_stream_is_opened_whatever_its_interval(visitor: httpx.Client, every: str) -> None:
    """What is no number asks for no messages."""
    with visitor.stream("GET", "/live", params={"every": every}) as stream:
        assert stream.status_code == 200


def test_a_hidden_page_closes_its_stream(browser: Browser, running: Running) -> None:
    """Six open streams would block every further tab of a browser."""
    with viewing(browser, running) as viewer:
        for _ in range(7):
            tab = viewer.context.new_page()
            tab.goto("/tasks")
            expect(tab.locator("h1")).to_have_text("Tasks")
            # Headless tabs are never hidden by themselves.
            tab.evaluate(
                "Object.defineProperty(document, 'hidden', {get: () => true});"
                "document.dispatchEvent(new Event('visibilitychange'))"
            )


def test_keyboard_shortcuts(browser: Browser, running: Running, client: httpx.Client) -> None:
    """`?` lists them, `/` searches, `g` and a letter goes to a page, `j` to the next entry."""
    task_id = _start(client, "signalled")
    with viewing(browser, running) as viewer:
        page = viewer.open("/tasks")
        expect(page.locator(f"#task-{task_id}")).to_be_visible()
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_text("More", exact=True).click()
        page.get_by_role("button", name="Keyboard shortcuts").click()
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#more")).not_to_have_attribute("open", "")
        page.keyboard.press("j")
        expect(page.locator("[data-entry] a").first).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_label("Search")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("i")
        expect(page.locator("h1")).to_have_text("Inbox")
