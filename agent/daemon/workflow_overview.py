"""The workflows of a directory as people see them: versions, problems and remarks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

# Registers the kinds of steps: without them every step of a file would have an unknown kind.
from agent.steps.kinds import step_remarks
from agent.workflows.directory import Directory, Entry, NamedWorkflows
from agent.workflows.graph import Graph

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.db.database import Connection


def scan(settings: "Settings") -> tuple[Entry, ...]:
    """Read every workflow file of the directory."""
    directory = Directory(settings.workflow_directory)
    directory.scan()
    return directory.entries


def overview(settings: "Settings", connection: "Connection | None") -> list[dict[str, Any]]:
    """Return every workflow that has a file or is recorded, with remarks."""
    recorded, task_counts = {}, {}
    if connection is not None:
        from agent.store.engine import workflow_versions

        for version in workflow_versions.latest_versions(connection):
            recorded[version.name] = version
            task_counts[version.name] = workflow_versions.task_count(connection, version)
    listed: dict[str, dict[str, Any]] = {}
    entries = scan(settings)
    known = NamedWorkflows.of(entries)
    for entry in entries:
        name = entry.name or entry.path.stem
        record = recorded.pop(name, None)
        listed[name] = {
            "name": name,
            "version": record.number if record else None,
            "tasks": task_counts.get(name, 0),
            "file": str(entry.path),
            "description": entry.workflow.graph.description if entry.workflow else None,
            "remarks": remarks(entry, known, settings),
        }
    for name, record in recorded.items():
        listed[name] = {
            "name": name,
            "version": record.number,
            "tasks": task_counts[name],
            "file": record.path,
            "description": None,
            "remarks": ["removed"] if record.removed_at else [],
        }
    return [listed[name] for name in sorted(listed)]


def graphs_of(entries: Iterable[Entry]) -> dict[str, Graph]:
    """Return the workflows of files by their names."""
    return dict(NamedWorkflows.of(entries).graphs)


def remarks(entry: Entry, known: NamedWorkflows, settings: "Settings | None") -> list[str]:
    """Return the problems of a file, or warnings about what will fail when it runs.

    `known` are the workflows beside it, which its steps may run.
    """
    if entry.problems:
        return [str(problem) for problem in entry.problems]
    return step_remarks.of_file(entry, known, settings)
