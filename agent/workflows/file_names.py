"""Which names are those of workflow files."""

from pathlib import Path
from typing import Final

SUFFIXES: Final = (".yaml", ".yml", ".json", ".py")


def file_of(name: str) -> Path | None:
    """Return the path if an argument is a file, and None if it is a workflow's name."""
    path = Path(name)
    is_file = path.suffix in SUFFIXES or len(path.parts) > 1 or path.is_file()
    return path if is_file else None


def is_directory(path: Path) -> bool:
    """Whether a path is a directory of workflow files; one that is named as a file is a mistake."""
    return path.suffix not in SUFFIXES and path.is_dir()
