"""A real Chromium for tests of the pages, where one is installed.

Elsewhere these tests are skipped, and the skip says why; `AGENT_TEST_BROWSER=required` fails them
instead. The browser loads nothing but the pages under test, and a test fails on an error in the
page's script, a blocked resource or a failed request.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

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
)
PATIENCE_MS = 30_000
_REFUSAL = "Failed to load resource"


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
        try:
            yield browser
        finally:
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
    options: dict[str, Any] = {"viewport": size or PHONE}
    context = browser.new_context(
        base_url=running.server.url,
        color_scheme=scheme,
        java_script_enabled=scripts,
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
        **options,
    )
    context.set_default_timeout(PATIENCE_MS)
    cookie = running.server.cookie
    context.add_cookies(
        [{"name": cookie, "value": sign_in(running, *scopes, name=name), "url": running.server.url}]
    )
    page = context.new_page()
    viewer = Viewer(context, page)
    page.on("pageerror", lambda error: viewer.problems.append(f"script: {error}"))
    page.on(
        "console",
        lambda message: (
            viewer.problems.append(f"console: {message.text}")
            if message.type == "error" and not (has_refusals and _REFUSAL in message.text)
            else None
        ),
    )
    try:
        yield viewer
    finally:
        context.close()
    assert not viewer.problems, viewer.problems
