"""The last results of `agent validate`, for files that have not changed since.

To check files loads the compiler and its libraries, which takes far longer than to read the files. So reports
of files without problems are kept in the user's cache directory. They are named by the hash of the files, the
configuration, the environment and the command line. Beside them stands what else they follow from: the program's
own files, the modules of `python` steps and, where a step runs another workflow, the files in the directories.
If any of these differs, the files are checked again. What depends on the time is not kept.
"""

import json
import os
import stat
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.cli import invocation
from agent.core.files.user_cache import UserCache
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.workflows.file_names import is_directory

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.workflows.diagnostics import Problem
    from agent.workflows.graph import Graph

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_PREFIX: Final = "AGENT_"
_TIME_STAMP_NS: Final = 20_000_000
"""File systems take the time from a clock that ticks this seldom at most."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """The stored result of one file."""

    file: str
    name: str | None
    step_count: int
    remarks: list[str]
    problems: "tuple[Problem, ...]" = ()
    triggered: "Graph | None" = None
    """Its workflow, where that has schedules or watchers: their next instants depend on the time."""


@dataclass(slots=True)
class FollowsFrom:
    """The other inputs of a report, besides the files, the configuration and the command line."""

    modules: list[tuple[str, str]]
    """The modules of `python` steps, each with the workflow file that it is searched beside."""
    directories: list[str]
    """Where workflows are searched that steps run."""


class ValidationMemory:
    """The reports of one command line."""

    def __init__(self, settings: "Settings", files: "list[str] | None") -> None:
        self._started_ns = time.time_ns()
        self._cache: UserCache | None = None
        self._named = _Fingerprint()
        try:
            given = [Path(file) for file in files or ()] or [settings.workflow_directory]
            directories = [path for path in given if is_directory(path)]
            paths = [file for path in given for file in _files(path)]
            if all(path.suffix in _SUFFIXES for path in paths):
                _add_command(self._named, settings, paths, directories)
                self._cache = UserCache("validated", os.environ, self._named.hash().encode())
        except (OSError, ValueError):
            # The check of the files reports their problems.
            return

    def read(self) -> list[FileReport] | None:
        """Return the reports, if they were kept and still hold."""
        text = None if self._cache is None else self._cache.read()
        if text is None:
            return None
        kept = json.loads(text)
        follows_from = FollowsFrom(kept["modules"], kept["directories"])
        try:
            if _fingerprint(kept["program"], follows_from).hash() != kept["fingerprint"]:
                return None
        except OSError:
            return None
        return [_from_document(document) for document in kept["reports"]]

    def write(self, reports: list[FileReport], follows_from: FollowsFrom) -> None:
        """Keep reports, if all files are right."""
        if self._cache is None or any(report.problems for report in reports):
            return
        program = _program_files()
        try:
            fingerprint = _fingerprint(program, follows_from)
        except OSError:
            return
        changed_ns = max(self._named.changed_ns, fingerprint.changed_ns)
        if changed_ns > self._started_ns - _TIME_STAMP_NS:
            # A file may have changed since it was checked.
            return
        document = {
            "program": program,
            "modules": follows_from.modules,
            "directories": follows_from.directories,
            "fingerprint": fingerprint.hash(),
            "reports": [_document(report) for report in reports],
        }
        self._cache.write(json.dumps(document))


class _Fingerprint:
    """A hash of texts and files, and when a file was last changed."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.changed_ns = 0

    def add(self, *texts: str) -> None:
        self._parts += texts

    def add_content(self, path: Path) -> None:
        """Add a regular file by its content."""
        status = path.stat()
        # A device may have no end, and to open a FIFO disturbs its writer.
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        self._note(status)
        self.add(str(path), sha256(path.read_bytes()).hexdigest())

    def add_stamp(self, file: str) -> None:
        """Add a file by its size and the time of its last change."""
        try:
            # Hundreds of them: paths would take longer to make than the files to look at.
            status = os.stat(file)  # noqa: PTH116
        except OSError:
            self.add(file, "is gone")
            return
        self._note(status)
        self.add(file, f"{status.st_mtime_ns} {status.st_size}")

    def note_directory(self, directory: Path) -> None:
        """Notice when files were added to a directory or removed from it; it may be missing."""
        with suppress(OSError):
            self._note(directory.stat())

    def hash(self) -> str:
        return sha256("\0".join(self._parts).encode("utf-8", "surrogateescape")).hexdigest()

    def _note(self, status: os.stat_result) -> None:
        self.changed_ns = max(self.changed_ns, status.st_ctime_ns)


def workflow_files(directory: Path) -> list[str]:
    """Return the workflow files of a directory, by name."""
    names = sorted(path.name for path in directory.iterdir())
    return [
        str(directory / name)
        for name in names
        if name.endswith((".yaml", ".yml")) and not name.startswith(".")
    ]


def _files(path: Path) -> list[Path]:
    return [Path(file) for file in workflow_files(path)] if is_directory(path) else [path]


def _add_command(
    named: _Fingerprint, settings: "Settings", paths: list[Path], directories: list[Path]
) -> None:
    """Add all that is known before any file is checked.

    Files of a directory are also compared with each other, so it matters whether they are given so.
    """
    named.add(sys.version, sys.prefix, *sys.path, str(Path.cwd()), *map(str, directories))
    named.add(str(settings.base), str(settings.workflow_directory), *invocation.overrides)
    named.add(*(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(_PREFIX)))
    for path in (settings.file, *paths):
        if path is not None:
            named.add_content(path)
    for directory in directories:
        named.note_directory(directory)


def _fingerprint(program: list[str], follows_from: FollowsFrom) -> _Fingerprint:
    """Return a fingerprint of everything else that reports follow from."""
    fingerprint = _Fingerprint()
    for file in program:
        fingerprint.add_stamp(file)
    if follows_from.modules:
        from agent.steps.kinds.module_files import file_of_module, module_exists

        for module, beside in follows_from.modules:
            fingerprint.note_directory(Path(beside).parent)
            fingerprint.add(module, str(module_exists(module, beside)))
            if (path := file_of_module(module, beside)) is not None:
                fingerprint.add_content(path)
    for directory in map(Path, follows_from.directories):
        fingerprint.note_directory(directory)
        for file in workflow_files(directory) if directory.is_dir() else ():
            fingerprint.add_content(Path(file))
    return fingerprint


def _program_files() -> list[str]:
    """Return the files of all modules that this process has loaded: the program and its libraries."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({file for file in files if isinstance(file, str)})


def _document(report: FileReport) -> dict[str, Any]:
    graph = report.triggered
    return {
        "file": report.file,
        "name": report.name,
        "step_count": report.step_count,
        "remarks": report.remarks,
        "triggered": None if graph is None else graph.text,
    }


def _from_document(document: dict[str, Any]) -> FileReport:
    text = document.pop("triggered")
    if text is None:
        return FileReport(**document)
    from agent.workflows.graph import Graph

    # It was checked when it was kept.
    return FileReport(**document, triggered=Graph.trusted(json.loads(text)))
