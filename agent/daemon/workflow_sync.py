"""Workflows where they are kept: files in a directory, and versions on record in the database.

A name means the directory's file first, then the newest version on record. A running agent keeps
the record equal to the files (`WorkflowSync`): a changed file is a new version, a deleted one is marked as
removed, and tasks go on with the version that they started with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Registers the kinds of steps: without them every file would be full of unknown ones.
import agent.steps.spec.registry  # noqa: F401
from agent.config.settings import Settings
from agent.steps.attempt.prepare import watch_secrets
from agent.steps.kinds import python_modules
from agent.steps.spec.agent_config import workflows_of
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import workflow_histories, workflow_versions
from agent.workflows import loader
from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.compile.triggers import inactive_triggers
from agent.workflows.diagnostics import Problem, did_you_mean
from agent.workflows.directory import Directory, Entry
from agent.workflows.graph import Graph, Step
from agent.workflows.templates.templates import has_templates, is_template


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a file, for the log."""

    event: str
    details: dict[str, Any]


def scan(settings: Settings) -> tuple[Entry, ...]:
    """Read every workflow file of the directory."""
    directory = Directory(settings.workflow_directory)
    directory.scan()
    return directory.entries


def overview(settings: Settings, connection: Connection | None) -> list[dict[str, Any]]:
    """Return every workflow that has a file or a record, with remarks on what to know of it."""
    recorded = {}
    if connection is not None:
        recorded = {each.name: each for each in workflow_histories.latest_versions(connection)}
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
    """Return what a person should know of a file: its problems, or what will be missing.

    `known` are the workflows beside it, which its steps may run.
    """
    if entry.problems:
        return [str(problem) for problem in entry.problems]
    if entry.workflow is None:
        return []
    graph = entry.workflow.graph
    inactive = inactive_triggers(graph.on, frozenset({"webhook", "chat"}))
    found = [f"not active yet: {', '.join(inactive)}"] if inactive else []
    for step in graph.steps:
        try:
            about = [*_about_module(step, entry.path), *_about_child(step, known)]
        except Exception as error:
            # Remarks are advice: what cannot be found out must not keep a workflow from running.
            about = [f"it could not be checked further: {type(error).__name__}: {error}"]
        found += [f"step {step.name}: {text}" for text in about]
    return found


def _about_module(step: Step, path: Path) -> list[str]:
    """Say that a step's function is not to be found; it may still come, so it is no error."""
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
    """Say what a step's child would be refused for, as far as the files tell."""
    name = step.config.get("name") if step.kind == "workflow" else None
    if not isinstance(name, str) or is_template(name):
        return []
    if name not in known:
        hint = did_you_mean(name, known)
        return [f"no workflow file is called {name!r}" + (f"; {hint}" if hint else "")]
    given = step.config.get("with", {})
    if not isinstance(given, dict):
        return []
    try:
        check_inputs(
            known[name], given, [key for key, each in given.items() if has_templates(each)]
        )
    except InputError as error:
        return [f"{name}: {problem}" for problem in error.problems]
    return []


class WorkflowSync:
    """Keeps the workflows on record equal to the directory's files, as they change."""

    def __init__(self, settings: Settings) -> None:
        self._directory = Directory(settings.workflow_directory)
        self._hashes: dict[str, str] = {}
        self._is_behind = True
        """Whether files have changed that are not on record yet, as while the database is down."""
        self._told: set[Problem] = set()

    def sync(self, database: Database) -> list[Change]:
        """Record what changed since the last look; return what to tell.

        Only the database can make it fail, and then the next look tries all of it again.
        """
        self._is_behind |= self._directory.scan()
        if not self._is_behind:
            return []
        known = self._hashes
        current = {name: file.graph.hash for name, file in self._directory.workflows.items()}
        for file in self._directory.workflows.values():
            watch_secrets(file.graph)
        changes: list[Change] = []
        with database.connect("writer") as connection:
            for name, found in current.items():
                if known.get(name) != found:
                    changes += self._record(connection, name, database.clock.now())
            for name in self._gone(connection):
                with connection.transaction():
                    workflow_versions.remove(connection, name, database.clock.now())
                changes.append(Change("workflow.removed", {"workflow": name}))
        # Only now: what could not be recorded is tried again at the next look.
        self._hashes, self._is_behind = current, False
        for entry in self._directory.entries:
            changes += [
                _broken(str(problem), entry.defect)
                for problem in entry.problems
                if problem not in self._told
            ]
        self._told = set(self._directory.problems)
        return changes

    def _gone(self, connection: Connection) -> list[str]:
        """Return workflows on record whose file was here and is deleted, or is another's now."""
        if not self._directory.is_readable:
            return []
        here = self._directory.path.absolute()
        # A file that is broken at the moment is still its workflow's file.
        names = {str(entry.path.absolute()): entry.name for entry in self._directory.entries}
        return [
            record.name
            for record in workflow_histories.latest_versions(connection)
            if record.removed_at is None
            and record.path is not None
            and Path(record.path).parent == here
            and names.get(record.path, "") not in (record.name, None)
        ]

    def _record(self, connection: Connection, name: str, now: int) -> list[Change]:
        file = self._directory.workflows[name]
        path = str(file.path.absolute())
        try:
            with connection.transaction():
                before = workflow_versions.latest(connection, name)
                version = workflow_versions.register(
                    connection, name, file.graph.hash, file.graph.text, file.text, path, now
                )
        except (StoreError, ValueError) as error:
            if isinstance(error, StoreError) and error.fault is not Fault.DATA:
                raise
            # The file holds what the database does not take: that must not stop the others.
            return [_broken(f"{path}: it cannot be recorded: {error}", error)]
        if before is not None and before[0] == version:
            return []
        return [Change("workflow.loaded", {"workflow": name, "version": version})]


def _broken(problem: str, defect: BaseException | None) -> Change:
    details: dict[str, Any] = {"problem": problem}
    if defect is not None:
        details["exc_info"] = defect
    return Change("workflow.broken", details)


def has_children(graph: Graph) -> bool:
    """Whether a workflow may run others as child tasks."""
    return any(
        step.kind == "workflow" or (step.kind == "agent" and workflows_of(step.config))
        for step in graph.steps
    )


def record_beside(database: Database, path: Path, graph: Graph) -> None:
    """Put on record what a file's workflow runs, at any depth, and only files beside it define.

    Such a file is called as its workflow is. What is known from elsewhere stays as it is.
    """
    names, seen = _child_names(graph), {graph.name}
    with database.connect("writer") as connection:
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            found = _beside(connection, path, name)
            if found is None:
                continue
            names += _child_names(found.graph)
            source, at = found.text, str(found.path.absolute())
            with connection.transaction():
                workflow_versions.register(
                    connection,
                    name,
                    found.graph.hash,
                    found.graph.text,
                    source,
                    at,
                    database.clock.now(),
                )


def _beside(connection: Connection, path: Path, name: str) -> loader.WorkflowFile | None:
    known = workflow_versions.latest(connection, name)
    if known is not None and (known[3] is None or Path(known[3]).parent != path.parent):
        return None
    # Not `.py`: a module of that name may be there for its steps.
    for suffix in loader.SUFFIXES:
        candidate = path.with_name(name + suffix)
        if suffix != ".py" and candidate.is_file():
            found = loader.load(candidate)
            if found.graph.name == name:
                return found
    return None


def _child_names(graph: Graph) -> list[str]:
    """Return the workflows that a workflow's steps name, as far as that is known before they run."""
    names = [step.config.get("name") for step in graph.steps if step.kind == "workflow"]
    names += [
        name for step in graph.steps if step.kind == "agent" for name in workflows_of(step.config)
    ]
    return [name for name in names if isinstance(name, str) and not is_template(name)]
