"""`agent validate`: what is wrong with workflow files, all of it at once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption

if TYPE_CHECKING:
    from agent.workflows.directory import Entry


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Workflow files (default: the directory's)."),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Check workflow files without running them."""
    from agent import catalog
    from agent.cli import terminal

    if files:
        entries = [_read(path) for path in files]
    else:
        settings = session.settings()
        entries = list(catalog.scan(settings))
        if not entries:
            raise CommandError(f"there are no workflow files in {settings.workflow_directory}")
    if as_json:
        terminal.print_json(
            {
                "ok": not any(entry.problems for entry in entries),
                "files": [_document(entry) for entry in entries],
            }
        )
    else:
        for entry in entries:
            _print(entry)
    if any(entry.problems for entry in entries):
        raise typer.Exit(int(Exit.BAD_INPUT))


def _read(path: Path) -> "Entry":
    import agent.steps.kinds  # noqa: F401  (registers the kinds of steps)
    from agent.workflows.directory import Entry
    from agent.workflows.files import load
    from agent.workflows.problems import WorkflowError

    try:
        return Entry(path, load(path))
    except WorkflowError as error:
        return Entry(path, problems=tuple(error.problems))


def _document(entry: "Entry") -> dict[str, object]:
    from agent import catalog

    return {
        "file": str(entry.path),
        "name": entry.name,
        "ok": not entry.problems,
        "problems": [problem.document() for problem in entry.problems],
        "remarks": [] if entry.problems else catalog.remarks(entry),
    }


def _print(entry: "Entry") -> None:
    from agent import catalog
    from agent.cli import terminal
    from agent.workflows.problems import show

    if not entry.problems:
        assert entry.workflow is not None
        count = len(entry.workflow.graph.steps)
        terminal.say(
            f"✓ {entry.path}: {entry.name}, {count} step{'s' if count > 1 else ''}", "green"
        )
        for remark in catalog.remarks(entry):
            terminal.say(f"  {remark}", "yellow")
        return
    try:
        texts = {str(entry.path): entry.path.read_text(encoding="utf-8")}
    except (OSError, UnicodeError):
        texts = {}
    terminal.say(show(entry.problems, texts))
    count = len(entry.problems)
    terminal.say(f"✗ {entry.path}: {count} problem{'s' if count > 1 else ''}", "red")
