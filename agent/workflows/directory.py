"""A directory of workflow files, read again only where something changed."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from agent.core.ids import content_hash
from agent.core.quick_classes.quick_dataclasses import dataclass, field
from agent.workflows.diagnostics import Problem, WorkflowError
from agent.workflows.file_names import SUFFIXES
from agent.workflows.graph import Graph, Step
from agent.workflows.kind_registry import KindSpec
from agent.workflows.loader import UnexpectedError, WorkflowFile, load, read_content
from agent.workflows.step_code import code_hashes

YAML_SUFFIXES: Final = (".yaml", ".yml")
_RACY_SECONDS = 2.0
"""A file changed this recently may change again within the same time stamp."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its workflow, or its problems."""

    path: Path
    workflow: WorkflowFile | None = None
    problems: tuple[Problem, ...] = ()
    steps: tuple[Step, ...] = field(default=(), compare=False)
    """Of a file with problems, the steps that have none."""
    written_name: str | None = field(default=None, compare=False)
    """Of a file with problems, the name in it, if that could be read."""
    defect: BaseException | None = field(default=None, compare=False)
    """The compiler's exception where the defect is its own; for the log."""

    @property
    def readable_steps(self) -> tuple[Step, ...]:
        """The steps of the workflow; of a file with problems, those that have none."""
        return self.steps if self.workflow is None else tuple(self.workflow.graph.steps)

    @property
    def name(self) -> str | None:
        """The workflow's name, as far as the file could be read."""
        return self.workflow.graph.name if self.workflow is not None else None


@dataclass(frozen=True, slots=True)
class _ScannedFile:
    stamp: tuple[int, int, int, int]
    """Device, inode, size and time of the last change."""
    mtime_ns: int
    hash: str | None
    """None: the file could not be read, and every scan tries again."""
    read_at_ns: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class NamedWorkflows:
    """Workflow files by their names, by which steps of others refer to them."""

    graphs: Mapping[str, Graph] = field(default_factory=dict)
    broken: Mapping[str, Path] = field(default_factory=dict)
    """The files with problems; one without a readable name is known by the name of its file."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "NamedWorkflows":
        """Name the workflows of files; of two files with one name, the later one has it."""
        graphs: dict[str, Graph] = {}
        broken: dict[str, Path] = {}
        for entry in entries:
            if entry.workflow is not None and not entry.problems:
                graphs[entry.workflow.graph.name] = entry.workflow.graph
            else:
                broken[entry.name or entry.written_name or entry.path.stem] = entry.path
        return cls(graphs, broken)


class Directory:
    """The workflows of one directory; `scan` brings them up to date and never raises.

    Only YAML files are workflows by themselves: Python modules and JSON data lie beside them.
    A problem of one file belongs to its entry alone.
    """

    def __init__(
        self,
        path: Path,
        kinds: Mapping[str, KindSpec] | None = None,
        *,
        known: Iterable[Entry] = (),
    ) -> None:
        """Name a directory; files of `known` were read just now and are not read again."""
        self.path = path
        self._kinds = kinds
        self._known = {entry.path: entry for entry in known}
        self._scanned: dict[Path, _ScannedFile] = {}
        self._entries: tuple[Entry, ...] = ()
        self.is_readable = True
        """Whether the last scan could list the files; if not, the entries are those of the scan before."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every file as it was at the last scan, by name of the file."""
        return self._entries

    @property
    def workflows(self) -> dict[str, WorkflowFile]:
        """The workflows without problems, by their names."""
        return {
            entry.workflow.graph.name: entry.workflow
            for entry in self._entries
            if entry.workflow is not None and not entry.problems
        }

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong in the directory."""
        return [problem for entry in self._entries for problem in entry.problems]

    def find(self, name: str) -> WorkflowFile | None:
        """Return a workflow by its name, or None."""
        return self.workflows.get(name)

    def scan(self) -> bool:
        """Read the files that changed since the last scan; return whether there were any."""
        paths = self._paths()
        if isinstance(paths, Problem):
            known = [file.entry for _, file in sorted(self._scanned.items())]
            current = [Entry(self.path, problems=(paths,)), *known]
        else:
            files = [(path, self._check(path)) for path in paths]
            self._scanned = {path: file for path, file in files if file is not None}
            current = [file.entry for file in self._scanned.values()]
        self.is_readable = not isinstance(paths, Problem)
        entries = _without_duplicates(current)
        has_changed = entries != self._entries or _codes(entries) != _codes(self._entries)
        self._entries = entries
        return has_changed

    def _paths(self) -> list[Path] | Problem:
        """Return the paths with a workflow file's suffix, or why the directory cannot be listed."""
        try:
            names = sorted(path.name for path in self.path.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            message = f"the directory cannot be read: {error.strerror or error}"
            return Problem(str(self.path), None, None, "", message)
        return [
            self.path / name
            for name in names
            if name.endswith(YAML_SUFFIXES) and not name.startswith(".")
        ]

    def _check(self, path: Path) -> _ScannedFile | None:
        """Read one file if it has changed; None when it is gone."""
        now_ns = time.time_ns()
        try:
            status = path.stat()
        except (OSError, ValueError):
            if not os.path.lexists(path):
                return None
            # A link that leads nowhere, or to what this user may not see.
            return _ScannedFile((0, 0, 0, 0), 0, None, now_ns, read_entry(path, self._kinds))
        # Permissions and the target of a link change a file's ctime or inode, but not its mtime.
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
        known = self._scanned.get(path)
        if known is not None and (known.stamp, known.mtime_ns) == (stamp, status.st_mtime_ns):
            is_racy = known.read_at_ns - status.st_mtime_ns < _RACY_SECONDS * 1e9
            if known.hash is not None and not is_racy and not _has_new_code(known.entry):
                return known
        try:
            content = content_hash(read_content(path))
        except WorkflowError as error:
            entry = _with_problems(path, error)
            return _ScannedFile(stamp, status.st_mtime_ns, None, now_ns, entry)
        is_same = known is not None and known.hash == content and not _has_new_code(known.entry)
        entry = known.entry if known is not None and is_same else self._read(path)
        return _ScannedFile(stamp, status.st_mtime_ns, content, now_ns, entry)

    def _read(self, path: Path) -> Entry:
        return self._known.pop(path, None) or read_entry(path, self._kinds)


def _codes(entries: tuple[Entry, ...]) -> list[str | None]:
    """Return the code of each workflow, which is no part of what entries are compared by."""
    workflows = (entry.workflow for entry in entries)
    return [None if workflow is None else workflow.graph.code_text for workflow in workflows]


def _has_new_code(entry: Entry) -> bool:
    """Whether the code of a workflow's steps has changed since its file was read."""
    if entry.workflow is None:
        return False
    graph = entry.workflow.graph
    return code_hashes(graph, entry.path.absolute()) != graph.code


def read_entry(
    path: Path, kinds: Mapping[str, KindSpec] | None = None, *, is_trusted: bool = False
) -> Entry:
    """Read one file, whatever is wrong with it; one in Python is run only if it is trusted."""
    try:
        return Entry(path, load(path, kinds, is_trusted=is_trusted))
    except UnexpectedError as error:
        return Entry(path, problems=tuple(error.problems), defect=error.__cause__)
    except WorkflowError as error:
        return _with_problems(path, error)


def _with_problems(path: Path, error: WorkflowError) -> Entry:
    return Entry(path, problems=tuple(error.problems), steps=error.steps, written_name=error.name)


def _without_duplicates(entries: list[Entry]) -> tuple[Entry, ...]:
    """Refuse a second workflow of the same name, and a second one that takes free text in chats.

    The first file by name keeps the name, or gets the text.
    """
    first: dict[str, Path] = {}
    takes_text: Path | None = None
    result = []
    for entry in entries:
        name = entry.name
        if name is not None and name in first:
            message = f"the name {name!r} is already taken by {first[name].name}"
            problem = Problem(str(entry.path), None, None, "name", message)
            entry = Entry(entry.path, entry.workflow, (problem,))
        elif name is not None:
            first[name] = entry.path
        if not entry.problems and entry.workflow is not None and entry.workflow.graph.takes_text:
            if takes_text is None:
                takes_text = entry.path
            else:
                message = f"{takes_text.name} takes free text in chats already, and one at most may"
                problem = Problem(str(entry.path), None, None, "on.chat.text", message)
                entry = Entry(entry.path, entry.workflow, (problem,))
        result.append(entry)
    return tuple(result)


__all__ = ["SUFFIXES", "Directory", "Entry", "NamedWorkflows", "read_entry"]
