"""The man page of the program, made from its commands: `make man` writes it."""

from collections.abc import Iterator
from typing import Any

from agent import __version__
from agent.cli import front_page, registry, usage_examples
from agent.cli.errors import Exit

_EXITS = {
    Exit.DONE: "done",
    Exit.TASK_FAILED: "the task failed",
    Exit.BAD_INPUT: "bad usage or input",
    Exit.REFUSED: "not found, not running, or not allowed in this state",
    Exit.WAITING: "the task waits for a person",
    Exit.NO_DATABASE: "no database, or no answer from --server",
    Exit.DEFECT: "a defect of the program",
    Exit.INTERRUPTED: "interrupted",
}

_ENVIRONMENT = (
    ("AGENT_CONFIG", "The configuration file, as --config names it."),
    ("AGENT_HOME", "The directory of the database and other files."),
    ("AGENT_SECTION__KEY", "Sets a key of the configuration, as in AGENT_ENGINE__SLOTS=10."),
    ("AGENT_SERVER", "A remote agent, as --server names it."),
    ("AGENT_TOKEN", "The token for it; AGENT_TOKEN_FILE names a file that holds it."),
    ("AGENT_TRACE", "Set: show where an internal error happened."),
    ("NO_COLOR", "Set: print no colours."),
)

_FILES = (
    ("config.toml", "The configuration: the nearest one at or above the current directory."),
    ("~/.config/agent/config.toml", "Your own, used where there is no other."),
    ("data/agent.db", "The database, relative to the configuration."),
    ("workflows/", "The workflow files, relative to the configuration."),
)


def text(program: Any) -> str:
    """Return the page of a program in the format of man(7)."""
    return "\n".join(_page(program)) + "\n"


def _page(program: Any) -> Iterator[str]:
    yield f'.TH AGENT 1 "" "agent {__version__}" "User Commands"'
    summary = front_page.SUMMARY[0].lower() + front_page.SUMMARY[1:].rstrip(".")
    yield from (".SH NAME", f"agent \\- {_escaped(summary)}")
    yield from (".SH SYNOPSIS", ".B agent", "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]")
    yield ".SH OPTIONS"
    for option in registry.GLOBAL_OPTIONS:
        yield from _entry(", ".join(option.names), option.metavar, option.help)
    yield from _commands(program.commands)
    yield ".SH EXIT STATUS"
    for code, meaning in _EXITS.items():
        yield from _entry(str(int(code)), "", meaning)
    for heading, entries in (("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {heading}"
        for name, about in entries:
            yield from _entry(name, "", about)
    yield ".SH EXAMPLES"
    for command, about in usage_examples.FIRST:
        yield from _entry(command, "", about)


def _commands(built: Any) -> Iterator[str]:
    for group in registry.GROUPS:
        yield f".SH {_escaped(group.upper())}"
        for entry in registry.COMMANDS:
            if entry.group == group:
                yield from _command([entry.name], built[entry.name])


def _command(path: list[str], command: Any) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [_escaped(_shown_argument(param)) for param in arguments]
    yield f".SS agent {_escaped(' '.join(path))} {' '.join(words)}".rstrip()
    yield from _paragraphs(command.help or "")
    for argument in arguments:
        yield from _entry(argument.metavar or argument.name.upper(), "", argument.help or "")
    for option in command.params:
        if option.param_type_name == "option":
            metavar = "" if option.is_flag else (option.metavar or "VALUE")
            yield from _entry(", ".join(option.opts), metavar, option.help or "")
    if len(path) == 1:
        for line, about in usage_examples.EXAMPLES.get(path[0], ()):
            yield from _entry(line, "", about)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _command([*path, name], inner)


def _shown_argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _line(" ".join(paragraph.split()))


def _entry(name: str, metavar: str, about: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_escaped(name)}\\fR" + (f" \\fI{_escaped(metavar)}\\fR" if metavar else "")
    yield _line(" ".join(about.split()))


def _line(text: str) -> str:
    """Escape a line; one that began with a dot or a quote would be a request."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
