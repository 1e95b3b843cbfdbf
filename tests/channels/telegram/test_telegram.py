"""Behaviour that only Telegram has."""

import pytest

from tests.support.approvals import asked, gated, say, token
from tests.support.chat import Chat
from tests.support.chat_server import shown_to
from tests.support.telegram_server import BotServer


@pytest.mark.parametrize("peer", ["telegram"], indirect=True)
def test_addresses_in_a_question_are_not_fetched(chat: Chat) -> None:
    """A link preview would fetch an address that is not approved yet."""
    assert isinstance(chat.peer, BotServer)
    ada = chat.pair()
    message = "Fetch https://example.com/unsubscribe?all=yes now?"
    task_id, approval = asked(chat.engine, gated("pay", token(), message=message))
    shown_to(chat.peer, ada, lambda each: message in each.text)
    say(chat.engine, approval, "deny")
    chat.engine.wait(task_id, "failed")
    shown_to(chat.peer, ada, lambda each: message in each.text and "denied" in each.text)
    assert chat.peer.fetched == []
