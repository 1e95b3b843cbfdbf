"""Remembers which texts of workflow files this program has compiled, and to which graphs.

Compiling loads most of the program. A file whose text was compiled before has its graph in the database.
"""

import os
from pathlib import Path

from agent.core.files.user_cache import UserCache


def has(text: str, graph_hash: str) -> bool:
    """Whether this program made the graph of this text."""
    return _memory(text, graph_hash).read() is not None


def add(text: str, graph_hash: str) -> None:
    """Remember that it did."""
    _memory(text, graph_hash).write("")


def _memory(text: str, graph_hash: str) -> UserCache:
    import agent

    # The modification time tells installations of one version apart.
    installed_at = Path(agent.__file__).stat().st_mtime_ns
    made_by = f"{agent.__version__} {agent.__file__} {installed_at}"
    return UserCache("compiled", os.environ, f"{made_by}\0{graph_hash}\0{text}".encode())
