"""`agent help`: the help of a command, and the man page."""

import sys
from typing import Annotated, Any

import typer

from agent.cli.parameters import Argument, Option


def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        Argument(metavar="COMMAND...", help="A command, as in token create."),
    ] = None,
    *,
    man: Annotated[bool, Option("--man", help="Print the man page of the whole program.")] = False,
) -> None:
    """Show this help, the help of a command, or the man page."""
    from agent.cli import front_page

    root: Any = context.find_root().command
    if man:
        from agent.cli import man_page

        sys.stdout.write(man_page.text(root))
        return
    if not words:
        sys.stdout.write(front_page.help_text())
        return
    # An unknown command, or a wrong one of a group, gets the usual error with a suggestion.
    root([*words, "--help"], prog_name="agent")
