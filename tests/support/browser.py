"""A real Chromium for tests of the pages, where one is installed.

Elsewhere these tests are skipped, and the skip says why; `AGENT_TEST_BROWSER=required` fails them
instead. The browser loads nothing but the pages under test, and a test fails on an error in the
page's script, a blocked resource or a failed request.

A new context and the process of a new page cost Chromium five times what a visit costs. Windows of one server
therefore take the page that an earlier window left, without its cookies.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    sync_playwright,
)

from tests.support.server import Running

PHONE = {"width": 360, "height": 780}
DESKTOP = {"width": 1280, "height": 900}
# Without the background flags it floods a closed network with refused connections.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    # One process for all pages, and none for graphics: starting processes is most of what a test costs.
    "--in-process-gpu",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
)
PATIENCE_MS = 30_000
_REFUSAL = "Failed to load resource"


_spare: dict[Browser, dict[tuple[str, bool], list[Page]]] = {}
"""Pages that no window uses, each alone in its context, by their server and by whether scripts run."""


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Yield a browser; skip the test, or fail it, where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        reason = "no chromium on PATH: the pages are not tested in a browser"
        if os.environ.get("AGENT_TEST_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        _spare[browser] = {}
        try:
            yield browser
        finally:
            del _spare[browser]
            browser.close()


@dataclass
class Viewer:
    """A signed-in browser window, and what went wrong in it."""

    context: BrowserContext
    page: Page
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open a page of the dashboard."""
        self.page.goto(path)
        return self.page


def sign_in(running: Running, *scopes: str, name: str = "browser") -> str:
    """Begin a session with these scopes, all by default; return the text of its cookie."""
    sessions = running.server.sessions
    code, _ = sessions.create_link(name, scopes or ("admin",))
    return sessions.begin(code).token


@contextmanager
def viewing(
    browser: Browser,
    running: Running,
    *scopes: str,
    size: dict[str, int] | None = None,
    dark: bool = False,
    scripts: bool = True,
    name: str = "browser",
    has_refusals: bool = False,
) -> Iterator[Viewer]:
    """Yield a window that is signed in; fail if its console shows an error.

    The console also shows responses with a bad status, unless the test expects them.
    """
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    url, cookie = running.server.url, running.server.cookie
    spare = _spare[browser].setdefault((url, scripts), [])
    page = spare.pop() if spare else _new_page(browser, url, scripts)
    context = page.context
    token = sign_in(running, *scopes, name=name)
    context.add_cookies([{"name": cookie, "value": token, "url": url}])
    page.set_viewport_size(size or PHONE)  # type: ignore[arg-type]
    page.emulate_media(media="screen", color_scheme=scheme)
    viewer = Viewer(context, page)

    def script_failed(error: Error) -> None:
        viewer.problems.append(f"script: {error}")

    def message_shown(message: ConsoleMessage) -> None:
        if message.type == "error" and not (has_refusals and _REFUSAL in message.text):
            viewer.problems.append(f"console: {message.text}")

    page.on("pageerror", script_failed)
    page.on("console", message_shown)
    try:
        yield viewer
    except BaseException:
        context.close()
        raise
    for other in context.pages[1:]:
        other.close()
    page.goto("about:blank")
    page.remove_listener("pageerror", script_failed)
    page.remove_listener("console", message_shown)
    context.clear_cookies()
    spare.append(page)
    assert not viewer.problems, viewer.problems


def _new_page(browser: Browser, url: str, scripts: bool) -> Page:
    context = browser.new_context(
        base_url=url,
        java_script_enabled=scripts,
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
        viewport=PHONE,  # type: ignore[arg-type]
    )
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()
