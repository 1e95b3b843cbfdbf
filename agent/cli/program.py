"""The commands as typer reads them, for all but the usual command lines; each is imported when it runs.

`registry` has the names. Typer would build all commands, with all their parameters, to run one.
"""

from collections.abc import Iterator, MutableMapping
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from agent.cli import front_page, help_lines, invocation, plain_values, registry
from agent.cli.parameters import Argument, Option
from agent.cli.usage_examples import EXAMPLES, lines


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name, each built when it is asked for."""

    def __init__(self) -> None:
        self._entries = {command.name: command for command in registry.COMMANDS}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(self._entries[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Program(TyperGroup):
    """The program: its help is the front page, its commands are lazy."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def format_help(self, _: Any, formatter: Any) -> None:
        formatter.write(front_page.help_text())


def _build(entry: registry.Command) -> Any:
    """Import a command and build it."""
    found = getattr(import_module(f"agent.cli.commands.{entry.module}"), entry.attribute)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    is_group = isinstance(found, typer.Typer)
    if is_group:
        for registered in (found.registered_callback, *found.registered_commands):
            if registered is not None:
                registered.callback = _with_typers_declarations(registered.callback)
        app.add_typer(found, name=entry.name)
    else:
        app.command(entry.name)(_with_typers_declarations(found))
    built: Any = get_command(app)
    command = built.commands[entry.name] if is_group else built
    if examples := EXAMPLES.get(entry.name):
        # A backspace keeps the lines as they are.
        command.epilog = "\b\n" + "\n".join(["Examples:", *lines(examples)])
    for subcommand in (command, *getattr(command, "commands", {}).values()):
        plain_values.keep(subcommand)
        help_lines.name_arguments(subcommand)
    return command


def _with_typers_declarations(function: Any) -> Any:
    """Return the same function, with parameters that typer can read."""
    own = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    own.__doc__ = function.__doc__
    own.__annotations__ = {
        name: _typers_own(annotation) for name, annotation in function.__annotations__.items()
    }
    return own


def _typers_own(annotation: Any) -> Any:
    declared = getattr(annotation, "__metadata__", (None,))[0]
    if isinstance(declared, Argument):
        return Annotated[annotation.__origin__, typer.Argument(**declared.details)]
    if isinstance(declared, Option):
        metavar = help_lines.metavar_of(annotation.__origin__, declared.names)
        own = typer.Option(*declared.names, **{"metavar": metavar} | declared.details)
        return Annotated[annotation.__origin__, own]
    return annotation


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(front_page.version_line())
        raise typer.Exit


def _global(
    config: Annotated[
        str | None,
        typer.Option(
            *registry.CONFIG.names, metavar=registry.CONFIG.metavar, help=registry.CONFIG.help
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(*registry.SET.names, metavar=registry.SET.metavar, help=registry.SET.help),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            *registry.SERVER.names, metavar=registry.SERVER.metavar, help=registry.SERVER.help
        ),
    ] = None,
    *,
    verbose: Annotated[
        bool, typer.Option(*registry.VERBOSE.names, help=registry.VERBOSE.help)
    ] = False,
    _: Annotated[
        bool,
        typer.Option(
            *registry.VERSION.names,
            is_eager=True,
            callback=_print_version,
            help=registry.VERSION.help,
        ),
    ] = False,
) -> None:
    invocation.begin(config, server, overrides, verbose=verbose)


@cache
def program() -> Any:
    """Return the program; calling it runs the command that the arguments name."""
    app = typer.Typer(
        cls=Program,
        name="agent",
        no_args_is_help=True,
        add_completion=False,
        # Without these two typer loads rich for its help and for tracebacks.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(registry.HELP.names)},
    )
    app.callback(help=front_page.SUMMARY)(_global)
    built: Any = get_command(app)
    plain_values.keep(built)
    return built
