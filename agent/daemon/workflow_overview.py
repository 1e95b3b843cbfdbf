"""The workflows of a directory as people see them: versions, problems and remarks."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Registers the kinds of steps: without them every step of a file would have an unknown kind.
import agent.steps.spec.registry  # noqa: F401
from agent.config.settings import Settings
from agent.steps.kinds import python_modules
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.diagnostics import did_you_mean
from agent.workflows.directory import Directory, Entry
from agent.workflows.graph import Graph, Step
from agent.workflows.templates.templates import has_templates, is_template


def scan(settings: Settings) -> tuple[Entry, ...]:
    """Read every workflow file of the directory."""
    directory = Directory(settings.workflow_directory)
    directory.scan()
    return directory.entries


def overview(settings: Settings, connection: Connection | None) -> list[dict[str, Any]]:
    """Return every workflow that has a file or is recorded, with remarks."""
    recorded = {}
    if connection is not None:
        versions = workflow_versions.latest_versions(connection)
        recorded = {version.name: version for version in versions}
    listed: dict[str, dict[str, Any]] = {}
    entries = scan(settings)
    known = graphs_of(entries)
    for entry in entries:
        name = entry.name or entry.path.stem
        record = recorded.pop(name, None)
        listed[name] = {
            "name": name,
            "version": record.number if record else None,
            "tasks": record.task_count if record else 0,
            "file": str(entry.path),
            "description": entry.workflow.graph.description if entry.workflow else None,
            "remarks": remarks(entry, known),
        }
    for name, record in recorded.items():
        listed[name] = {
            "name": name,
            "version": record.number,
            "tasks": record.task_count,
            "file": record.path,
            "description": None,
            "remarks": ["removed"] if record.removed_at else [],
        }
    return [listed[name] for name in sorted(listed)]


def graphs_of(entries: Iterable[Entry]) -> dict[str, Graph]:
    """Return the workflows of files by their names."""
    return {
        entry.workflow.graph.name: entry.workflow.graph
        for entry in entries
        if entry.workflow is not None and not entry.problems
    }


def remarks(entry: Entry, known: Mapping[str, Graph]) -> list[str]:
    """Return the problems of a file, or warnings about what will be missing when it runs.

    `known` are the workflows beside it, which its steps may run.
    """
    if entry.problems:
        return [str(problem) for problem in entry.problems]
    if entry.workflow is None:
        return []
    graph = entry.workflow.graph
    lines: list[str] = []
    for step in graph.steps:
        try:
            warnings = [*_about_module(step, entry.path), *_about_child(step, known)]
        except Exception as error:
            # Remarks are advice: an error here must not keep a workflow from running.
            warnings = [f"it could not be checked further: {type(error).__name__}: {error}"]
        lines += [f"step {step.name}: {text}" for text in warnings]
    return lines


def _about_module(step: Step, path: Path) -> list[str]:
    """Warn that a step's module is missing; it may still be added, so it is not an error."""
    call = step.config.get("call") if step.kind == "python" else None
    if (
        not isinstance(call, str)
        or is_template(call)
        or python_modules.module_exists(call, str(path))
    ):
        return []
    name = call.partition(":")[0]
    return [f"the module {name!r} is neither beside {path.name} nor installed"]


def _about_child(step: Step, known: Mapping[str, Graph]) -> list[str]:
    """Warn of a child workflow that is missing, or that would refuse its inputs."""
    name = step.config.get("name") if step.kind == "workflow" else None
    if not isinstance(name, str) or is_template(name):
        return []
    if name not in known:
        hint = did_you_mean(name, known)
        return [f"no workflow file is called {name!r}" + (f"; {hint}" if hint else "")]
    inputs = step.config.get("with", {})
    if not isinstance(inputs, dict):
        return []
    try:
        check_inputs(
            known[name], inputs, [key for key, value in inputs.items() if has_templates(value)]
        )
    except InputError as error:
        return [f"{name}: {problem}" for problem in error.problems]
    return []
