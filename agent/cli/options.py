"""Arguments and options that several commands share."""

from typing import Annotated

from agent.cli.parameters import Argument, Option

JsonOption = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
TaskArgument = Annotated[
    str,
    Argument(
        metavar="TASK",
        help="A task's id, or the unique start or end of one; or `last`, `last:WORKFLOW`.",
    ),
]
LimitOption = Annotated[
    int, Option("--limit", "-n", min=1, max=10_000, help="The maximum number to list.")
]
InputOption = Annotated[
    list[str] | None,
    Option("--input", "-i", metavar="KEY=VALUE", help="One input; may be repeated."),
]
InputJsonOption = Annotated[
    str | None,
    Option(
        "--input-json",
        metavar="JSON|-",
        help="All inputs as JSON; - reads them from standard input.",
    ),
]
FollowOption = Annotated[
    bool, Option("--follow", "-f", help="Keep printing as more arrives; Ctrl-C stops.")
]
NoInputOption = Annotated[bool, Option("--no-input", help="Ask nothing here; questions stay open.")]
WaitOption = Annotated[bool, Option("--wait", help="Follow the task to its end.")]
