"""`agent watchers`: lists watchers, shows one, and controls it."""

from typing import Annotated

import typer

from agent.cli import session
from agent.cli.commands import triggers
from agent.cli.commands.triggers import AllOption, FiringsOption, ReasonOption, UntilOption
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

app = typer.Typer(rich_markup_mode=None, help="List and control watchers.")
NameArgument = Annotated[
    str,
    Argument(
        metavar="NAME", help="WORKFLOW:NAME, a unique name, or a workflow that has one watcher."
    ),
]
_KIND = "watch"


@app.callback(invoke_without_command=True)
def _by_default(
    context: typer.Context, *, show_all: AllOption = False, as_json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        list_watchers(show_all=show_all, as_json=as_json)


@app.command("list")
def list_watchers(*, show_all: AllOption = False, as_json: JsonOption = False) -> None:
    """List watchers, and how their polls go."""
    from agent.cli.output import trigger_view

    triggers.list_triggers(_KIND, trigger_view.print_watchers, show_all=show_all, as_json=as_json)


@app.command("show")
def show(name: NameArgument, limit: FiringsOption = 20, *, as_json: JsonOption = False) -> None:
    """Show a watcher, and what became of its latest items."""
    triggers.show_trigger(name, _KIND, limit, as_json=as_json)


@app.command("pause")
def pause(
    name: NameArgument,
    until: UntilOption = None,
    reason: ReasonOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Pause a watcher: it does not poll.

    Queued runs stay queued. Items that came in the pause are skipped when it ends.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    request = TriggerRequest("pause", until=until, reason=reason)
    triggers.change(name, _KIND, request, as_json=as_json)


@app.command("resume")
def resume(
    name: NameArgument,
    *,
    catch_up: Annotated[
        bool, Option("--catch-up", help="Start tasks for items that came in the pause.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Resume a paused watcher.

    It polls at once; items that came in the pause are skipped.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    triggers.change(name, _KIND, TriggerRequest("resume", catch_up=catch_up), as_json=as_json)


@app.command("check")
def check(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Poll once and show what would start; records nothing."""
    from agent.cli.output import terminal, trigger_view

    with session.client() as client:
        document = client.check_trigger(client.find_trigger(name, _KIND))
    (terminal.print_json if as_json else trigger_view.print_check)(document)


@app.command("reset")
def reset(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Make the next poll a first one, as `first` says.

    Items that have a fate keep it: none of them starts a second task.
    """
    from agent.triggers.commands.command_request import TriggerRequest

    triggers.change(name, _KIND, TriggerRequest("reset"), as_json=as_json)


@app.command("run")
def run(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Let a watcher poll now."""
    from agent.triggers.commands.command_request import TriggerRequest

    triggers.change(name, _KIND, TriggerRequest("run"), as_json=as_json)
