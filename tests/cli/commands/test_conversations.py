"""`agent conversations`: the same on a local database and with `--server`."""

from agent.store.db.database import Database
from tests.support.cli import Cli
from tests.support.conversations import said_before


def test_conversations_are_listed_shown_and_deleted(cli: Cli) -> None:
    """The list names them, `show` has numbers, tasks and tokens, `forget` asks before it deletes."""
    cli("init")
    assert "no conversation is kept" in cli("conversations").out
    database = Database(f"sqlite:///{next(cli.directory.rglob('agent.db'))}")
    said_before(database, "telegram:1", ("I am Ada", "Hello Ada"), now=database.clock.now())
    assert "telegram:1" in cli("conversations").out
    (listed,) = cli("conversations", "--json").json
    assert (listed["entries"], listed["tokens"]) == (2, 5)
    shown = cli("conversations", "show", "telegram:1").out
    assert "1 user  (" in shown and "Hello Ada" in shown and "3 tokens" in shown
    document = cli("conversations", "show", "telegram:1", "--after", "1", "--json").json
    assert [entry["role"] for entry in document["entries"]] == ["assistant"]
    cli("conversations", "show", "telegram:2", code=3)
    assert "--yes" in cli("conversations", "forget", "telegram:1", code=2).err
    assert cli("conversations", "forget", "telegram:1", "--yes", "--json").json["deleted"] == 2
    cli("conversations", "forget", "telegram:1", "--yes", code=3)
    assert cli("conversations", "--json").json == []
