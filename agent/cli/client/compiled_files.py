"""Remembers which texts of workflow files this program has compiled, and to which graphs.

Compiling loads most of the program. A file whose text was compiled before has its graph in the database.
The memory is a file of hashes in the home directory; without it a file is compiled again.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME: Final = "workflows.compiled"
_MOST: Final = 200


class CompiledFiles:
    """The texts that were compiled, and the hashes of their graphs."""

    def __init__(self, home: Path) -> None:
        self._file = home / _NAME

    def has(self, text: str, graph_hash: str) -> bool:
        """Whether this program made the graph of this text."""
        return _digest(text, graph_hash) in self._lines()

    def add(self, text: str, graph_hash: str) -> None:
        """Remember that it did; a home directory that cannot be written is no problem."""
        lines = [*self._lines()[-_MOST:], _digest(text, graph_hash)]
        with suppress(OSError):
            if self._file.parent.is_dir():
                self._file.write_text("\n".join(lines) + "\n", "ascii")

    def _lines(self) -> list[str]:
        with suppress(OSError):
            return self._file.read_text("ascii", "replace").splitlines()
        return []


def _digest(text: str, graph_hash: str) -> str:
    import agent
    from agent.core.ids import content_hash

    # The modification time tells installations of one version apart.
    installed_at = Path(agent.__file__).stat().st_mtime_ns
    return content_hash(f"{agent.__version__} {installed_at} {graph_hash} {text}")
