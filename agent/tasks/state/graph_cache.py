"""Graphs by workflow and version of one database, parsed once: a version never changes."""

from collections import OrderedDict
from typing import Any

from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.workflows.graph import Graph

_MOST_KEPT = 512


class UnreadableError(ValueError):
    """The definition that a task started with is missing or cannot be read."""


class GraphCache:
    """A bounded cache of compiled graphs."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], tuple[Graph, str | None]] = OrderedDict()

    def get(self, tx: Connection, name: str, version: int) -> Graph:
        """Return a version's graph."""
        return self._find(tx, name, version)[0]

    def path(self, tx: Connection, name: str, version: int) -> str | None:
        """Return the file of a version, if it was read from one."""
        return self._find(tx, name, version)[1]

    def _find(self, tx: Connection, name: str, version: int) -> tuple[Graph, str | None]:
        key = (name, version)
        cached = self._known.get(key)
        if cached is None:
            try:
                text, text_hash, path = workflow_versions.graph_text(tx, name, version)
                graph = Graph.stored(text, text_hash)
            except (LookupError, ValueError) as error:
                why = "it does not exist" if isinstance(error, LookupError) else _first(error)
                message = f"version {version} of the workflow {name!r} cannot be read: {why}"
                raise UnreadableError(message) from error
            cached = self._known[key] = (graph, path)
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        else:
            # To the end. A default: another thread that reads for a page may have dropped it.
            self._known[key] = self._known.pop(key, cached)
        return cached


def _first(error: Any) -> str:
    """Return the first of pydantic's errors."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])
