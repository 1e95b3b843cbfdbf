"""`agent triggers`: schedules and watchers in one list; and the code that both commands share."""

from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import invocation, session
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.triggers.commands.command_request import TriggerRequest

AllOption = Annotated[
    bool, Option("--all", help="Also those that were removed from their workflows.")
]
UntilOption = Annotated[
    str | None,
    Option("--until", metavar="TIME", help="A duration (2h, 1d) or an ISO time."),
]
ReasonOption = Annotated[str | None, Option("--reason", help="Shown with it.")]
FiringsOption = Annotated[
    int, Option("--limit", "-n", min=1, max=10_000, help="The latest fates to show.")
]


def triggers(*, show_all: AllOption = False, as_json: JsonOption = False) -> None:
    """List schedules and watchers."""
    from agent.cli.output import trigger_view

    list_triggers(None, trigger_view.print_triggers, show_all=show_all, as_json=as_json)


def list_triggers(
    kind: str | None,
    print_list: "Callable[[list[dict[str, Any]]], None]",
    *,
    show_all: bool,
    as_json: bool,
) -> None:
    """Print the triggers of one kind, or of both."""
    from agent.cli.output import terminal

    with session.client() as client:
        triggers = client.triggers(kind, None)
        if show_all:
            triggers += client.triggers(kind, "removed")
    if as_json:
        terminal.print_json(triggers)
    elif not triggers:
        terminal.print_line(_no_triggers(kind))
    else:
        print_list(triggers)


def _no_triggers(kind: str | None) -> str:
    """Return what to say of an empty list: an agent that has just started reads its files first."""
    name = {"schedule": "schedules", "watch": "watchers"}.get(kind or "", "triggers")
    if invocation.server_url() is None and session.settings().workflow_directory.is_dir():
        from agent.daemon import workflow_overview
        from agent.triggers.specs import triggers_of

        graphs = workflow_overview.graphs_of(workflow_overview.scan(session.settings()))
        defined = [
            trigger.id
            for graph in graphs.values()
            for trigger in triggers_of(graph)
            if kind in (None, trigger.kind)
        ]
        if defined:
            return (
                f"no {name} are recorded yet; the workflow files define {', '.join(sorted(defined))}:"
                f" `{invocation.program()} up` records them within seconds of its start"
            )
    key = f"`on: {kind}:`" if kind else "`on: schedule:` or `on: watch:`"
    return f"no {name} yet: a workflow defines them under {key}"


def show_trigger(text: str, kind: str, limit: int, *, as_json: bool) -> None:
    """Print everything about one trigger."""
    from agent.cli.output import terminal, trigger_view

    with session.client() as client:
        trigger_id = client.find_trigger(text, kind)
        document = client.trigger(trigger_id)
        document["firings"] = client.firings(trigger_id, limit)
    (terminal.print_json if as_json else trigger_view.print_trigger)(document)


def change(text: str, kind: str, request: "TriggerRequest", *, as_json: bool) -> None:
    """Find a trigger, carry out a command on it, and print the result."""
    from agent.cli.commands import run
    from agent.cli.output import terminal, trigger_view

    with session.client() as client:
        trigger_id = client.find_trigger(text, kind)
        result = client.change_trigger(trigger_id, request)
        if as_json:
            terminal.print_json(
                {
                    "changed": result.is_changed,
                    "message": result.message,
                    "trigger_id": result.trigger_id,
                    "tasks": result.tasks,
                    "instants": result.instants,
                }
            )
            return
        message = result.message
        for task_id in result.tasks:
            message = message.replace(task_id, f"task {terminal.short(task_id)}")
        terminal.print_line(f"{result.trigger_id}: {message}")
        document = client.trigger(trigger_id)
        if request.verb == "backfill":
            for instant in result.instants:
                terminal.print_line(f"  {trigger_view.when(instant, document['timezone'])}")
        elif document["next_at"] is not None:
            due = trigger_view.when(document["next_at"], document["timezone"])
            terminal.print_line(f"  next: {due}")
        if result.is_changed and document["status"] == "active":
            run.warn_if_no_worker(client)
