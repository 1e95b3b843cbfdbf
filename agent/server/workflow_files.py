"""The workflow files of the configured directory, for the pages that show their problems."""

import threading
import time
from pathlib import Path
from typing import Final

from agent.config.settings import Settings
from agent.steps.kinds import step_remarks
from agent.workflows.directory import Directory, Entry, NamedWorkflows

_REMARK_SECONDS: Final = 20.0
"""How long remarks hold: they depend on modules and on the configuration, which change without a scan."""


class WorkflowFiles:
    """The files of one server's directory; only changed ones are read again."""

    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._lock = threading.Lock()
        self._remarks: dict[str, list[str]] = {}
        self._remarked: tuple[Entry, ...] = ()
        self._remarked_at = 0.0

    def scanned(self, path: Path) -> tuple[Entry, ...]:
        """Return the files of a directory as they are now; a reload may name another directory."""
        with self._lock:
            return self._scan(path).entries

    def remarks(self, settings: Settings) -> dict[str, list[str]]:
        """Return by workflow the steps and watchers that will fail at run time; nothing for a file with problems."""
        with self._lock:
            directory = self._scan(settings.workflow_directory)
            is_old = time.monotonic() - self._remarked_at > _REMARK_SECONDS
            if is_old or directory.entries != self._remarked:
                self._remarks = _remarks(directory, settings)
                self._remarked, self._remarked_at = directory.entries, time.monotonic()
            return self._remarks

    def _scan(self, path: Path) -> Directory:
        if self._directory is None or self._directory.path != path:
            self._directory = Directory(path)
        self._directory.scan()
        return self._directory


def _remarks(directory: Directory, settings: Settings) -> dict[str, list[str]]:
    known = NamedWorkflows.of(directory.entries)
    sound = [entry for entry in directory.entries if entry.workflow and not entry.problems]
    found = {entry.name: step_remarks.of_file(entry, known, settings) for entry in sound}
    return {name: texts for name, texts in found.items() if name is not None and texts}
