"""The output of `agent --help` and `agent version`; neither needs typer.

`main` prints it at once where nothing else was asked, and `program` where typer has read the arguments.
"""

import sys
from collections.abc import Iterable, Iterator

from agent import __version__
from agent.cli import registry, usage_examples

SUMMARY = "Runs multi-step tasks, and resumes them after a crash or a restart."


def help_text() -> str:
    """Return the help of the program: its options, and its commands by group."""
    return "\n".join(_lines()) + "\n"


def version_line() -> str:
    """Return the versions of the program and of Python as one line."""
    return f"agent {__version__} (Python {python_version()})"


def python_version() -> str:
    """Return the version of Python, as `platform` does it: loading that module is slow."""
    return sys.version.split(maxsplit=1)[0]


def _lines() -> Iterator[str]:
    yield "Usage: agent [OPTIONS] COMMAND [ARGS]..."
    yield ""
    yield f"  {SUMMARY}"
    yield ""
    yield "Options:"
    options = [
        (f"{', '.join(option.names)} {option.metavar}".rstrip(), option.help)
        for option in registry.GLOBAL_OPTIONS
    ]
    yield from _columns(options, max(len(names) for names, _ in options))
    width = max(len(command.name) for command in registry.COMMANDS)
    for group in registry.GROUPS:
        yield ""
        yield f"{group}:"
        commands = [entry for entry in registry.COMMANDS if entry.group == group]
        yield from _columns(((entry.name, entry.help) for entry in commands), width)

    yield ""
    yield "Examples:"
    yield from usage_examples.lines(usage_examples.FIRST)


def _columns(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    for name, text in rows:
        yield f"  {name:<{width}}  {text}"
