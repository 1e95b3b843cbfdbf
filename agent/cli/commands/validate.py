"""`agent validate`: reports every problem of workflow files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agent.cli import session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.commands.validation_memory import FileReport, FollowsFrom, ValidationMemory
    from agent.config.settings import Settings
    from agent.triggers.schedules.schedule_remarks import Preview
    from agent.workflows.directory import Entry, NamedWorkflows


def validate(
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="FILE",
            help="Workflow files, or directories of them (default: the workflow directory).",
        ),
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
    from agent.cli.commands.validation_memory import ValidationMemory
    from agent.cli.output import terminal

    if not trust:
        # To search the whole environment for plugins of pydantic takes longer than to check a dozen files.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    settings = _settings() if files else session.settings()
    # A workflow in Python may read anything while it is run.
    memory = None if trust or settings is None else ValidationMemory(settings, files)
    reports = None if memory is None else memory.read()
    if reports is None:
        reports = _check(files, settings, memory, is_trusted=trust)
    is_right = not any(report.problems for report in reports)
    if as_json:
        terminal.print_json({"ok": is_right, "files": [_document(report) for report in reports]})
    else:
        for report in reports:
            _print(report)
    if not is_right:
        raise SystemExit(int(Exit.BAD_INPUT))


def _check(
    files: list[str] | None,
    settings: "Settings | None",
    memory: "ValidationMemory | None",
    *,
    is_trusted: bool,
) -> "list[FileReport]":
    from agent.workflows.directory import NamedWorkflows

    if files:
        entries = [entry for file in files for entry in _entries(Path(file), is_trusted=is_trusted)]
        directories = _directories(entries)
        known = _beside(entries, directories)
    else:
        assert settings is not None
        entries = _scanned(settings.workflow_directory)
        directories = []
        known = NamedWorkflows.of(entries)
    reports = [_report(entry, known, settings) for entry in entries]
    if memory is not None:
        memory.write(reports, _follows_from(entries, directories))
    return reports


def _report(entry: "Entry", known: "NamedWorkflows", settings: "Settings | None") -> "FileReport":
    from agent.cli.commands.validation_memory import FileReport
    from agent.steps.kinds import step_remarks
    from agent.triggers.specs import triggers_of

    graph = entry.workflow.graph if entry.workflow is not None else None
    return FileReport(
        str(entry.path),
        entry.name,
        0 if graph is None else len(graph.steps),
        step_remarks.of_file(entry, known, settings),
        entry.problems,
        graph if graph is not None and not entry.problems and triggers_of(graph) else None,
    )


def _follows_from(entries: "list[Entry]", directories: list[Path]) -> "FollowsFrom":
    from agent.cli.commands.validation_memory import FollowsFrom

    modules = [
        (step.config["call"].partition(":")[0], str(entry.path))
        for entry in entries
        if entry.workflow is not None
        for step in entry.workflow.graph.steps
        if step.kind == "python" and isinstance(step.config.get("call"), str)
    ]
    return FollowsFrom(modules, [str(directory) for directory in directories])


def _entries(path: Path, *, is_trusted: bool) -> "list[Entry]":
    from agent.workflows.file_names import is_directory

    return _scanned(path) if is_directory(path) else [_read(path, is_trusted=is_trusted)]


def _scanned(path: Path) -> "list[Entry]":
    """Read every workflow file of a directory."""
    from agent.workflows.directory import Directory

    directory = Directory(path)
    directory.scan()
    if not directory.entries:
        raise CommandError(f"there are no workflow files in {path}")
    return list(directory.entries)


def _read(path: Path, *, is_trusted: bool) -> "Entry":
    from agent.workflows.diagnostics import Problem
    from agent.workflows.directory import Entry, read_entry

    if path.suffix == ".py" and not is_trusted and path.is_file():
        message = "not checked: to check a workflow in Python, its file is run with your rights"
        problem = Problem(str(path), None, None, "", message, "read it, then add --trust")
        return Entry(path, problems=(problem,))
    return read_entry(path, is_trusted=is_trusted)


def _directories(entries: "list[Entry]") -> list[Path]:
    """Return where workflows are searched that steps run; nowhere if none runs another."""
    from agent.steps.spec.child_workflows import have_children

    if not any(have_children(entry.readable_steps) for entry in entries):
        return []
    parents = (entry.path.parent for entry in entries)
    return list(dict.fromkeys([session.settings().workflow_directory, *parents]))


def _beside(entries: "list[Entry]", directories: list[Path]) -> "NamedWorkflows":
    """Return the workflows that the files may refer to: each other, and those beside them."""
    from agent.workflows.directory import Directory, NamedWorkflows

    beside: list[Entry] = []
    for directory_path in directories:
        directory = Directory(directory_path, known=entries)
        directory.scan()
        beside += directory.entries
    return NamedWorkflows.of([*beside, *entries])


def _settings() -> "Settings | None":
    """Return the configuration that files are checked against; None, and a note, if it is wrong."""
    from agent.cli.output import terminal
    from agent.config.discovery import ConfigError

    try:
        return session.settings()
    except ConfigError as error:
        terminal.note(f"models and addresses are not checked: {error}")
        return None


def _document(report: "FileReport") -> dict[str, object]:
    previews = _previews(report)
    if previews:
        from agent.cli.output import trigger_preview
    return {
        "file": report.file,
        "name": report.name,
        "ok": not report.problems,
        "problems": [problem.document() for problem in report.problems],
        "remarks": report.remarks,
        "triggers": [trigger_preview.document(preview) for preview in previews],
    }


def _previews(report: "FileReport") -> "list[Preview]":
    if report.triggered is None:
        return []
    from agent.core.clock import Clock
    from agent.triggers.schedules.schedule_remarks import preview_triggers

    return preview_triggers(report.triggered, Clock().now())


def _print(report: "FileReport") -> None:
    from agent.cli.output import terminal

    count = report.step_count
    if report.problems:
        _print_problems(report)
    else:
        steps = terminal.counted(count, "step")
        mark, style = ("!", "yellow") if report.remarks else ("✓", "green")
        terminal.print_line(f"{mark} {report.file}: {report.name}, {steps}", style)
    for remark in report.remarks:
        terminal.print_line(f"  {remark}", "yellow")
    if report.problems:
        problems = terminal.counted(len(report.problems), "problem")
        terminal.print_line(f"✗ {report.file}: {problems}", "red")
    for preview in _previews(report):
        from agent.cli.output import trigger_preview

        trigger_preview.print_preview(preview)


def _print_problems(report: "FileReport") -> None:
    from agent.cli.output import terminal
    from agent.workflows.diagnostics import WorkflowError, show
    from agent.workflows.loader import read_content

    try:
        texts = {report.file: read_content(Path(report.file)).decode()}
    except (WorkflowError, UnicodeError):
        texts = {}
    terminal.print_line(show(report.problems, texts))
