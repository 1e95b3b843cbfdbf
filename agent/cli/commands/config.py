"""`agent config`: the values in force with their sources, and changes of the file."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from agent.cli import invocation, session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.config.effective import Value

_MOST_COLUMNS = 48


class _ValuesByDefault(TyperGroup):
    """`agent config` and `agent config KEY` print values: without a subcommand, `get` is meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = [*self.commands, *ctx.help_option_names]
        if not args or args[0] not in names:
            args = ["get", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ValuesByDefault,
    rich_markup_mode=None,
    help="Print the settings in force, with their sources, or set one.",
)


@app.command("get")
def get(
    key: Annotated[
        str | None,
        Argument(metavar="KEY", help="A key such as engine.slots, or a section."),
    ] = None,
    *,
    changed: Annotated[
        bool, Option("--changed", help="Leave out values that are defaults.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the values in force and where each was set.

    Of one KEY, the value alone. `get` may be left out: `agent config engine.slots`. Secrets are hidden, references to them are not.
    """
    from agent.cli.output import terminal
    from agent.config.effective import values

    session.require_local()
    configuration = session.configuration()
    chosen = [
        value
        for value in values(configuration)
        if (key is None or value.key == key or value.key.startswith(f"{key}."))
        and not (changed and value.is_default)
    ]
    if key is not None and not chosen and not changed:
        raise _unknown(key)
    if as_json:
        document = [_document(value) for value in chosen]
        is_one = len(chosen) == 1 and chosen[0].key == key
        terminal.print_json(document[0] if is_one else document)
    elif len(chosen) == 1 and chosen[0].key == key:
        terminal.print_line(_plain(chosen[0].value))
    else:
        terminal.note(f"configuration: {configuration.place.describe()}")
        rows = [
            (
                value.key,
                terminal.one_line(_plain(value.value), _MOST_COLUMNS),
                # The line above names the directory.
                value.source.removeprefix(f"{configuration.place.base}/"),
            )
            for value in chosen
        ]
        terminal.print_table(("key", "value", "source"), rows)


@app.command("set")
def set_value(
    words: Annotated[
        list[str],
        Argument(
            metavar="KEY VALUE...",
            help="A key and its value; several pairs are set together. A list is a,b or JSON.",
        ),
    ],
    *,
    as_json: JsonOption = False,
) -> None:
    """Set keys in the file; its comments stay.

    Nothing is written unless the whole file is valid afterwards.
    """
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal
    from agent.config.effective import shown
    from agent.config.file_edit import set_keys

    session.require_local()
    session.require_person("change its configuration")
    if len(words) % 2:
        raise CommandError(f"{words[-1]} has no value: write KEY VALUE, as in engine.slots 10")
    configuration = session.configuration()
    edits = set_keys(configuration.place, list(zip(words[::2], words[1::2], strict=True)))
    session.audit("config set", ", ".join(edit.key for edit in edits))
    if as_json:
        terminal.print_json(
            {
                "file": str(configuration.place.file),
                "set": [
                    {
                        "key": edit.key,
                        "old": shown(edit.key, edit.old),
                        "new": shown(edit.key, edit.new),
                    }
                    for edit in edits
                ],
            }
        )
        return
    for edit in edits:
        old = "not set" if edit.old is None else _plain(shown(edit.key, edit.old))
        terminal.print_line(f"{edit.key}: {old} → {_plain(shown(edit.key, edit.new))}")
        if variable := configuration.variables.get(edit.key):
            terminal.note(f"the variable {variable} overrides it here")
    _suggest_reload([edit.key for edit in edits])


@app.command("path")
def path() -> None:
    """Print the path of the configuration in use."""
    from agent.cli.errors import CommandError, Exit

    session.require_local()
    configuration = session.configuration()
    if configuration.place.file is None:
        raise CommandError(
            "there is no configuration here, above, or in your own directory: the defaults hold",
            Exit.REFUSED,
        )
    print(configuration.place.file)


def _suggest_reload(keys: list[str]) -> None:
    """Say how a running agent gets to know of a change."""
    from agent import bootstrap
    from agent.cli.output import terminal
    from agent.config.reloading import is_reloaded
    from agent.store.db.database import StoreError

    try:
        is_running = bootstrap.holder_of(bootstrap.open_database(session.settings())) is not None
    except StoreError:
        return
    if not is_running:
        return
    for_restart = [key for key in keys if not is_reloaded(key)]
    if len(for_restart) < len(keys):
        terminal.note(f"`{invocation.program()} reload` applies it to the running agent")
    if for_restart:
        terminal.note(f"the running agent needs a restart for {', '.join(for_restart)}")


def _unknown(key: str) -> Exception:
    from agent.cli.errors import CommandError, Exit
    from agent.config.loader import unknown_key

    return CommandError(f"{key}: {unknown_key(key)}", Exit.REFUSED)


def _document(value: "Value") -> dict[str, Any]:
    return {"key": value.key, "value": value.value, "source": value.source}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
