"""Arguments and options that several commands share."""

from typing import Annotated

import typer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.")
]
TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="A task's id, or the unique start or end of one.")
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=10_000, help="The maximum number to list.")
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="KEY=VALUE", help="One input; may be repeated."),
]
InputJsonOption = Annotated[
    str | None,
    typer.Option(
        "--input-json",
        metavar="JSON|-",
        help="All inputs as JSON; - reads them from standard input.",
    ),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep printing as more arrives; Ctrl-C stops.")
]
NoInputOption = Annotated[
    bool, typer.Option("--no-input", help="Ask nothing here; questions stay open.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Follow the task to its end.")]
