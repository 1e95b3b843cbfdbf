"""The workflow files of the configured directory, for the pages that show what is wrong with them."""

import threading
from pathlib import Path

from agent.workflows.directory import Directory, Entry


class WorkflowFiles:
    """The files of one server's directory; only changed ones are read again."""

    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._lock = threading.Lock()

    def scanned(self, path: Path) -> tuple[Entry, ...]:
        """Return the files of a directory as they are now; a reload may name another directory."""
        with self._lock:
            if self._directory is None or self._directory.path != path:
                self._directory = Directory(path)
            self._directory.scan()
            return self._directory.entries
