"""What has changed since a task's version of its workflow was recorded: newer versions, other code."""

from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.workflows import step_code
from agent.workflows.graph import Graph


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
    _, _, path = workflow_versions.graph_text(connection, name, version)
    return step_code.changed_code(recorded, graph, path)
