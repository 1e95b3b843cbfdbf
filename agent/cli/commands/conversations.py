"""`agent conversations`: what people and agents said, and its deletion."""

from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import Document

app = typer.Typer(
    rich_markup_mode=None, help="List, show and delete what is kept of conversations."
)

NameArgument = Annotated[
    str, Argument(metavar="NAME", help="The conversation, as in telegram:12345.")
]
LimitOption = Annotated[int, Option("--limit", min=1, help="How many, at most.")]


@app.callback(invoke_without_command=True)
def _by_default(context: typer.Context, *, as_json: JsonOption = False) -> None:
    if context.invoked_subcommand is None:
        list_conversations(as_json=as_json)


@app.command("list")
def list_conversations(limit: LimitOption = 100, *, as_json: JsonOption = False) -> None:
    """List conversations, the one with the newest entry first."""
    from agent.cli.output import terminal

    with session.client() as client:
        listed = client.conversations(limit)
    if as_json:
        terminal.print_json(listed)
    elif not listed:
        terminal.print_line("no conversation is kept")
    else:
        rows = [
            (
                conversation["id"],
                str(conversation["entries"]),
                str(conversation["summaries"]),
                str(conversation["tokens"]),
                terminal.ago(conversation["last_at"]),
            )
            for conversation in listed
        ]
        terminal.print_table(("conversation", "entries", "summaries", "tokens", "last"), rows)


@app.command("show")
def show(
    name: NameArgument,
    after: Annotated[int, Option("--after", min=0, help="Only entries after this.")] = 0,
    limit: LimitOption = 1000,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the entries of a conversation, the oldest first."""
    from agent.cli.output import terminal

    with session.client() as client:
        document = client.conversation(name, after, limit)
    if as_json:
        terminal.print_json(document)
        return
    for entry in document["entries"]:
        terminal.print_line(_heading(entry), "bold")
        terminal.print_line(f"{entry['text']}\n")
    if document["next"] is not None:
        terminal.note(f"more entries follow: --after {document['next']}")


@app.command("forget")
def forget(
    name: NameArgument,
    *,
    is_sure: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete every entry of a conversation.

    The tasks that answered stay.
    """
    import sys

    from agent.cli.errors import CommandError
    from agent.cli.output import terminal

    if not is_sure:
        if not sys.stdin.isatty():
            raise CommandError("this deletes every entry of the conversation: say so by --yes")
        typer.confirm(f"Delete every entry of {name}?", abort=True)
    with session.client() as client:
        deleted = client.forget_conversation(name)
    if as_json:
        terminal.print_json(deleted)
    else:
        terminal.print_line(f"deleted {deleted['deleted']} entries of {name}")


def _heading(entry: "Document") -> str:
    from agent.cli.output import terminal

    covers = f" of 1 to {entry['covers_until']}" if entry["covers_until"] is not None else ""
    task = f", task {terminal.short(entry['task'])}" if entry["task"] else ""
    facts = f"{terminal.ago(entry['at'])}{task}, {entry['tokens']} tokens"
    return f"{entry['number']} {entry['role']}{covers}  ({facts})"
