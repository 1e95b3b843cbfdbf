"""`agent chat`: a prompt for the commands of chats, which also shows questions, messages and task ends."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.cli import invocation, session

if TYPE_CHECKING:
    from agent.approvals.permission import Principal
    from agent.channels.chat.command_handler import CommandHandler
    from agent.channels.terminal_inbox import TerminalInbox
    from agent.config.settings import Settings
    from agent.store.db.database import Database

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 60.0
"""How long commands from a pipe wait for the answers of tasks, once all were read."""
_MAX_LENGTH = 20_000
_LEAVING = frozenset({"/quit", "/exit"})


def chat() -> None:
    """Talk to the assistant and run the commands of chats.

    Text goes to the workflow that takes it (`on: chat: {text: true}`), commands begin with a slash.
    Questions, messages and the ends of your tasks are shown. Also reads lines from a pipe, and then
    waits for the answers, for a minute at most.
    """
    from agent import bootstrap
    from agent.approvals.permission import terminal_user
    from agent.channels.chat.command_handler import CommandHandler
    from agent.channels.terminal_inbox import TerminalInbox
    from agent.cli import other_agents
    from agent.cli.output import terminal
    from agent.core.logs import audit, logging
    from agent.server.access.one_time_links import chat_links

    session.require_person("use the chat")
    settings = session.settings()
    database = other_agents.open_database(settings)
    logging.configure(settings.log.format, "warning")
    audit.configure(settings.home)
    handler = CommandHandler(
        database,
        settings.engine.steps_per_task,
        chat_links(settings),
        _watcher_check(settings, database),
    )
    principal = terminal_user(invocation.user())
    if bootstrap.holder_of(database) is None:
        terminal.note(other_agents.no_agent(settings, "resumes unfinished tasks"))
    inbox = TerminalInbox(database, principal.identity)
    if sys.stdin.isatty():
        _prompt(database, handler, principal, inbox)
        return
    _show_news(inbox, print)
    unanswered = 0
    for line in sys.stdin:
        if line.strip() in _LEAVING:
            break
        if line.strip() and not _print_reply(handler.reply(principal, line)):
            unanswered += 1
    if bootstrap.holder_of(database) is None:
        unanswered = 0
    _await_answers(inbox, unanswered)


def _watcher_check(settings: "Settings", database: "Database") -> "Callable[[str], dict[str, Any]]":
    """Return what polls a watcher; its sources are loaded when it is used."""

    def check(trigger_id: str) -> dict[str, Any]:
        from agent import bootstrap
        from agent.triggers.check import check_watcher

        limits = bootstrap.limits_of(settings)
        return check_watcher(database, database.clock, limits, trigger_id)

    return check


def _prompt(
    database: "Database",
    handler: "CommandHandler",
    principal: "Principal",
    inbox: "TerminalInbox",
) -> None:
    """Read lines at a prompt while another thread prints new messages above it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.patch_stdout import patch_stdout

    from agent.channels.chat.commands import COMMANDS

    words = [f"/{name}" for name in (*COMMANDS, "quit")]
    prompt: PromptSession[str] = PromptSession(
        completer=WordCompleter(words, sentence=True), complete_while_typing=False
    )
    if takers := handler.takers_of_text():
        print(f"type a sentence: the workflow {takers[0]} answers")
    print("/help lists the commands, /quit or Ctrl-D leaves; questions and messages are shown here")
    is_closing = threading.Event()
    with patch_stdout():
        watching = threading.Thread(
            target=_show_all, args=(database, inbox, is_closing, print), daemon=True
        )
        watching.start()
        try:
            while (line := prompt.prompt("agent> ").strip()) not in _LEAVING:
                if line:
                    _print_reply(handler.reply(principal, line))
        except (EOFError, KeyboardInterrupt):
            pass
        finally:
            is_closing.set()
            watching.join()


def _print_reply(reply: str) -> bool:
    """Print a reply; return whether there was one: otherwise a task answers."""
    from agent.cli.output import terminal

    if reply:
        print(terminal.harmless(reply), flush=True)
    return bool(reply)


def _await_answers(inbox: "TerminalInbox", count: int) -> None:
    """Show new messages until each started task has answered."""
    from agent.cli.output import terminal

    give_up = time.monotonic() + _ANSWER_SECONDS
    while (count := count - _show_news(inbox, print)) > 0:
        if time.monotonic() > give_up:
            terminal.note(f"messages not answered yet: {count}; `agent approvals` lists questions")
            return
        time.sleep(_POLL_SECONDS)


def _show_all(
    database: "Database",
    inbox: "TerminalInbox",
    is_closing: threading.Event,
    show: Callable[[str], None],
) -> None:
    """Show the open questions and unread messages, then whatever is new, and every decision."""
    from agent.store.db.database import StoreError

    shown: dict[str, str] = {}
    while not is_closing.is_set():
        try:
            _show_questions(database, shown, show)
            _show_news(inbox, show)
        except StoreError as error:
            show(f"the database cannot be read: {error}")
            is_closing.wait(10 * _POLL_SECONDS)
        is_closing.wait(_POLL_SECONDS)


def _show_questions(
    database: "Database", shown: dict[str, str], show: Callable[[str], None]
) -> None:
    from agent.channels.chat import message_texts
    from agent.cli.output import terminal

    for document in _changed(database, shown):
        is_open = document["status"] == "pending"
        text = message_texts.question(document, _MAX_LENGTH)[0] if is_open else ""
        show("\n" + terminal.harmless(text or message_texts.closed_question(document, _MAX_LENGTH)))
        if is_open:
            show(message_texts.how_to_answer(document))


def _show_news(inbox: "TerminalInbox", show: Callable[[str], None]) -> int:
    """Show messages and the ends of tasks, record that they were shown, and return how many."""
    news = inbox.read()
    for text in news.texts:
        show("\n" + text)
    inbox.confirm(news)
    return len(news.texts)


def _changed(database: "Database", shown: dict[str, str]) -> list[dict[str, Any]]:
    """Return new questions, and those shown before that are decided now."""
    from agent.approvals import approval_documents
    from agent.tasks.errors import NotFoundError

    with database.connect("reader") as connection, connection.snapshot():
        waiting = {
            question["id"]: question for question in approval_documents.list_approvals(connection)
        }
        changed = [question for name, question in waiting.items() if name not in shown]
        ended = [name for name, status in shown.items() if status == "pending"]
        for name in ended:
            if name not in waiting:
                # Its task may have been removed.
                with suppress(NotFoundError):
                    changed.append(approval_documents.approval_document(connection, name))
                shown[name] = "gone"
    shown.update({question["id"]: question["status"] for question in changed})
    return changed
