"""`/open` in a chat: a link to the dashboard with the person's own scopes."""

from agent.approvals.permission import Principal
from agent.channels.chat.command_handler import CommandHandler
from agent.core.scopes import implied
from agent.store.db.database import Database

PERSON = Principal("telegram", "7", implied(["approve"]), is_paired=True)


def test_a_paired_person_gets_a_link(sqlite_database: Database) -> None:
    """The link is made for the person who asks; nothing else may stand in the command."""
    asked: list[Principal] = []

    def link_of(principal: Principal) -> str:
        asked.append(principal)
        return "https://agent.example.com/sign-in/code"

    handler = CommandHandler(sqlite_database, 100, link_of)
    assert handler.reply(PERSON, "/open") == "https://agent.example.com/sign-in/code"
    assert asked == [PERSON]
    assert "write it as /open" in handler.reply(PERSON, "/open all")
    assert "/open" in handler.reply(PERSON, "/help")


def test_a_stranger_gets_none(sqlite_database: Database) -> None:
    """An account that is not paired learns nothing."""
    handler = CommandHandler(sqlite_database, 100, lambda _: "https://agent.example.com/x")
    stranger = Principal("telegram", "8", frozenset())
    assert "not paired" in handler.reply(stranger, "/open")


def test_without_a_dashboard_it_says_so(sqlite_database: Database) -> None:
    """An agent without its server has no pages."""
    handler = CommandHandler(sqlite_database, 100)
    assert "there is no dashboard" in handler.reply(PERSON, "/open")
