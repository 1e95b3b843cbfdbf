"""Keeps the workflows in the database equal to the files in the workflow directory.

A changed file becomes a new version, a deleted one is marked as removed. Tasks continue with the
version that they started with. The triggers of a workflow follow in the same transaction.
"""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Registers the kinds of steps: without them every step of a file would have an unknown kind.
from agent.steps.attempt.prepare import watch_secrets
from agent.steps.spec.child_workflows import workflows_of
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import trigger_rows, workflow_versions
from agent.triggers import sync
from agent.workflows import file_names, loader
from agent.workflows.diagnostics import Problem
from agent.workflows.directory import Directory, Entry
from agent.workflows.graph import Graph
from agent.workflows.templates.templates import is_template

if TYPE_CHECKING:
    from agent.config.settings import Settings


@dataclass(frozen=True, slots=True)
class WorkflowChange:
    """A changed file, as an event for the log."""

    event: str
    details: dict[str, Any]


class WorkflowSync:
    """Records the workflow files of a directory as they change."""

    def __init__(self, settings: "Settings") -> None:
        self._directory = Directory(settings.workflow_directory)
        self._hashes: dict[str, str] = {}
        self._is_behind = True
        """Whether changed files are not recorded yet, because the database was down."""
        self._reported: set[Problem] = set()
        self._owner = f"{socket.gethostname()}:{settings.workflow_directory.absolute()}"
        """Says on triggers that this directory defines them."""
        self._missing: set[str] = set()
        """Workflows whose file was missing in the last scan; in the next one their triggers go."""

    def follows(self, settings: "Settings") -> bool:
        """Whether it reads the workflow directory of these settings."""
        return self._directory.path == settings.workflow_directory

    def sync(self, database: Database) -> list[WorkflowChange]:
        """Record the changes since the last call and return them for the log.

        It fails only when the database does; the next call then records everything again.
        """
        self._is_behind |= self._directory.scan()
        if not self._is_behind and not self._missing:
            return []
        known = self._hashes
        current = {
            name: f"{file.graph.hash} {file.graph.code_text}"
            for name, file in self._directory.workflows.items()
        }
        for file in self._directory.workflows.values():
            watch_secrets(file.graph)
        changes: list[WorkflowChange] = []
        with database.connect("writer") as connection:
            for name, content in current.items():
                if known.get(name) != content:
                    changes += self._record(connection, name, database.clock.now())
            for name in self._removed(connection):
                with connection.transaction():
                    workflow_versions.remove(connection, name, database.clock.now())
                changes.append(WorkflowChange("workflow.removed", {"workflow": name}))
            changes += self._remove_triggers(connection, database.clock.now())
            self._note_problems(connection)
        # Only after the commits: what could not be recorded is tried again by the next call.
        self._hashes, self._is_behind = current, False
        for entry in self._directory.entries:
            changes += [
                _broken(str(problem), entry.defect)
                for problem in entry.problems
                if problem not in self._reported
            ]
        self._reported = set(self._directory.problems)
        return changes

    def _remove_triggers(self, connection: Connection, now: int) -> list[WorkflowChange]:
        """Remove triggers whose file was missing in two scans of a readable directory."""
        if not self._directory.is_readable:
            return []
        defined = {
            entry.name or self._name_of(connection, entry) for entry in self._directory.entries
        }
        recorded = trigger_rows.defined_by(connection, self._owner)
        missing = recorded - self._directory.workflows.keys() - defined
        changes: list[WorkflowChange] = []
        for name in missing & self._missing:
            with connection.transaction():
                removed = sync.remove_triggers(connection, name, self._owner, now)
            changes += [
                WorkflowChange("trigger.removed", {"trigger": trigger_id}) for trigger_id in removed
            ]
        self._missing = missing - self._missing
        return changes

    def _note_problems(self, connection: Connection) -> None:
        """Record on triggers that their file is broken: they keep their last good definition."""
        for entry in self._directory.entries:
            name = entry.name or self._name_of(connection, entry)
            if entry.problems and name is not None:
                with connection.transaction():
                    sync.note_problem(connection, name, _storable(str(entry.problems[0])))

    @staticmethod
    def _name_of(connection: Connection, entry: Entry) -> str | None:
        """Return the workflow that a file defined when it was last readable."""
        return workflow_versions.name_at(connection, _storable(str(entry.path.absolute())))

    def _removed(self, connection: Connection) -> list[str]:
        """Return recorded workflows whose file was deleted, or now defines another workflow."""
        if not self._directory.is_readable:
            return []
        directory = self._directory.path.absolute()
        # A broken file still belongs to its workflow.
        names = {str(entry.path.absolute()): entry.name for entry in self._directory.entries}
        return [
            record.name
            for record in workflow_versions.latest_versions(connection)
            if record.removed_at is None
            and record.path is not None
            and Path(record.path).parent == directory
            and names.get(record.path, "") not in (record.name, None)
        ]

    def _record(self, connection: Connection, name: str, now: int) -> list[WorkflowChange]:
        file = self._directory.workflows[name]
        path = str(file.path.absolute())
        try:
            with connection.transaction():
                before = workflow_versions.latest(connection, name)
                version = workflow_versions.register(
                    connection,
                    name,
                    file.graph.hash,
                    file.graph.text,
                    file.text,
                    path,
                    now,
                    file.graph.code_text,
                )
                triggers = sync.sync_workflow(connection, file.graph, version, self._owner, now)
        except (StoreError, ValueError) as error:
            if isinstance(error, StoreError) and error.fault is not Fault.DATA:
                raise
            # The database cannot store this file: the others must still be recorded.
            return [_broken(f"{path}: cannot be recorded: {error}", error)]
        changes = [
            WorkflowChange(f"trigger.{event}", {"trigger": trigger_id})
            for event, ids in triggers.by_event()
            for trigger_id in ids
        ]
        if before is None or before[0] != version:
            changes.append(
                WorkflowChange("workflow.loaded", {"workflow": name, "version": version})
            )
        return changes


def _storable(text: str) -> str:
    """Return a text that databases accept: names of files need not be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _broken(problem: str, defect: BaseException | None) -> WorkflowChange:
    details: dict[str, Any] = {"problem": problem}
    if defect is not None:
        details["exc_info"] = defect
    return WorkflowChange("workflow.broken", details)


def record_newest(database: Database, name: str) -> None:
    """Record the file of a workflow as it is now; raise `WorkflowError` if it is broken.

    A file in Python is left as it was recorded: only a start of its workflow runs it.
    """
    with database.connect("writer") as connection:
        latest = workflow_versions.latest(connection, name)
        path = None if latest is None or latest[3] is None else Path(latest[3])
        if path is None or path.suffix == ".py" or not path.is_file():
            return
        file = loader.load(path)
        if file.graph.name != name:
            return
        with connection.transaction():
            workflow_versions.register(
                connection,
                name,
                file.graph.hash,
                file.graph.text,
                file.text,
                str(path),
                database.clock.now(),
                file.graph.code_text,
            )


def record_beside(database: Database, path: Path, graph: Graph) -> None:
    """Record the child workflows, at any depth, that only files beside this one define.

    Such a file has the name of its workflow. Workflows recorded from elsewhere are not changed.
    """
    names, seen = _child_names(graph), {graph.name}
    with database.connect("writer") as connection:
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            file = _file_beside(connection, path, name)
            if file is None:
                continue
            names += _child_names(file.graph)
            with connection.transaction():
                workflow_versions.register(
                    connection,
                    name,
                    file.graph.hash,
                    file.graph.text,
                    file.text,
                    str(file.path.absolute()),
                    database.clock.now(),
                    file.graph.code_text,
                )


def _file_beside(connection: Connection, path: Path, name: str) -> loader.WorkflowFile | None:
    known = workflow_versions.latest(connection, name)
    if known is not None and (known[3] is None or Path(known[3]).parent != path.parent):
        return None
    # Not `.py`: such a file may be a module with functions for steps.
    for suffix in file_names.SUFFIXES:
        candidate = path.with_name(name + suffix)
        if suffix != ".py" and candidate.is_file():
            file = loader.load(candidate)
            if file.graph.name == name:
                return file
    return None


def _child_names(graph: Graph) -> list[str]:
    """Return the names of child workflows in a graph, except those that templates compute."""
    names = [step.config.get("name") for step in graph.steps if step.kind == "workflow"]
    names += [
        name for step in graph.steps if step.kind == "agent" for name in workflows_of(step.config)
    ]
    return [name for name in names if isinstance(name, str) and not is_template(name)]
