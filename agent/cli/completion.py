"""Completes command lines in shells.

The scripts of `agent completion` call `agent __complete WORD...` with the words so far, the last one
unfinished, and get one candidate a line: the word, a tab, and what it is. The line `:files` stands for
the names of files. Commands, options and their values come from the commands themselves; tasks, steps,
workflows and the like from the agent. What cannot be read completes to nothing: a shell shows no errors of
a completion.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

FILES: Final = ":files"
_MOST: Final = 100
_DESCRIPTION: Final = 60
_FIRST_CHARACTERS: Final = 4000
_KEY_LINE: Final = re.compile(
    r"^(name|description):[ \t]*[\"']?([^\"'\n#]+?)[\"']?[ \t]*$", re.MULTILINE
)

TAKES_TASK: Final = frozenset(
    [
        "show",
        "watch",
        "logs",
        "events",
        "budget",
        "pause",
        "resume",
        "cancel",
        "retry",
        "fork",
        "resolve",
        "signal",
    ]
)
"""Commands whose first argument is a task."""

Candidate = tuple[str, str]
"""A word and its description."""


@dataclass(slots=True)
class _Line:
    """The words before the unfinished one, as the program reads them."""

    command: Any
    path: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    pending: Any = None
    """An option whose value comes next."""


def main(words: list[str]) -> None:
    """Print the candidates for the last word."""
    with contextlib.suppress(Exception):
        for word, description in candidates(words or [""]):
            text = " ".join(description.split())[:_DESCRIPTION]
            sys.stdout.write(f"{word}\t{text}\n" if text else f"{word}\n")


def candidates(words: list[str]) -> Iterator[Candidate]:
    """Yield the words that can take the place of the last one."""
    *before, current = words
    option, separator, value = current.partition("=")
    if separator and option.startswith("--"):
        # The value of an option, written as one word: the shell replaces the whole word.
        for word, description in candidates([*before, option, value]):
            yield (word if word == FILES else f"{option}={word}"), description
        return
    if current == "=":
        # bash makes three words of `--option=value`.
        current = ""
    possible = _at_once(before) if not current.startswith("-") else None
    if possible is None:
        line = _read(before)
        _use_options(line)
        possible = _possible(line, current)
    for word, description in possible:
        if word.startswith(current) or word == FILES:
            yield word, description


def _at_once(before: list[str]) -> Iterator[Candidate] | None:
    """Return the candidates for the two most frequent cases, without loading typer."""
    if not before:
        return _commands()
    if len(before) == 1 and before[0] in TAKES_TASK:
        return _tasks(_Line(None))
    return None


def _read(words: list[str]) -> _Line:
    from agent.cli.program import program

    line = _Line(program())
    for word in words:
        if line.pending is not None and word != "=":
            line.options[line.pending.name] = word
            line.pending = None
        elif word == "=":
            continue
        elif word.startswith("-") and len(word) > 1:
            option = _option(line.command, word)
            if option is not None and not option.is_flag and "=" not in word:
                line.pending = option
        elif word in getattr(line.command, "commands", {}):
            line.command = line.command.commands[word]
            line.path.append(word)
        else:
            line.arguments.append(word)
    return line


def _option(command: Any, word: str) -> Any:
    name = word.partition("=")[0]
    return next((option for option in _options(command) if name in option.opts), None)


def _options(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def _use_options(line: _Line) -> None:
    from agent.cli import invocation

    invocation.begin(line.options.get("config"), line.options.get("server"))


def _possible(line: _Line, current: str) -> Iterator[Candidate]:
    if line.pending is not None:
        yield from _values(line, line.pending)
    elif current.startswith("-"):
        for option in _options(line.command):
            for name in option.opts:
                yield name, option.help or ""
        yield "--help", "Show this message and exit."
    elif not line.path:
        yield from () if line.arguments else _commands()
    else:
        for name, command in getattr(line.command, "commands", {}).items():
            yield name, command.get_short_help_str(_DESCRIPTION)
        yield from _arguments(line)


def _commands() -> Iterator[Candidate]:
    from agent.cli.registry import COMMANDS

    for entry in COMMANDS:
        yield entry.name, entry.help


def _arguments(line: _Line) -> Iterator[Candidate]:
    """Yield candidates for the next argument."""
    if line.path == ["config"]:
        # `get` may be left out.
        yield from _config_keys(line)
        return
    expected = [param for param in line.command.params if param.param_type_name == "argument"]
    if not expected:
        return
    count = len(line.arguments)
    if count < len(expected):
        yield from _values(line, expected[count])
    elif expected[-1].nargs == -1:
        yield from _values(line, expected[-1])


def _values(line: _Line, parameter: Any) -> Iterator[Candidate]:
    """Yield the values of an option or an argument, by its name in the help."""
    metavar = (parameter.metavar or parameter.name).upper()
    group = line.path[0] if line.path else ""
    source = _BY_METAVAR.get(metavar) or _BY_GROUP.get((group, metavar))
    if source is not None:
        yield from source(line)
    for word in _WORDS.get(metavar, ()):
        yield word, ""
    if "FILE" in metavar or metavar == "DIRECTORY":
        yield FILES, ""


def _tasks(_: _Line) -> Iterator[Candidate]:
    from agent.cli import session
    from agent.cli.output.terminal import short
    from agent.store.read.task_list import TaskFilter

    with session.client() as client:
        for task in client.tasks(TaskFilter(), _MOST, None)["tasks"]:
            yield short(task["id"]), f"{task['workflow']}, {task['activity']}"


def _steps(line: _Line) -> Iterator[Candidate]:
    from agent.cli import session

    with session.client() as client:
        for step in client.task(client.find_task(line.arguments[0]))["steps"]:
            yield step["name"], step["status"]


def _workflows(_: _Line) -> Iterator[Candidate]:
    from agent.cli import invocation, session

    if invocation.server_url():
        with session.client() as client:
            for workflow in client.workflows():
                yield workflow["name"], workflow["description"] or ""
        return
    # Not compiled: that takes many times as long as reading a name.
    for path in sorted(session.settings().workflow_directory.glob("*.y*ml")):
        with path.open(encoding="utf-8", errors="replace") as file:
            keys = dict(_KEY_LINE.findall(file.read(_FIRST_CHARACTERS)))
        if "name" in keys:
            yield keys["name"], keys.get("description", "")


def _approvals(_: _Line) -> Iterator[Candidate]:
    from agent.cli import session
    from agent.cli.output.terminal import short
    from agent.core.waits import headline

    with session.client() as client:
        for approval in client.approvals(is_all=False, limit=_MOST):
            yield short(approval["id"]), headline(approval["message"])


def _triggers(kind: str) -> Callable[[_Line], Iterator[Candidate]]:
    def read(_: _Line) -> Iterator[Candidate]:
        from agent.cli import session

        with session.client() as client:
            for trigger in client.triggers(kind, None):
                yield trigger["id"], trigger["when"]

    return read


def _queues(_: _Line) -> Iterator[Candidate]:
    from agent.cli import session

    with session.client() as client:
        for queue in client.queues():
            yield queue["queue"], f"{queue['queued']} waiting"


def _dead_letters(_: _Line) -> Iterator[Candidate]:
    from agent.cli import session
    from agent.cli.output.terminal import short

    with session.client() as client:
        for letter in client.dead_letters(None, None, _MOST):
            yield short(letter["id"]), f"{letter['queue']}: {letter['error']['message']}"


def _config_keys(line: _Line) -> Iterator[Candidate]:
    """Yield keys; of `config set`, in every other place."""
    from agent.cli import session
    from agent.config.keys import leaves

    if len(line.arguments) % 2 == 0:
        for key, _ in leaves(session.configuration().settings):
            yield key, ""


_BY_METAVAR: Final[dict[str, Callable[[_Line], Iterator[Candidate]]]] = {
    "TASK": _tasks,
    "STEP": _steps,
    "FILE|NAME": _workflows,
    "WORKFLOW": _workflows,
    "W": _workflows,
    "QUEUE": _queues,
    "KEY": _config_keys,
    "KEY VALUE...": _config_keys,
}
_BY_GROUP: Final[dict[tuple[str, str], Callable[[_Line], Iterator[Candidate]]]] = {
    ("workflows", "NAME"): _workflows,
    ("schedules", "NAME"): _triggers("schedule"),
    ("watchers", "NAME"): _triggers("watch"),
    ("queue", "ID..."): _dead_letters,
    ("approvals", "ID"): _approvals,
    ("approve", "ID"): _approvals,
    ("deny", "ID"): _approvals,
    ("answer", "ID"): _approvals,
    ("defer", "ID"): _approvals,
}
_WORDS: Final = {
    "STATUS": ("pending", "running", "paused", "succeeded", "failed", "canceled"),
    "ACTIVITY": ("pending", "running", "waiting", "paused", "succeeded", "failed", "canceled"),
    "PRIORITY": ("high", "normal", "low"),
    "SHELL": ("bash", "zsh", "fish"),
}
