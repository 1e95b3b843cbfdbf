"""`agent pair` and `agent pairings`: who may use the agent from a chat."""

from typing import Annotated, Any

import typer

from agent.cli import session
from agent.cli.options import JsonOption

app = typer.Typer(rich_markup_mode=None, help="List and remove people who may use a chat.")


def pair(
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="What the chat showed to whoever wrote to it.")
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What they may do: read, operate, approve or admin; may be repeated."
            " Without it: operate and approve.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Let somebody use the agent from a chat."""
    from agent.channels.chat import pairing
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal

    try:
        found = pairing.confirm(session.database(), code, scope or list(pairing.DEFAULT_SCOPES))
    except ValueError as problem:
        raise CommandError(str(problem)) from None
    session.audit("pair", f"{found.channel}:{found.identity}", scopes=list(found.scopes))
    if as_json:
        terminal.print_json(_document(found))
        return
    terminal.print_line(
        f"{found.name} ({found.channel}:{found.identity}) is paired: {', '.join(found.scopes)}"
    )


@app.callback(invoke_without_command=True)
def _by_default(context: typer.Context, *, as_json: JsonOption = False) -> None:
    if context.invoked_subcommand is None:
        list_pairings(as_json=as_json)


@app.command("list")
def list_pairings(*, as_json: JsonOption = False) -> None:
    """List everybody who is paired."""
    from agent.cli.output import terminal
    from agent.store.channels import pairings

    with session.reading() as connection:
        found = [_document(each) for each in pairings.listed(connection)]
    if as_json:
        terminal.print_json(found)
    elif not found:
        terminal.print_line("nobody is paired")
    else:
        terminal.print_table(
            ("who", "name", "scopes", "since"),
            [
                (each["who"], each["name"], ", ".join(each["scopes"]), each["paired_at"])
                for each in found
            ],
        )


@app.command("remove")
def remove(
    who: Annotated[
        str, typer.Argument(metavar="WHO", help="As the list shows it: telegram:12345.")
    ],
    *,
    as_json: JsonOption = False,
) -> None:
    """Let somebody no longer use the agent from a chat."""
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal
    from agent.store.channels import pairings

    channel, _, identity = who.partition(":")
    with session.database().connect("writer") as tx, tx.transaction():
        is_removed = pairings.remove(tx, channel, identity)
    if not is_removed:
        raise CommandError(f"{who} is not paired; `agent pairings` lists who is", Exit.REFUSED)
    session.audit("remove pairing", who)
    if as_json:
        terminal.print_json({"who": who, "removed": True})
    else:
        terminal.print_line(f"{who} is removed")


def _document(found: Any) -> dict[str, Any]:
    from agent.core.clock import to_iso

    return {
        "who": f"{found.channel}:{found.identity}",
        "channel": found.channel,
        "identity": found.identity,
        "name": found.name,
        "scopes": list(found.scopes),
        "paired_at": to_iso(found.paired_at),
    }
