"""Check a synopsis such as `agent deny ID [--reason TEXT]` against the commands that exist."""

import re
from typing import Any

import typer

from agent.cli.program import program

_OPTION = re.compile(r"--?[a-z][a-z-]*")
_PROGRAMS = {"make", "python", "pip", "pipx", "uv", "export", "unset", "cd", "source"}


def option_problems(words: list[str]) -> list[str]:
    """Return what is wrong with one line: an unknown command, or options it does not take."""
    if not words or words[0] in _PROGRAMS:
        return []
    if words[0] != "agent":
        return [f"{words[0]}: a synopsis is of the command `agent`"]
    command, rest = _find(program(), words[1:])
    known = {
        name for parameter in command.params for name in parameter.opts + parameter.secondary_opts
    }
    known |= {"--help", "-h"}
    return [
        f"agent {' '.join(words[1:])}: {command.name} has no {option}"
        for word in rest
        for option in _OPTION.findall(word.strip("[]…"))
        if word.strip("[").startswith("-")
        if option not in known
    ]


def _find(command: Any, words: list[str]) -> tuple[Any, list[str]]:
    """Return the innermost command that the words name, and the words behind its name."""
    while words and hasattr(command, "get_command") and not words[0].startswith(("-", "[")):
        inner = command.get_command(typer.Context(command), words[0])
        if inner is None:
            if command.invoke_without_command:
                break
            raise AssertionError(f"there is no command {words[0]!r}")
        command, words = inner, words[1:]
    return command, words
