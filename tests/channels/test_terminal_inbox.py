"""What `agent chat` shows: messages of steps and the ends of tasks started there, at least once."""

import pytest

from agent.approvals.permission import terminal_user
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.messages.messenger import ChannelMessenger
from agent.channels.terminal_inbox import TerminalInbox
from agent.config.settings import Settings
from agent.store.engine import workflow_versions
from agent.workflows.compile.compiler import compile_text
from tests.support.engine import Engine, eventually

BOTH = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)


def _register(engine: Engine, text: str) -> None:
    found = compile_text(text.encode(), "test.yaml")
    with engine.database.connect("writer") as tx, tx.transaction():
        workflow_versions.register(tx, found.name, found.hash, found.text, None, None, 1)


def _run(engine: Engine, user: str, line: str) -> str:
    handler = CommandHandler(engine.database, 1000)
    before = {row[0] for row in engine.rows("SELECT id FROM tasks")}
    handler.reply(terminal_user(user), line)
    ids = eventually(lambda: {row[0] for row in engine.rows("SELECT id FROM tasks")} - before)
    task_id = str(ids.pop())
    engine.wait(task_id, "succeeded", "failed")
    return task_id


def _texts(inbox: TerminalInbox, count: int) -> list[str]:
    """Return what there is to show once there is so much; PostgreSQL's log shows an event only
    when no transaction before it is open, another database's included.
    """
    texts = inbox.read().texts
    return texts if len(texts) >= count else []


@BOTH
def test_a_message_to_the_terminal_is_shown_until_it_was_seen(engine: Engine) -> None:
    """It waits for its reader, names its files, and is not shown again."""
    engine.worker.services.messenger = ChannelMessenger(Settings(), engine.database)
    _register(
        engine,
        "name: says\nsteps:\n  say:\n    message:\n      text: '**done**, see below'\n"
        "      attach: [{name: a.txt, value: content}]\n",
    )
    inbox = TerminalInbox(engine.database, "ada")
    inbox.confirm(inbox.read())
    _run(engine, "ada", "/run says")
    news = inbox.read()
    assert "done, see below" in news.texts[0]
    assert "a.txt, 7 bytes" in news.texts[1]
    assert len(news.texts) == 2, "the message is the report of the success"
    assert inbox.read().texts == news.texts, "it was not confirmed yet"
    inbox.confirm(news)
    assert inbox.read().texts == []
    assert TerminalInbox(engine.database, "bob").read().texts == []


@BOTH
def test_the_end_of_a_task_is_shown_to_its_starter(engine: Engine) -> None:
    """Once, and to no other user."""
    _register(engine, "name: adds\nsteps:\n  nap: {wait: 1ms}\noutput: {total: 42}\n")
    _register(
        engine,
        "name: fails\nsteps:\n  bad:\n    retry: {max_attempts: 1}\n"
        "    python: {call: 'tests.support.step_functions:missing'}\n",
    )
    ada, bob = TerminalInbox(engine.database, "ada"), TerminalInbox(engine.database, "bob")
    for inbox in (ada, bob):
        inbox.confirm(inbox.read())
    _run(engine, "ada", "/run adds")
    _run(engine, "ada", "/run fails")
    done, failed = eventually(lambda: _texts(ada, 2))
    assert done.endswith("succeeded\ntotal: 42")
    assert "/retry" in failed
    ada.confirm(ada.read())
    assert ada.read().texts == []
    assert bob.read().texts == []
