"""`agent chat`: a prompt that shows questions as they come and takes the commands of chats."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.cli import invocation, session

if TYPE_CHECKING:
    from agent.approvals.permission import Principal
    from agent.channels.chat.command_handler import CommandHandler
    from agent.store.db.database import Database

_LOOK_SECONDS = 0.5
_MOST_SHOWN = 20_000
_LEAVING = frozenset({"/quit", "/exit"})


def chat() -> None:
    """Talk to the agent: questions are shown as they come.

    Lines from a pipe are taken one by one as well.
    """
    from agent import bootstrap
    from agent.approvals.permission import terminal_user
    from agent.channels.chat.command_handler import CommandHandler
    from agent.cli.output import terminal
    from agent.core import audit, logging

    settings = session.settings()
    database = bootstrap.open_database(settings)
    logging.configure(settings.log.format, "warning")
    audit.configure(settings.home)
    handler = CommandHandler(database, settings.engine.steps_per_task)
    principal = terminal_user(invocation.user())
    if bootstrap.holder_of(database) is None:
        terminal.note(f"no agent is running: `{invocation.program()} up` carries tasks on")
    is_over = threading.Event()
    if sys.stdin.isatty():
        _converse(database, handler, principal, is_over)
    else:
        for line in sys.stdin:
            if line.strip() in _LEAVING:
                break
            if line.strip():
                print(terminal.harmless(handler.reply(principal, line)), flush=True)


def _converse(
    database: "Database",
    handler: "CommandHandler",
    principal: "Principal",
    is_over: threading.Event,
) -> None:
    """Take lines at a prompt while another thread shows, above it, what is asked and decided."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.patch_stdout import patch_stdout

    from agent.channels.chat.commands import COMMANDS
    from agent.cli.output import terminal

    words = [f"/{name}" for name in (*COMMANDS, "quit")]
    prompt: PromptSession[str] = PromptSession(
        completer=WordCompleter(words, sentence=True), complete_while_typing=False
    )
    print("/help lists the commands, /quit or Ctrl-D leaves; questions show up as they come")
    with patch_stdout():
        watching = threading.Thread(
            target=_show_questions, args=(database, is_over, print), daemon=True
        )
        watching.start()
        try:
            while (line := prompt.prompt("agent> ").strip()) not in _LEAVING:
                if line:
                    print(terminal.harmless(handler.reply(principal, line)))
        except (EOFError, KeyboardInterrupt):
            pass
        finally:
            is_over.set()
            watching.join()


def _show_questions(
    database: "Database", is_over: threading.Event, show: Callable[[str], None]
) -> None:
    """Show what waits for an answer, then every new question and what becomes of it."""
    from agent.channels.chat import message_texts
    from agent.cli.output import terminal
    from agent.store.db.database import StoreError

    shown: dict[str, str] = {}
    while not is_over.is_set():
        try:
            for document in _changed(database, shown):
                is_open = document["status"] == "pending"
                text = message_texts.question(document, _MOST_SHOWN)[0] if is_open else ""
                show(
                    "\n"
                    + terminal.harmless(
                        text or message_texts.closed_question(document, _MOST_SHOWN)
                    )
                )
                if is_open:
                    show(message_texts.how_to_answer(document))
        except StoreError as error:
            show(f"the database cannot be read: {error}")
            is_over.wait(10 * _LOOK_SECONDS)
        is_over.wait(_LOOK_SECONDS)


def _changed(database: "Database", shown: dict[str, str]) -> list[dict[str, Any]]:
    """Return questions that are new, and those that were shown and are decided now."""
    from agent.approvals import approval_documents
    from agent.tasks.errors import NotFoundError

    with database.connect("reader") as connection, connection.snapshot():
        waiting = {found["id"]: found for found in approval_documents.list_approvals(connection)}
        changed = [found for name, found in waiting.items() if name not in shown]
        ended = [name for name, status in shown.items() if status == "pending"]
        for name in ended:
            if name not in waiting:
                # One whose task was removed has nothing to be shown.
                with suppress(NotFoundError):
                    changed.append(approval_documents.approval_document(connection, name))
                shown[name] = "gone"
    shown.update({found["id"]: found["status"] for found in changed})
    return changed
