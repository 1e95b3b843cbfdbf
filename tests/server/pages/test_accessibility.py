"""Every page in both themes: axe finds nothing that is not minor, nothing overflows a phone, nothing is injected."""

import re
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from agent.core.clock import to_iso
from agent.server.pages.framework.assets import all_assets
from agent.server.pages.framework.renderings import Renderings
from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.screens.addresses import addresses
from tests.support.browser import DESKTOP, PHONE, sign_in, viewing
from tests.support.recorded_triggers import StillClock
from tests.support.sample_dashboard import NASTY, STEPS, fill, fill_nasty
from tests.support.server import Running

AXE_SCRIPT = Axe().axe_script
RUN_AXE = """options => axe.run(document, {resultTypes: ["violations"], ...options}).then(found =>
  found.violations.filter(each => each.impact !== "minor").map(each =>
    [each.id, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"""
"""Returns what is not minor, with the first places; the whole result of axe is a megabyte."""
INJECTED = """() => [document.querySelectorAll("#injected, [onerror], main script").length,
  "injected" in window, document.getElementById("main").textContent]"""
"""Elements made of a text, whether one ran, and what is shown."""
UNTIDY = """() => {
  const ids = [...document.querySelectorAll("[id]")].map(each => each.id);
  const landmarks = [...document.querySelectorAll("main section, main nav, main [role=search]")];
  const nameless = landmarks.filter(each => !each.ariaLabel && !document.getElementById(each.getAttribute("aria-labelledby")));
  const places = (form, part) => form.querySelector(part).getBoundingClientRect();
  const askew = [...document.querySelectorAll("[role=search]")].filter(form =>
    ["top", "bottom"].some(edge => Math.abs(places(form, "input")[edge] - places(form, "button")[edge]) > 1));
  const broken = [...document.querySelectorAll("button, .button")].filter(each => each.offsetHeight > 46);
  return [...ids.filter((id, at) => ids.indexOf(id) !== at).map(id => "two elements have the id " + id),
    ...nameless.map(each => "a landmark has no name: " + each.outerHTML.slice(0, 80)),
    ...askew.map(form => "the button of a search is not beside its field: " + form.action),
    ...broken.map(each => "the text of a button is broken: " + each.textContent)];
}"""
"""Returns what no person should see, and what a merge of new content would mix up."""
ALL_RULES: dict[str, Any] = {}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    """Return a server with something on every page, and the addresses of its pages."""
    home = tmp_path_factory.mktemp("filled")
    database = Database(f"sqlite:///{home}/agent.db")
    migrate.upgrade(database)
    with Running(database, Path(home), STEPS) as running:
        yield running, addresses(fill(running))


def test_pages_are_accessible(browser: Browser, filled: tuple[Running, dict[str, str]]) -> None:
    """Contrast, names, roles, landmarks and order: no violation on any page that is not minor.

    Each page is loaded once, on a phone in light, and then becomes a dark desktop: only style differs, so that
    only colours are checked again. Of the first page all is, since the navigation shows more on a desktop.
    """
    running, pages = filled
    found: dict[str, Any] = {}
    first = next(iter(pages))
    with viewing(browser, running, size=PHONE, has_refusals=True) as viewer:
        for name, path in pages.items():
            page = viewer.open(path)
            page.evaluate(AXE_SCRIPT)
            for theme, size in (("light", PHONE), ("dark", DESKTOP)):
                page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
                page.set_viewport_size(size)  # type: ignore[arg-type]
                rules = ALL_RULES if theme == "light" or name == first else COLOURS
                if serious := page.evaluate(RUN_AXE, rules):
                    found[f"{name}, {theme}"] = serious
                if wide := _overflow(page):
                    found[f"{name} is wider than {size['width']} px"] = wide
                if untidy := page.evaluate(UNTIDY):
                    found[f"{name} at {size['width']} px"] = untidy
    assert not found


def test_axe_is_asked_in_the_right_way(browser: Browser) -> None:
    """Axe finds a field without a name and grey text: checks that find nothing would pass every page."""
    page = browser.new_page()
    page.set_content("<main><p><input type=text><p id=grey>faint</main>")
    page.evaluate("() => { document.getElementById('grey').style.color = '#ddd'; }")
    page.evaluate(AXE_SCRIPT)
    assert {name for name, _ in page.evaluate(RUN_AXE, ALL_RULES)} >= {"label", "color-contrast"}
    assert [name for name, _ in page.evaluate(RUN_AXE, COLOURS)] == ["color-contrast"]
    page.set_content(
        "<p id=a><p id=a><button><p>two<p>lines<p>or more</button>"
        "<main><form role=search aria-label=Tasks><input><br><button>Search</button></form><section>"
    )
    assert [text.split(":")[0] for text in page.evaluate(UNTIDY)] == [
        "two elements have the id a",
        "a landmark has no name",
        "the button of a search is not beside its field",
        "the text of a button is broken",
    ]
    page.close()


def _overflow(page: Page) -> list[str]:
    """Return what makes a page scroll sideways."""
    shown: list[str] = page.evaluate(
        "() => document.documentElement.scrollWidth <= innerWidth ? [] :"
        " [...document.querySelectorAll('body *')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
        ".slice(0, 5).map(e => e.outerHTML.slice(0, 120))"
    )
    return shown


def test_nothing_can_be_injected(browser: Browser, tmp_path: Path) -> None:
    """Markup in every text that users, models or remotes can fill is shown as text."""
    database = Database(f"sqlite:///{tmp_path}/agent.db")
    migrate.upgrade(database)
    with Running(database, tmp_path, STEPS) as running:
        pages = addresses(fill_nasty(running))
        with viewing(browser, running, size=DESKTOP, has_refusals=True) as viewer:
            shown = set()
            for name, path in pages.items():
                made, ran, text = viewer.open(path).evaluate(INJECTED)
                assert (made, ran) == (0, False), name
                if NASTY in text:
                    shown.add(name)
    assert {"inbox", "tasks", "question"} <= shown


def test_pages_are_small(filled: tuple[Running, dict[str, str]]) -> None:
    """With its style sheet, script and icon each page is under 100 kB as it is sent."""
    running, pages = filled
    with running.client("") as client:
        client.cookies.set(running.server.cookie, sign_in(running))
        files = sum(len(asset.zipped) for asset in all_assets().values())
        for name, path in pages.items():
            with client.stream("GET", path) as response:
                sent = sum(len(piece) for piece in response.iter_raw())
            assert files + sent < 100_000, (name, files, sent)


def test_a_page_that_changes_with_the_time_says_so(
    filled: tuple[Running, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that looks different a day later, without an event, fetches itself now and then."""
    running, pages = filled
    context = running.server._context
    assert context is not None
    monkeypatch.setattr(Renderings, "_keep", lambda *_: None)
    later = copy(running.database)
    later.clock = StillClock(str(to_iso(running.database.clock.now())))
    later.clock.skip(86_400)
    frozen = set()
    with running.client() as client:
        client.cookies.set(running.server.cookie, sign_in(running))
        for name, path in pages.items():
            texts = []
            for database in (running.database, later):
                monkeypatch.setattr(context, "database", database)
                texts.append(re.sub('name="form_key" value="[^"]*"', "", client.get(path).text))
            if texts[0] != texts[1] and 'data-every=""' in texts[0]:
                frozen.add(name)
    assert not frozen
