"""`agent workflows`: lists workflows, shows one, and compares two versions."""

import json
from typing import Annotated

import typer

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

app = typer.Typer(rich_markup_mode=None, help="List, show and compare workflows.")
NameArgument = Annotated[str, Argument(metavar="NAME", help="The workflow's name.")]


@app.callback(invoke_without_command=True)
def _by_default(context: typer.Context, *, as_json: JsonOption = False) -> None:
    if context.invoked_subcommand is None:
        list_workflows(as_json=as_json)


@app.command("list")
def list_workflows(*, as_json: JsonOption = False) -> None:
    """List workflows, in files and in the database."""
    from agent.cli.output import terminal

    with session.client() as client:
        workflows = client.workflows()
    if as_json:
        terminal.print_json(workflows)
        return
    if not workflows:
        terminal.print_line("no workflows yet: agent init creates one")
        return
    terminal.print_table(
        ("workflow", "version", "tasks", "file", "remarks"),
        [
            (
                entry["name"],
                "" if entry["version"] is None else str(entry["version"]),
                str(entry["tasks"]),
                entry["file"] or "",
                "; ".join(entry["remarks"]),
            )
            for entry in workflows
        ],
    )


@app.command("show")
def show(
    name: NameArgument,
    version: Annotated[int | None, Option("--version", min=1, help="Default: the newest.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show a workflow: its graph, its inputs and its versions."""
    from agent.cli.output import terminal
    from agent.workflows.draw import draw
    from agent.workflows.graph import Graph

    with session.client() as client:
        document = client.workflow(name, version)
    if as_json:
        terminal.print_json(document)
        return
    graph = Graph.model_validate(document["graph"])
    terminal.print_line(f"{name} version {document['version']}", "bold")
    if graph.description:
        terminal.print_line(graph.description)
    for line in draw(graph, None):
        terminal.print_line(line)
    for key, keys in graph.inputs.items():
        terminal.print_line(f"input {key}: {terminal.one_line(keys)}")
    for version_row in document["versions"]:
        terminal.print_line(
            f"version {version_row['version']}  {terminal.moment(version_row['created_at'])}  {terminal.counted(version_row['tasks'], 'task')}"
            + ("  removed" if version_row["removed_at"] else ""),
            "dim",
        )


@app.command("compare")
def compare(
    name: NameArgument,
    old: Annotated[int, Argument(metavar="OLD", min=1, help="The number of a version.")],
    new: Annotated[int, Argument(metavar="NEW", min=1, help="That of another one.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two versions."""
    import difflib

    from agent.cli.output import terminal
    from agent.workflows.step_code import differing

    with session.client() as client:
        documents = [client.workflow(name, number) for number in (old, new)]
    # Compare the graphs where a version has no source.
    sources = [document["source"] for document in documents]
    if None in sources:
        sources = [json.dumps(document["graph"], indent=2) for document in documents]
    before, after = ((source or "").splitlines() for source in sources)
    lines = list(
        difflib.unified_diff(
            before, after, f"{name} version {old}", f"{name} version {new}", lineterm=""
        )
    )
    changed = differing(*(document["code"] or {} for document in documents))
    if as_json:
        terminal.print_json(
            {"name": name, "old": old, "new": new, "diff": lines, "changed_code": changed}
        )
        return
    for step in changed:
        terminal.print_line(f"the code of step {step} differs", "yellow")
    if not lines:
        terminal.print_line("their sources are the same" if changed else "the versions are equal")
    for line in lines:
        terminal.print_line(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
