"""`agent state`: the values that outlive tasks."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.tasks.operator.state_commands import StateResult

app = typer.Typer(rich_markup_mode=None, help="List and change the values that outlive tasks.")

NameArgument = Annotated[str, Argument(metavar="NAME", help="The value's name.")]
WorkflowOption = Annotated[
    str | None, Option("--workflow", "-w", metavar="WORKFLOW", help="A value of this workflow.")
]
SharedOption = Annotated[bool, Option("--shared", help="A value that all workflows share.")]
VersionOption = Annotated[
    int | None,
    Option("--if-version", metavar="N", help="Only if it still has this version."),
]


@app.callback(invoke_without_command=True)
def _by_default(
    context: typer.Context,
    workflow: WorkflowOption = None,
    *,
    shared: SharedOption = False,
    as_json: JsonOption = False,
) -> None:
    if context.invoked_subcommand is None:
        list_state(workflow, shared=shared, as_json=as_json)


@app.command("list")
def list_state(
    workflow: WorkflowOption = None,
    *,
    shared: SharedOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the current values."""
    from agent.cli.output import terminal

    with session.client() as client:
        values = client.state_values(_scope(workflow, shared=shared), None)
    if as_json:
        terminal.print_json(values)
    elif not values:
        terminal.print_line("no values")
    else:
        terminal.print_table(
            ("scope", "name", "value", "version", "when", "by"),
            [(value["scope"], value["name"], *_columns(value)) for value in values],
        )


@app.command("show")
def show(
    name: NameArgument,
    workflow: WorkflowOption = None,
    *,
    shared: SharedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a value with its latest versions and what wrote each."""
    from agent.cli.output import terminal

    with session.client() as client:
        document = client.state_value(_find(client, name, workflow, shared=shared), name)
    if as_json:
        terminal.print_json(document)
        return
    terminal.print_line(f"{document['name']} in {document['scope']}, version {document['version']}")
    text = "(deleted)" if document["deleted"] else terminal.to_json_text(document["value"])
    terminal.print_line(text)
    terminal.print_line("")
    rows = [_columns(version) for version in document["history"]]
    terminal.print_table(("value", "version", "when", "by"), rows)


@app.command("set")
def set_value(
    name: NameArgument,
    value: Annotated[
        str,
        Argument(metavar="VALUE", help="JSON, or else a text; - reads it from standard input."),
    ],
    workflow: WorkflowOption = None,
    if_version: VersionOption = None,
    *,
    shared: SharedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set a value. Steps that have read it before keep what they read."""
    new = _parsed(value)
    with session.client() as client:
        scope = _find(client, name, workflow, shared=shared)
        result = client.set_state(scope, name, new, if_version)
    _print(result, as_json=as_json)


@app.command("delete")
def delete(
    name: NameArgument,
    workflow: WorkflowOption = None,
    if_version: VersionOption = None,
    *,
    shared: SharedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a value; its versions count on if it is written again."""
    with session.client() as client:
        scope = _find(client, name, workflow, shared=shared)
        result = client.delete_state(scope, name, if_version)
    _print(result, as_json=as_json)


def _scope(workflow: str | None, *, shared: bool) -> str | None:
    from agent.cli.errors import CommandError
    from agent.core.state_names import SHARED, workflow_scope

    if workflow is not None and shared:
        raise CommandError("give --workflow or --shared, not both")
    if shared:
        return SHARED
    return None if workflow is None else workflow_scope(workflow)


def _find(client: "AgentClient", name: str, workflow: str | None, *, shared: bool) -> str:
    """Return the scope of a value: as given, or the only one that has it."""
    from agent.cli.errors import CommandError, Exit

    scope = _scope(workflow, shared=shared)
    if scope is not None:
        return scope
    scopes = [str(value["scope"]) for value in client.state_values(None, name)]
    if len(scopes) == 1:
        return scopes[0]
    where = f"{name!r} is in {', '.join(scopes)}" if scopes else f"there is no value {name!r}"
    raise CommandError(f"{where}: give --workflow W or --shared", Exit.REFUSED)


def _parsed(text: str) -> Any:
    """Read a value: JSON if it is that, else the text itself."""
    import json
    import sys

    from agent.cli import inputs
    from agent.cli.errors import CommandError

    if text == "-":
        text = sys.stdin.read().rstrip("\n")
    try:
        json.loads(text)
    except ValueError:
        return text
    try:
        return inputs.parse_json(text, "the value")
    except RecursionError:
        raise CommandError("the value is nested too deeply") from None


def _columns(value: dict[str, Any]) -> tuple[str, ...]:
    from agent.cli.output import terminal

    text = "(deleted)" if value["deleted"] else terminal.one_line(value["value"], 60)
    by = value["written_by"]
    if value["task"] is not None:
        by += f" of task {terminal.short(value['task'])}"
    return (text, str(value["version"]), terminal.ago(value["written_at"]), by)


def _print(result: "StateResult", *, as_json: bool) -> None:
    from agent.cli.output import terminal

    if as_json:
        terminal.print_json(
            {"changed": result.is_changed, "message": result.message, "version": result.version}
        )
    else:
        terminal.print_line(result.message)
