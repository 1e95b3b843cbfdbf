"""Reads the usual command line without typer, which takes longer to load than most commands to run.

A line is usual if every word has its obvious meaning: a known command, options by their whole names, values
of the right type, and all that the command requires. Of everything else, a mistake or `--help` among it,
nothing is read here: typer reads such a line from its start, and has the messages for it.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from agent.cli import registry
from agent.cli.parameters import Argument, Option

_TEXTS = (str, str | None)
_NUMBERS = (int, int | None)
_LISTS = (list[str], list[str] | None)
_MAX_DIGITS = 9


class _UnusualError(Exception):
    """The line is for typer."""


def command_of(words: list[str]) -> Callable[[], None] | None:
    """Return a command line as a function to call; None if the line is not a usual one."""
    entry = next(
        (candidate for candidate in registry.COMMANDS if words[:1] == [candidate.name]), None
    )
    if entry is None:
        return None
    command = getattr(import_module(f"agent.cli.commands.{entry.module}"), entry.attribute)
    if not hasattr(command, "__code__"):
        # A group of commands.
        return None
    try:
        values = _Line(command).read(words[1:])
    except _UnusualError:
        return None
    return lambda: command(**values)


class _Line:
    """The words of a command line, by the parameters of its command."""

    def __init__(self, command: Any) -> None:
        code = command.__code__
        self._names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._defaults = _defaults(command)
        self._arguments: list[tuple[str, Any]] = []
        self._options: dict[str, tuple[str, Any, dict[str, Any]]] = {}
        self._values: dict[str, Any] = {}
        for name in self._names:
            annotation = command.__annotations__[name]
            declared = getattr(annotation, "__metadata__", (None,))[0]
            if isinstance(declared, Argument):
                self._arguments.append((name, annotation.__origin__))
            elif isinstance(declared, Option):
                option = (name, annotation.__origin__, declared.details)
                self._options.update(dict.fromkeys(declared.names, option))
            else:
                # The context, which only typer has.
                raise _UnusualError

    def read(self, words: list[str]) -> dict[str, Any]:
        """Return the values of all parameters."""
        plain: list[str] = []
        following = iter(words)
        for word in following:
            if word.startswith("-"):
                self._read_option(word, following)
            else:
                plain.append(word)
        self._read_arguments(plain)
        values = self._defaults | self._values
        if len(values) < len(self._names):
            raise _UnusualError
        return values

    def _read_option(self, word: str, following: Iterator[str]) -> None:
        spelling, is_joined, joined = word.partition("=")
        if spelling not in self._options or (is_joined and not spelling.startswith("--")):
            raise _UnusualError
        name, kind, details = self._options[spelling]
        if kind is bool:
            if is_joined:
                raise _UnusualError
            self._values[name] = True
            return
        text = joined if is_joined else next(following, "-")
        if text.startswith("-"):
            raise _UnusualError
        if kind in _LISTS:
            self._values.setdefault(name, []).append(text)
        elif name in self._values:
            raise _UnusualError
        else:
            self._values[name] = _value(text, kind, details)

    def _read_arguments(self, plain: list[str]) -> None:
        for name, kind in self._arguments:
            if not plain:
                return
            if kind in _LISTS:
                self._values[name] = plain
                return
            self._values[name] = _value(plain.pop(0), kind, {})
        if plain:
            raise _UnusualError


def _defaults(command: Any) -> dict[str, Any]:
    code, defaults = command.__code__, command.__defaults__ or ()
    with_default = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    return dict(zip(with_default, defaults, strict=True)) | (command.__kwdefaults__ or {})


def _value(text: str, kind: Any, details: dict[str, Any]) -> Any:
    if kind in _TEXTS:
        return text
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    if kind in _NUMBERS and is_number:
        number = int(text)
        if details.get("min", number) <= number <= details.get("max", number):
            return number
    raise _UnusualError
