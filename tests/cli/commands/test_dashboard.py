"""`agent open`, and sessions in `agent token`."""

import re

import pytest

from agent.config.loader import load
from agent.server.access.sessions import Sessions
from tests.support.cli import Cli

LINK = re.compile(r"http://127\.0\.0\.1:8420/sign-in/(agent_[\w-]+)")


def _begin(cli: Cli, code: str) -> None:
    Sessions(load(str(cli.directory / "config.toml")).home).begin(code)


@pytest.fixture(autouse=True)
def _set_up(cli: Cli) -> None:
    cli("init")


def test_the_link_is_printed_where_there_is_no_browser(cli: Cli) -> None:
    """The link is on standard output alone; without a running agent it says so."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        cli.environment[name] = ""
    opened = cli("open")
    assert LINK.fullmatch(opened.out.strip())
    assert "no agent is running" in opened.err
    assert "it works once" in opened.err


def test_a_code_for_a_phone(cli: Cli) -> None:
    """The QR code is drawn, and an address that no phone reaches is named."""
    opened = cli("open", "--qr")
    assert "▄" in opened.out or "█" in opened.out
    assert LINK.search(opened.out)
    assert "public_url" in opened.err


def test_sessions_are_listed_and_revoked_as_tokens_are(cli: Cli) -> None:
    """A session appears once its link is used; a link that is not used does not."""
    cli("token", "create", "ci", "--scope", "read")
    document = cli("open", "--json", "--name", "phone", "--scope", "approve").json
    assert document["name"] == "phone"
    assert [each["name"] for each in cli("token", "list", "--json").json] == ["ci"]
    _begin(cli, document["url"].rpartition("/")[2])
    listed = {each["name"]: each for each in cli("token", "list", "--json").json}
    assert (listed["ci"]["kind"], listed["phone"]["kind"]) == ("token", "session")
    assert listed["phone"]["scopes"] == ["approve"]
    assert "session" in cli("token", "list").out
    cli("token", "revoke", "phone")
    assert [each["name"] for each in cli("token", "list", "--json").json] == ["ci"]
    assert "no token called" in cli("token", "revoke", "phone", code=3).err


def test_wrong_scopes_and_durations_are_refused(cli: Cli) -> None:
    """The message says what would be right."""
    assert "there is no scope 'root'" in cli("open", "--scope", "root", code=3).err
    assert "greater than zero" in cli("open", "--expires", "0s", code=2).err
