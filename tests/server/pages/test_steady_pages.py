"""A page that changes while a person is about to press: nothing else comes to stand under the thumb."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from agent.store.engine import approval_rows
from tests.support.browser import DESKTOP, PHONE, viewing
from tests.support.sample_dashboard import CHOICE, PAY_INVOICE, SUMMARY, question_of
from tests.support.server import Running

HOLD_RESTS = """() => {
  const real = window.setTimeout;
  window.held = [];
  window.setTimeout = (act, delay, ...rest) => delay === 700 ? held.push(act) : real(act, delay, ...rest);
}"""
"""Controls that moved rest until `END_RESTS`, however fast or slow this machine is."""
END_RESTS = "() => held.splice(0).forEach((act) => act())"
SIZES = pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    for text in (PAY_INVOICE, CHOICE, SUMMARY):
        running.add_workflow(text)


@pytest.fixture(autouse=True)
def _nothing_open(client: httpx.Client) -> None:
    """Each test begins with an empty inbox."""
    for asked in client.get("/api/v1/approvals").json()["approvals"]:
        client.post(f"/api/v1/tasks/{asked['task']}/cancel")


def _ask(client: httpx.Client, workflow: str = "pay-invoice") -> str:
    created = client.post(f"/api/v1/workflows/{workflow}/tasks")
    return str(question_of(client, created.json()["id"])["id"])


def _status(client: httpx.Client, question: str) -> str:
    return str(client.get(f"/api/v1/approvals/{question}").json()["status"])


def _deny(client: httpx.Client, question: str) -> None:
    assert client.post(f"/api/v1/approvals/{question}/deny").is_success


def _card(page: Page, question: str) -> Locator:
    return page.locator(f'[data-question="{question}"]')


def _button(page: Page, question: str) -> Locator:
    """Return the button that approves, in view and at rest: what times say moves it after loading."""
    button = _card(page, question).get_by_role("button", name="Approve")
    button.scroll_into_view_if_needed()
    expect(button).to_be_enabled()
    return button


def _place(element: Locator) -> tuple[int, int]:
    """Return where the middle of an element is in the window."""
    box: Any = element.bounding_box()
    return round(box["x"] + box["width"] / 2), round(box["y"] + box["height"] / 2)


@SIZES
@pytest.mark.parametrize("above", ["pay-invoice", "pick-cover"], ids=["equal", "unequal"])
def test_a_tap_hits_what_was_in_view(
    browser: Browser, running: Running, client: httpx.Client, size: dict[str, int], above: str
) -> None:
    """Cards above and below end and a new one comes: the button in view stays under the thumb."""
    first, viewed, below = _ask(client, above), _ask(client), _ask(client)
    with viewing(browser, running, size=size) as viewer:
        page = viewer.open("/")
        button = _button(page, viewed)
        place, height = _place(button), _card(page, first).bounding_box()["height"]  # type: ignore[index]
        _deny(client, first)
        expect(page.locator("[data-stub]")).to_contain_text("denied by owner")
        assert abs(page.locator("[data-stub]").bounding_box()["height"] - height) < 1  # type: ignore[index]
        assert _place(button) == place
        _deny(client, below)
        added = _ask(client)
        expect(_card(page, added)).to_be_attached()
        expect(page.locator("[data-stub]")).to_have_count(2)
        assert _place(button) == place
        page.mouse.click(*place)
        expect(page.locator(".notice")).to_contain_text("Approved")
        expect(page.locator("[data-stub]")).to_have_count(0)
    assert [_status(client, each) for each in (viewed, added)] == ["approved", "pending"]


def test_a_stub_says_what_was_decided(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The question of a task's page was answered elsewhere: its place shows the decision, and no notice is lost."""
    question = _ask(client)
    task = client.get(f"/api/v1/approvals/{question}").json()["task"]
    with viewing(browser, running) as viewer:
        page = viewer.open(f"/tasks/{task}")
        csrf = page.locator("[name=csrf]").first.input_value()
        page.request.post(f"/tasks/{task}/pause", form={"csrf": csrf}, max_redirects=0)
        _deny(client, question)
        expect(page.locator("[data-stub]")).to_contain_text("Pay invoice 4711")
        expect(page.locator("[data-stub]")).to_contain_text("denied by owner")
        expect(viewer.open("/").locator(".notice")).to_contain_text("Paused")


@SIZES
def test_what_appears_above_moves_nothing_in_view(
    browser: Browser, running: Running, client: httpx.Client, size: dict[str, int]
) -> None:
    """A deferred question that is due again stands above: the page scrolls by its height."""
    first, viewed = _ask(client, "pick-cover"), _ask(client)
    with running.database.connect("writer") as tx, tx.transaction():
        approval_rows.set_reminder(tx, first, running.database.clock.now() + 10**12)
    with viewing(browser, running, size=size) as viewer:
        page = viewer.open("/")
        button = _button(page, viewed)
        place = _place(button)
        with running.database.connect("writer") as tx, tx.transaction():
            approval_rows.set_reminder(tx, first, running.database.clock.now() - 1)
        _ask(client)
        expect(page.locator("#deferred-title")).to_have_count(0)
        # A browser scrolls by whole pixels.
        assert _place(button) == pytest.approx(place, abs=1)
        assert _place(_card(page, first))[1] < place[1]


def test_a_press_on_what_has_just_appeared_is_ignored(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The page says why; pressed again a moment later, the button acts."""
    with viewing(browser, running) as viewer:
        page = viewer.open("/")
        page.evaluate(HOLD_RESTS)
        question = _ask(client)
        button = _card(page, question).get_by_role("button", name="Approve")
        expect(button).to_have_attribute("aria-disabled", "true")
        page.mouse.click(*_place(button))
        expect(page.locator("#hint")).to_contain_text("Press it again")
        assert _status(client, question) == "pending"
        page.evaluate(END_RESTS)
        page.mouse.click(*_place(button))
        expect(page.locator(".notice")).to_contain_text("Approved")
    assert _status(client, question) == "approved"


def test_a_press_does_not_send_what_has_just_changed(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """A new version of a workflow brings another default into the form: the button rests."""
    text = "name: greet\ninputs: {to: {type: string, default: Ada}}\nsteps: {go: {wait: 1ms}}\n"
    running.add_workflow(text)
    with viewing(browser, running) as viewer:
        page = viewer.open("/workflows/greet")
        button = page.get_by_role("button", name="Run greet")
        expect(button).to_be_enabled()
        page.evaluate(HOLD_RESTS)
        running.add_workflow(text.replace("Ada", "all"))
        client.post("/api/v1/workflows/greet/tasks")
        expect(page.locator('[name="value:to"]')).to_have_value("all")
        expect(button).to_have_attribute("aria-disabled", "true")


def test_a_second_tap_does_not_answer_the_next_question(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """After an answer the next card stands where the last one was: its buttons rest first."""
    first, second = _ask(client), _ask(client)
    with viewing(browser, running) as viewer:
        viewer.open("/")
        page = viewer.context.new_page()
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.add_init_script(f"({HOLD_RESTS})()")
        page.goto("/")
        page.evaluate(END_RESTS)
        _card(page, first).get_by_role("button", name="Approve").click()
        expect(page.locator(".notice")).to_contain_text("Approved")
        button = _card(page, second).get_by_role("button", name="Approve")
        button.scroll_into_view_if_needed()
        page.mouse.click(*_place(button))
        expect(page.locator("#hint")).to_contain_text("Press it again")
    assert [_status(client, each) for each in (first, second)] == ["approved", "pending"]


@SIZES
def test_a_half_typed_comment_keeps_its_focus(
    browser: Browser, running: Running, client: httpx.Client, size: dict[str, int]
) -> None:
    """A card above ends, then the card itself: what is typed never becomes a shortcut."""
    first, viewed = _ask(client), _ask(client)
    with viewing(browser, running, size=size) as viewer:
        page = viewer.open("/")
        comment = _card(page, viewed).get_by_label("Comment")
        comment.focus()
        page.keyboard.type("half ")
        _deny(client, first)
        expect(page.locator("[data-stub]")).to_have_count(1)
        page.keyboard.type("a sent")
        expect(comment).to_be_focused()
        expect(comment).to_have_value("half a sent")
        _deny(client, viewed)
        stub = page.locator("[data-stub]", has_text="half a sent")
        expect(stub).to_contain_text("denied by owner")
        expect(stub).to_be_focused()
        page.keyboard.type("?gt")
        expect(page.locator("dialog")).to_be_hidden()
        stub.get_by_role("button", name="Hide").click()
        expect(page.locator("[data-stub]")).to_have_count(1)
        page.keyboard.type("gt")
        expect(page.locator("h1")).to_have_text("Tasks")


def test_a_budget_that_was_raised_elsewhere_leaves_its_place(
    browser: Browser, running: Running, client: httpx.Client
) -> None:
    """The section of the last used-up budget ends as a card does: what is below it stays."""
    created = client.post("/api/v1/workflows/summarize-letter/tasks").json()
    running.wait_for_task(client, created["id"], "paused")
    question = _ask(client)
    with running.database.connect("writer") as tx, tx.transaction():
        approval_rows.set_reminder(tx, question, running.database.clock.now() + 10**12)
    with viewing(browser, running, size=DESKTOP) as viewer:
        page = viewer.open("/")
        button = _button(page, question)
        place = _place(button)
        client.post(f"/api/v1/tasks/{created['id']}/cancel")
        expect(page.locator("[data-stub]")).to_contain_text("no longer waits")
        assert _place(button) == place
