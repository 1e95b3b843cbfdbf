"""`agent examples`: the example workflows that come with the program."""

from typing import Annotated

from agent.cli.options import JsonOption
from agent.cli.parameters import Argument


def examples(
    name: Annotated[str | None, Argument(metavar="EXAMPLE", help="Print this one's file.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List the example workflows, or print one.

    `agent init --example EXAMPLE` copies one, with the files that it needs.
    """
    from agent.cli import example_files
    from agent.cli.output import terminal

    if name is not None:
        print(example_files.find(name).read_text(encoding="utf-8"), end="")
        return
    rows = [
        (example, example_files.description(path))
        for example, path in example_files.names().items()
    ]
    if as_json:
        terminal.print_json([{"name": example, "description": about} for example, about in rows])
    else:
        terminal.print_table(("example", "what it does"), rows)
