"""What has changed since a task's version of its workflow was recorded: newer versions, other code."""

import json
from pathlib import Path

from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.workflows.graph import Graph
from agent.workflows.step_code import code_hashes


def version_document(
    connection: Connection, name: str, version: int, graph: Graph
) -> dict[str, Json]:
    """Return the newest version of a workflow, and the steps whose code differs from that of one version.

    `latest_version` is null for a workflow that was removed.
    """
    return {
        "latest_version": workflow_versions.latest_number(connection, name),
        "changed_code": changed_code(connection, name, version, graph),
    }


def changed_code(connection: Connection, name: str, version: int, graph: Graph) -> list[str]:
    """Return the steps whose code is not what it was when a version was recorded."""
    recorded = workflow_versions.code_of(connection, name, version)
    if not recorded or recorded == "{}":
        return []
    _, _, path = workflow_versions.graph_text(connection, name, version)
    if path is None or not Path(path).parent.is_dir():
        return []
    now = code_hashes(graph, Path(path))
    return [step for step, digest in json.loads(recorded).items() if now.get(step) != digest]
