"""`agent schedules`: lists schedules, shows one, and controls it."""

from typing import Annotated

import typer

from agent.cli.commands import triggers
from agent.cli.commands.triggers import AllOption, FiringsOption, ReasonOption, UntilOption
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

app = typer.Typer(rich_markup_mode=None, help="List and control schedules.")
NameArgument = Annotated[
    str,
    Argument(
        metavar="NAME",
        help="WORKFLOW:NAME, a unique name, or a workflow that has one schedule.",
    ),
]
_KIND = "schedule"


@app.callback(invoke_without_command=True)
def _by_default(
    context: typer.Context, *, show_all: AllOption = False, as_json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        list_schedules(show_all=show_all, as_json=as_json)


@app.command("list")
def list_schedules(*, show_all: AllOption = False, as_json: JsonOption = False) -> None:
    """List schedules, with the fates of the latest instants."""
    from agent.cli.output import trigger_view

    triggers.list_triggers(_KIND, trigger_view.print_schedules, show_all=show_all, as_json=as_json)


@app.command("show")
def show(name: NameArgument, limit: FiringsOption = 20, *, as_json: JsonOption = False) -> None:
    """Show the next and the latest instants of a schedule."""
    triggers.show_trigger(name, _KIND, limit, as_json=as_json)


@app.command("pause")
def pause(
    name: NameArgument,
    until: UntilOption = None,
    reason: ReasonOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Pause a schedule: it starts nothing by itself.

    Queued runs stay queued. Instants of the pause are skipped when it ends.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    request = TriggerRequest("pause", until=until, reason=reason)
    triggers.change(name, _KIND, request, as_json=as_json)


@app.command("resume")
def resume(
    name: NameArgument,
    *,
    catch_up: Annotated[
        bool,
        Option("--catch-up", help="Treat instants of the pause by `catch_up`, as missed."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Resume a paused schedule; instants of the pause are skipped.

    A schedule that was paused after failures starts counting them again. A broken one is taken into
    use again if its definition can be read.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    triggers.change(name, _KIND, TriggerRequest("resume", catch_up=catch_up), as_json=as_json)


@app.command("run")
def run(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Start a task of a schedule now.

    It starts whatever the overlap says. Its instants do not change; a paused schedule can be run, too.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    triggers.change(name, _KIND, TriggerRequest("run"), as_json=as_json)


@app.command("skip")
def skip(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Skip the next instant of a schedule."""
    from agent.triggers.commands.command_request import TriggerRequest

    triggers.change(name, _KIND, TriggerRequest("skip"), as_json=as_json)


@app.command("backfill")
def backfill(
    name: NameArgument,
    first: Annotated[
        str,
        Option("--from", metavar="TIME", help="An ISO time or date, or how long ago (7d, 12h)."),
    ],
    last: Annotated[
        str | None, Option("--to", metavar="TIME", help="The same; default: now.")
    ] = None,
    most: Annotated[
        int, Option("--most", min=1, max=10_000, help="The maximum number of runs.")
    ] = 100,
    *,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the instants, and run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run instants of the past that have no fate of their own.

    The oldest come first. They are queued, spread by `stagger`, and start as the overlap allows.
    Both ends of the time are included; times without an offset are in the schedule's zone.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    request = TriggerRequest("backfill", first=first, last=last, most=most, dry_run=dry_run)
    triggers.change(name, _KIND, request, as_json=as_json)
