"""Making a file, or a directory's entries, durable."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's contents, or a directory's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
