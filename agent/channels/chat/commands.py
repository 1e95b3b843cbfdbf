"""The commands that people type in chats: their syntax, and the scope that each needs.

Parsing is a function of the text alone. The scopes are those of the HTTP API's routes;
`agent.approvals.permission` checks them. To add a command: an entry in `COMMANDS`, its name in
`agent.workflows.compile.triggers.CHAT_COMMANDS`, and a method of `CommandHandler`.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from agent.approvals.permission import Principal, check_scope
from agent.core.key_values import parse_pairs
from agent.core.scopes import Scope
from agent.workflows.compile.triggers import CHAT_COMMANDS

MAX_TEXT: Final = 10_000
NO_COMMAND: Final = "commands begin with a slash; /help lists them"


class CommandError(ValueError):
    """The text is not a command; the message gives the correct form."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command: its scope and its arguments."""

    scope: Scope
    about: str
    subject: Literal["none", "optional", "needed"] = "none"
    rest: Literal["none", "text", "pairs"] = "none"
    usage: str = ""


COMMANDS: Final[dict[str, CommandSpec]] = {
    "status": CommandSpec("read", "count tasks and open questions"),
    "tasks": CommandSpec(
        "read", "list the newest tasks, or those with an activity", "optional", usage="[ACTIVITY]"
    ),
    "task": CommandSpec("read", "show a task and its steps", "needed", usage="TASK"),
    "why": CommandSpec(
        "read", "show why a task failed or what it waits for", "needed", usage="TASK"
    ),
    "run": CommandSpec("operate", "start a workflow", "needed", "pairs", "WORKFLOW [KEY=VALUE]…"),
    "pause": CommandSpec(
        "operate", "pause a task: no new step starts", "needed", "text", "TASK [REASON]"
    ),
    "resume": CommandSpec("operate", "resume a paused task", "needed", usage="TASK"),
    "cancel": CommandSpec("operate", "cancel a task", "needed", "text", "TASK [REASON]"),
    "retry": CommandSpec(
        "operate",
        "retry what did not succeed, on the newest version if you say so",
        "needed",
        "text",
        "TASK [latest]",
    ),
    "schedules": CommandSpec(
        "read",
        "list schedules, or show or control one",
        "optional",
        "text",
        "[show|pause|resume|run|skip|backfill NAME]",
    ),
    "watchers": CommandSpec(
        "read",
        "list watchers, or show or control one; check polls and starts nothing",
        "optional",
        "text",
        "[show|pause|resume|run|check|reset NAME]",
    ),
    "approvals": CommandSpec(
        "read", "list the open questions, or show one", "optional", usage="[ID]"
    ),
    "approve": CommandSpec("approve", "approve", "needed", "text", "ID [COMMENT]"),
    "deny": CommandSpec("approve", "deny", "needed", "text", "ID [REASON]"),
    "edit": CommandSpec("approve", "approve with changes", "needed", "pairs", "ID KEY=VALUE…"),
    "answer": CommandSpec("approve", "answer with a value", "needed", "text", "ID VALUE"),
    "defer": CommandSpec("approve", "be reminded later", "needed", "text", "ID TIME"),
    "open": CommandSpec("read", "get a link to the dashboard that signs you in once"),
    "help": CommandSpec("read", "list the commands"),
}
assert COMMANDS.keys() == CHAT_COMMANDS
_WORKFLOW_COMMAND: Final = CommandSpec("operate", "", "none", "pairs", "[KEY=VALUE]…")
"""The spec of a command that a workflow declares (`on: chat`)."""


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command."""

    name: str
    subject: str | None = None
    rest: str | None = None
    pairs: dict[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> CommandSpec:
        """The scope and the syntax of this command."""
        return COMMANDS.get(self.name, _WORKFLOW_COMMAND)


def is_command(text: str) -> bool:
    """Whether a message is a command; anything else is free text."""
    return text.strip().startswith("/")


def check_length(text: str) -> None:
    """Refuse a message that is too long."""
    if len(text.strip()) > MAX_TEXT:
        raise CommandError(f"the message is longer than {MAX_TEXT:,} characters")


def parse(text: str) -> Command:
    """Parse a message."""
    text = text.strip()
    if not text.startswith("/") or not text[1:].strip():
        raise CommandError(NO_COMMAND)
    check_length(text)
    first, rest = (*text[1:].split(None, 1), "")[:2]
    # In groups chats write /status@name_of_the_bot.
    name = first.partition("@")[0].lower()
    if not name.replace("_", "").replace("-", "").isalnum():
        raise CommandError(f"there is no command /{name}; /help lists them")
    spec = COMMANDS.get(name, _WORKFLOW_COMMAND)
    subject: str | None = None
    if spec.subject != "none" and rest:
        parts = rest.split(None, 1)
        subject, rest = parts[0], parts[1] if len(parts) > 1 else ""
    if (spec.subject == "needed" and subject is None) or (spec.rest == "none" and rest):
        raise CommandError(f"write it as {usage(name)}")
    if spec.rest == "pairs":
        return Command(name, subject, None, _pairs(name, rest))
    return Command(name, subject, rest or None)


def check(principal: Principal, command: Command) -> None:
    """Raise `NotAllowedError` unless the caller may run a command."""
    check_scope(principal, command.spec.scope, f"/{command.name}")


def usage(name: str) -> str:
    """Return the syntax of a command."""
    spec = COMMANDS.get(name, _WORKFLOW_COMMAND)
    return f"/{name} {spec.usage}".strip()


def help_text(principal: Principal, own: Mapping[str, str], free_text: str | None = None) -> str:
    """Return the commands that the caller may run.

    `own` are those of workflows, and `free_text` says what any other text starts.
    """
    known = [(name, spec.scope, spec.about) for name, spec in COMMANDS.items()]
    known += [(name, _WORKFLOW_COMMAND.scope, about) for name, about in own.items()]
    lines = [
        f"{usage(name)} – {about}" for name, scope, about in known if scope in principal.scopes
    ]
    if free_text is not None and _WORKFLOW_COMMAND.scope in principal.scopes:
        lines.append(f"any other text – {free_text}")
    return "\n".join(lines)


def _pairs(name: str, text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError:
        raise CommandError("a quotation mark is missing") from None
    try:
        return parse_pairs(words, usage(name))
    except ValueError as error:
        # The name may be no command at all: which ones workflows declare is not known here.
        more = "" if name in COMMANDS else "; /help lists the commands"
        raise CommandError(f"{error}{more}") from None
