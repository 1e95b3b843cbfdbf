"""A directory of workflow files, read again only where something changed."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.keys import content_hash
from agent.workflows.files import SUFFIXES, WorkflowFile, load, read_content
from agent.workflows.kinds import KindSpec
from agent.workflows.problems import Problem, WorkflowError

YAML_SUFFIXES: Final = (".yaml", ".yml")
_RACY_SECONDS = 2.0
"""A file changed this recently may change again within the same time stamp."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its workflow, or what is wrong with it."""

    path: Path
    workflow: WorkflowFile | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str | None:
        """The workflow's name, as far as the file could be read."""
        return self.workflow.graph.name if self.workflow is not None else None


@dataclass(frozen=True, slots=True)
class _Seen:
    size: int
    mtime_ns: int
    hash: str
    read_at_ns: int
    entry: Entry


class Directory:
    """Knows the workflows of one directory; `scan` brings that up to date.

    Only YAML files are workflows by themselves: Python modules and JSON data lie beside them.
    """

    def __init__(self, path: Path, kinds: Mapping[str, KindSpec] | None = None) -> None:
        self.path = path
        self._kinds = kinds
        self._seen: dict[Path, _Seen] = {}
        self._entries: tuple[Entry, ...] = ()

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
        """Read what changed since the last scan; return whether anything did."""
        seen = {path: self._look(path) for path in self._paths()}
        seen_entries = {path: each.entry for path, each in seen.items() if each is not None}
        self._seen = {path: each for path, each in seen.items() if each is not None}
        entries = _without_twins([seen_entries[path] for path in sorted(seen_entries)])
        has_changed = entries != self._entries
        self._entries = entries
        return has_changed

    def _paths(self) -> list[Path]:
        try:
            return [
                path
                for path in self.path.iterdir()
                if path.suffix in YAML_SUFFIXES and not path.name.startswith(".") and path.is_file()
            ]
        except OSError:
            return []

    def _look(self, path: Path) -> _Seen | None:
        try:
            status = path.stat()
        except OSError:
            return None
        known = self._seen.get(path)
        now_ns = time.time_ns()
        if known is not None and (known.size, known.mtime_ns) == (
            status.st_size,
            status.st_mtime_ns,
        ):
            is_racy = known.read_at_ns - status.st_mtime_ns < _RACY_SECONDS * 1e9
            if not is_racy:
                return known
        try:
            found = content_hash(read_content(path))
        except WorkflowError as error:
            entry = Entry(path, problems=tuple(error.problems))
            return _Seen(status.st_size, status.st_mtime_ns, "", now_ns, entry)
        if known is not None and known.hash == found:
            entry = known.entry
        else:
            entry = _read(path, self._kinds)
        return _Seen(status.st_size, status.st_mtime_ns, found, now_ns, entry)


def _read(path: Path, kinds: Mapping[str, KindSpec] | None) -> Entry:
    try:
        return Entry(path, load(path, kinds))
    except WorkflowError as error:
        return Entry(path, problems=tuple(error.problems))


def _without_twins(entries: list[Entry]) -> tuple[Entry, ...]:
    """Refuse a second workflow of the same name; the first file by name keeps it."""
    first: dict[str, Path] = {}
    result = []
    for entry in entries:
        name = entry.name
        if name is not None and name in first:
            message = f"the name {name!r} is already taken by {first[name].name}"
            problem = Problem(str(entry.path), None, None, "name", message)
            entry = Entry(entry.path, entry.workflow, (problem,))
        elif name is not None:
            first[name] = entry.path
        result.append(entry)
    return tuple(result)


__all__ = ["SUFFIXES", "Directory", "Entry"]
