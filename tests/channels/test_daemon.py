"""Channels as people use them: a real daemon, and the command line beside it."""

import re
from pathlib import Path

import pytest

from tests.support.chat_server import Failure, received, shown_to
from tests.support.cli import Cli
from tests.support.engine import eventually
from tests.support.telegram_server import BotServer

_UNPAIRED = "no account is paired: write to the bot, then `agent pair CODE`"
ASKING = """\
name: asking
on: {chat: {command: please}}
steps:
  pay: {approval: {message: "Pay 12 to Ada?"}}
"""


def _findings(cli: Cli, code: int = 0) -> tuple[str, str]:
    found = cli("doctor", "--json", code=code).json["findings"]
    return next((each["state"], each["message"]) for each in found if "telegram" in each["what"])


@pytest.mark.process
def test_pairing_asking_and_ending(cli: Cli, tmp_path: Path) -> None:
    """Write to the bot, confirm the code, be asked, press the button; doctor and log show it."""
    peer = BotServer(tmp_path)
    settings = peer.settings().telegram
    cli.environment |= {
        "AGENT_CHANNELS__TELEGRAM__TOKEN": settings.token,
        "AGENT_CHANNELS__TELEGRAM__API_URL": settings.api_url,
        "AGENT_CHANNELS__TELEGRAM__POLL_SECONDS": "2",
        "AGENT_SERVER__PORT": "0",
    }
    cli("init")
    cli.write("workflows/asking.yaml", ASKING)
    ada = peer.identity(1)
    try:
        with cli.daemon():
            eventually(lambda: _findings(cli) == ("warning", _UNPAIRED))
            peer.write(ada, "hello")
            match = re.search(r"agent pair (\S+)", received(peer, ada, "agent pair").text)
            assert match is not None
            cli("pair", "WRONG-CODE", code=3)
            cli("pair", match[1], "--scope", "everything", code=2)
            assert f"telegram:{ada}" in cli("pair", match[1]).out
            peer.write(ada, "/please")
            shown = shown_to(peer, ada, lambda each: bool(each.buttons))
            peer.press(ada, shown.buttons["Approve"])
            eventually(lambda: "✓ approved" in shown.text)
            cli.wait_for(lambda: cli("tasks", "--json").json[0]["status"] == "succeeded")
            assert _findings(cli) == ("ok", "everything is delivered; 1 paired")
            peer.fail("receive", *[Failure(409, "Conflict: terminated by other request")] * 100)
            # The second time it is logged, the first one is on record.
            log = cli.directory / "daemon.log"
            eventually(lambda: log.read_text().count("channel.not_heard") >= 2)
            assert "Conflict" in _findings(cli, code=3)[1]
            assert [each["who"] for each in cli("pairings", "--json").json] == [f"telegram:{ada}"]
            cli("pairings", "remove", f"telegram:{ada}")
            cli("pairings", "remove", f"telegram:{ada}", code=3)
            assert "no account is paired" in cli("pairings", "list").out
    finally:
        peer.close()
    text = log.read_text()
    assert '"event": "channel.opened"' in text
    assert '"event": "channels.stopped"' in text
    assert "the-bot-of-the-tests" not in text, "the log must not hold the token"
