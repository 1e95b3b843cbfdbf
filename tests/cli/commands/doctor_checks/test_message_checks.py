"""`agent doctor` names the recipients of workflows that would not be reached."""

from agent.cli.commands.doctor_checks.message_checks import message_checks
from agent.config.channels import ChannelSettings, NotifySettings, TelegramSettings
from agent.config.settings import Settings
from agent.store.channels import pairings
from agent.store.db.database import Database
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph

TELEGRAM = ChannelSettings(telegram=TelegramSettings(token="env:BOT"))


def _graph(keys: str, on: str = "") -> Graph:
    return compile_text(
        f"name: says\n{on}steps:\n  say: {{message: {keys}}}\n".encode(), "says.yaml"
    )


def _found(database: Database, settings: Settings, *graphs: Graph) -> list[str]:
    with database.connect("reader") as connection:
        return [message for _, _, message in message_checks(settings, connection, graphs)]


def test_an_operator_that_is_no_one_is_named(sqlite_database: Database) -> None:
    """Until someone who may operate is paired in a channel that is on, or the list is set."""
    graph = _graph("{to: operator, text: hello}")
    settings = Settings(channels=TELEGRAM)
    (found,) = _found(sqlite_database, settings, graph)
    assert "step say of says sends to operator" in found
    assert "agent pair CODE" in found
    listed = settings.model_copy(update={"notify": NotifySettings(operator=["terminal:ada"])})
    assert _found(sqlite_database, listed, graph) == []
    with sqlite_database.connect("writer") as tx, tx.transaction():
        pairings.offer(tx, "telegram", "1", "Ada", "CODE", 2**60, 1)
        pairings.confirm(tx, "CODE", ["operate"], 1)
    assert _found(sqlite_database, settings, graph) == []
    assert len(_found(sqlite_database, Settings(), graph)) == 1, "that channel is not used"


def test_the_default_is_the_operator_unless_a_chat_starts_it(sqlite_database: Database) -> None:
    """Without `to` a scheduled task would reach no one; one of a chat has its origin."""
    assert len(_found(sqlite_database, Settings(), _graph("{text: hello}"))) == 1
    in_chat = _graph("{text: hello}", "on:\n  chat: {text: true}\n")
    assert _found(sqlite_database, Settings(), in_chat) == []


def test_a_channel_that_is_not_configured_is_named(sqlite_database: Database) -> None:
    """In a step and in the list of operators."""
    graph = _graph("{to: ['slack:U1', 'telegram:1'], text: hello}")
    settings = Settings(channels=TELEGRAM, notify=NotifySettings(operator=["slack:U2"]))
    first, second = _found(sqlite_database, settings, graph)
    assert first.startswith("operator in [notify]: slack:U2 needs the channel slack")
    assert second.startswith("step say of says: slack:U1 needs the channel slack")
