"""The commands that people type in chats: what they are, how they are read, and who may give them.

Reading is a function of the text alone. `check` is the one place that says who may do what, by the
same scopes as the HTTP API's.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from agent.approvals.permission import NotAllowedError
from agent.core.key_values import parse_pairs
from agent.core.scopes import Scope
from agent.steps.spec.questions import CHATS
from agent.workflows.compile.triggers import CHAT_COMMANDS

MAX_TEXT: Final = 10_000


class CommandError(ValueError):
    """What was typed is no command; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Word:
    """One command: its scope, and what may follow it."""

    scope: Scope
    about: str
    subject: Literal["none", "optional", "needed"] = "none"
    rest: Literal["none", "text", "pairs"] = "none"
    usage: str = ""


COMMANDS: Final[dict[str, Word]] = {
    "status": Word("read", "how everything stands"),
    "tasks": Word("read", "the newest tasks, or those of a status", "optional", usage="[STATUS]"),
    "task": Word("read", "one task and its steps", "needed", usage="TASK"),
    "why": Word("read", "why a task failed, or what it waits on", "needed", usage="TASK"),
    "run": Word("operate", "start a workflow", "needed", "pairs", "WORKFLOW [KEY=VALUE]…"),
    "pause": Word("operate", "start nothing new in a task", "needed", "text", "TASK [REASON]"),
    "resume": Word("operate", "go on with a paused task", "needed", usage="TASK"),
    "cancel": Word("operate", "end a task", "needed", "text", "TASK [REASON]"),
    "retry": Word("operate", "run again what failed", "needed", usage="TASK"),
    "approvals": Word("read", "what waits for an answer; one in full", "optional", usage="[ID]"),
    "approve": Word("approve", "say yes", "needed", "text", "ID [COMMENT]"),
    "deny": Word("approve", "say no", "needed", "text", "ID [REASON]"),
    "edit": Word("approve", "say yes, with changes", "needed", "pairs", "ID KEY=VALUE…"),
    "answer": Word("approve", "give what is asked for", "needed", "text", "ID VALUE"),
    "defer": Word("approve", "be reminded later", "needed", "text", "ID TIME"),
    "help": Word("read", "this list"),
}
assert COMMANDS.keys() == CHAT_COMMANDS
_WORKFLOWS_OWN: Final = Word("operate", "", "none", "pairs", "[KEY=VALUE]…")
"""A command that a workflow has named for itself."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody in a channel, as the channel has established it."""

    channel: str
    identity: str
    scopes: frozenset[Scope]
    is_paired: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it was read."""

    name: str
    subject: str | None = None
    rest: str | None = None
    pairs: dict[str, str] = field(default_factory=dict)

    @property
    def word(self) -> Word:
        """What is known of it."""
        return COMMANDS.get(self.name, _WORKFLOWS_OWN)


def parse(text: str) -> Command:
    """Read what somebody typed."""
    text = text.strip()
    if not text.startswith("/") or not text[1:].strip():
        raise CommandError("commands begin with a slash; /help lists them")
    if len(text) > MAX_TEXT:
        raise CommandError(f"that is longer than {MAX_TEXT:,} characters")
    first, rest = (*text[1:].split(None, 1), "")[:2]
    # In groups chats write /status@name_of_the_bot.
    name = first.partition("@")[0].lower()
    if not name.replace("_", "").replace("-", "").isalnum():
        raise CommandError(f"there is no command /{name}; /help lists them")
    word = COMMANDS.get(name, _WORKFLOWS_OWN)
    subject: str | None = None
    if word.subject != "none" and rest:
        parts = rest.split(None, 1)
        subject, rest = parts[0], parts[1] if len(parts) > 1 else ""
    if (word.subject == "needed" and subject is None) or (word.rest == "none" and rest):
        raise CommandError(f"write it as {usage(name)}")
    if word.rest == "pairs":
        return Command(name, subject, None, _pairs(name, rest))
    return Command(name, subject, rest or None)


def check(caller: Caller, command: Command) -> None:
    """Raise `NotAllowedError` unless this person may give this command."""
    if caller.channel in CHATS and not caller.is_paired:
        raise NotAllowedError(f"{caller.identity} is not paired with this agent")
    if command.word.scope not in caller.scopes:
        raise NotAllowedError(f"/{command.name} needs the scope {command.word.scope!r}")


def usage(name: str) -> str:
    """Return how a command is written."""
    word = COMMANDS.get(name, _WORKFLOWS_OWN)
    return f"/{name} {word.usage}".strip()


def help_text(caller: Caller, own: Mapping[str, str]) -> str:
    """Return the commands that somebody may give; `own` are those of workflows."""
    known = [(name, word.scope, word.about) for name, word in COMMANDS.items()]
    known += [(name, _WORKFLOWS_OWN.scope, about) for name, about in own.items()]
    return "\n".join(
        f"{usage(name)} – {about}" for name, scope, about in known if scope in caller.scopes
    )


def _pairs(name: str, text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError:
        raise CommandError("a quotation mark is missing") from None
    try:
        return parse_pairs(words, usage(name))
    except ValueError as error:
        raise CommandError(str(error)) from None
