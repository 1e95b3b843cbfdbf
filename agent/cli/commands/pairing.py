"""`agent pair` and `agent pairings`: chat accounts that may use the agent."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.store.channels.pairings import Pairing

app = typer.Typer(rich_markup_mode=None, help="List and remove paired chat accounts.")


def pair(
    code: Annotated[str, Argument(metavar="CODE", help="The code that the chat account received.")],
    scope: Annotated[
        list[str] | None,
        Option(
            "--scope",
            help="read, operate, approve or admin; may be repeated. Default: operate and approve.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Pair a chat account, so that it may use the agent."""
    from agent.channels.chat import pairing
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal

    session.require_person("pair a chat account")
    try:
        account = pairing.confirm(session.database(), code, scope or list(pairing.DEFAULT_SCOPES))
    except ValueError as error:
        raise CommandError(str(error)) from None
    session.audit("pair", f"{account.channel}:{account.identity}", scopes=list(account.scopes))
    if as_json:
        terminal.print_json(_document(account))
        return
    terminal.print_line(
        f"{account.name} ({account.channel}:{account.identity}) is paired: {', '.join(account.scopes)}"
    )


@app.callback(invoke_without_command=True)
def _by_default(context: typer.Context, *, as_json: JsonOption = False) -> None:
    if context.invoked_subcommand is None:
        list_pairings(as_json=as_json)


@app.command("list")
def list_pairings(*, as_json: JsonOption = False) -> None:
    """List the paired accounts."""
    from agent.cli.output import terminal
    from agent.store.channels import pairings

    with session.reading() as connection:
        accounts = [_document(pairing) for pairing in pairings.listed(connection)]
    if as_json:
        terminal.print_json(accounts)
    elif not accounts:
        terminal.print_line("no account is paired")
    else:
        terminal.print_table(
            ("account", "name", "scopes", "since"),
            [
                (
                    account["who"],
                    account["name"],
                    ", ".join(account["scopes"]),
                    terminal.moment(account["paired_at"]),
                )
                for account in accounts
            ],
        )


@app.command("remove")
def remove(
    who: Annotated[str, Argument(metavar="WHO", help="The account, as in telegram:12345.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Remove a paired account: it may no longer use the agent."""
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal
    from agent.store.channels import pairings

    channel, _, identity = who.partition(":")
    with session.database().connect("writer") as tx, tx.transaction():
        is_removed = pairings.remove(tx, channel, identity)
    if not is_removed:
        raise CommandError(
            f"{who} is not paired; `agent pairings` lists the paired accounts", Exit.REFUSED
        )
    session.audit("remove pairing", who)
    if as_json:
        terminal.print_json({"who": who, "removed": True})
    else:
        terminal.print_line(f"removed {who}")


def _document(pairing: "Pairing") -> dict[str, Any]:
    from agent.core.clock import to_iso

    return {
        "who": f"{pairing.channel}:{pairing.identity}",
        "channel": pairing.channel,
        "identity": pairing.identity,
        "name": pairing.name,
        "scopes": list(pairing.scopes),
        "paired_at": to_iso(pairing.paired_at),
    }
