"""Fixtures of the pages' tests: one browser and one server per module."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.browser import running_browser, sign_in
from tests.support.server import Running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser. One per module: its event loop would be in the way of other modules' own."""
    with running_browser() as browser:
        yield browser


@pytest.fixture
def visitor(running: Running) -> Iterator[httpx.Client]:
    """Return a client with a session of every scope, for tests that need no browser."""
    with running.client("") as client:
        client.cookies.set(running.server.cookie, sign_in(running))
        yield client
