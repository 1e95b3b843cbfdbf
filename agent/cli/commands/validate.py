"""`agent validate`: reports every problem of workflow files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agent.cli import session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.triggers.schedule_remarks import Preview
    from agent.workflows.directory import Entry
    from agent.workflows.graph import Graph


def validate(
    files: Annotated[
        list[str] | None,
        Argument(metavar="FILE", help="Workflow files (default: all of the workflow directory)."),
    ] = None,
    *,
    trust: Annotated[
        bool,
        Option(
            "--trust", help="Also run workflow files in Python, to check the workflows they define."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check workflow files without running them."""
    from agent.cli.output import terminal
    from agent.daemon import step_remarks, workflow_overview

    if files:
        settings = _settings()
        entries = [_read(Path(file), is_trusted=trust) for file in files]
        known = _beside(entries)
    else:
        settings = session.settings()
        entries = list(workflow_overview.scan(settings))
        if not entries:
            raise CommandError(f"there are no workflow files in {settings.workflow_directory}")
        known = workflow_overview.graphs_of(entries)
    if as_json:
        terminal.print_json(
            {
                "ok": not any(entry.problems for entry in entries),
                "files": [
                    _document(entry, step_remarks.of_file(entry, known, settings))
                    for entry in entries
                ],
            }
        )
    else:
        for entry in entries:
            _print(entry, step_remarks.of_file(entry, known, settings))
    if any(entry.problems for entry in entries):
        raise SystemExit(int(Exit.BAD_INPUT))


def _read(path: Path, *, is_trusted: bool) -> "Entry":
    import agent.steps.spec.registry  # noqa: F401  (registers the kinds of steps)
    from agent.workflows.diagnostics import Problem
    from agent.workflows.directory import Entry, read_entry

    if path.suffix == ".py" and not is_trusted and path.is_file():
        message = "not checked: to check a workflow in Python, its file is run with your rights"
        problem = Problem(str(path), None, None, "", message, "read it, then add --trust")
        return Entry(path, problems=(problem,))
    return read_entry(path, is_trusted=is_trusted)


def _beside(entries: "list[Entry]") -> "dict[str, Graph]":
    """Return the workflows that the files may refer to: each other, and those beside them."""
    from agent.daemon import workflow_overview
    from agent.steps.spec.child_workflows import has_children
    from agent.workflows.directory import Directory

    if not any(entry.workflow and has_children(entry.workflow.graph) for entry in entries):
        return {}
    known: dict[str, Graph] = {}
    for directory_path in dict.fromkeys(
        [session.settings().workflow_directory, *(entry.path.parent for entry in entries)]
    ):
        directory = Directory(directory_path, known=entries)
        directory.scan()
        known |= workflow_overview.graphs_of(directory.entries)
    return known | workflow_overview.graphs_of(entries)


def _settings() -> "Settings | None":
    """Return the configuration that files are checked against; None, and a note, if it is wrong."""
    from agent.cli.output import terminal
    from agent.config.loader import ConfigError

    try:
        return session.settings()
    except ConfigError as error:
        terminal.note(f"models and addresses are not checked: {error}")
        return None


def _document(entry: "Entry", remarks: list[str]) -> dict[str, object]:
    from agent.cli.output import trigger_preview

    return {
        "file": str(entry.path),
        "name": entry.name,
        "ok": not entry.problems,
        "problems": [problem.document() for problem in entry.problems],
        "remarks": remarks,
        "triggers": [trigger_preview.document(preview) for preview in _previews(entry)],
    }


def _previews(entry: "Entry") -> "list[Preview]":
    from agent.core.clock import Clock
    from agent.triggers.schedule_remarks import preview_triggers

    if entry.problems or entry.workflow is None:
        return []
    return preview_triggers(entry.workflow.graph, Clock().now())


def _print(entry: "Entry", remarks: list[str]) -> None:
    from agent.cli.output import terminal, trigger_preview
    from agent.workflows.diagnostics import WorkflowError, show
    from agent.workflows.loader import read_content

    if not entry.problems:
        assert entry.workflow is not None
        count = len(entry.workflow.graph.steps)
        terminal.print_line(
            f"✓ {entry.path}: {entry.name}, {count} step{'s' if count > 1 else ''}", "green"
        )
        for remark in remarks:
            terminal.print_line(f"  {remark}", "yellow")
        for preview in _previews(entry):
            trigger_preview.print_preview(preview)
        return
    try:
        texts = {str(entry.path): read_content(entry.path).decode()}
    except (WorkflowError, UnicodeError):
        texts = {}
    terminal.print_line(show(entry.problems, texts))
    for remark in remarks:
        terminal.print_line(f"  {remark}", "yellow")
    count = len(entry.problems)
    terminal.print_line(f"✗ {entry.path}: {count} problem{'s' if count > 1 else ''}", "red")
