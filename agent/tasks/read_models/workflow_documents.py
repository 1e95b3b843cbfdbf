"""Registered workflows as documents: the same for every surface."""

import json

from agent.core.clock import to_iso
from agent.core.plain_json import Json
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.store.engine.workflow_versions import Version
from agent.tasks.errors import NotFoundError
from agent.workflows.graph import tool_name


def list_workflows(connection: Connection) -> list[dict[str, Json]]:
    """Return the workflows that can be started, each in its newest version, by name."""
    return [
        _summary(connection, version, _texts(connection, version)[0])
        for version in workflow_versions.latest_versions(connection)
        if version.removed_at is None
    ]


def workflow_document(
    connection: Connection, name: str, number: int | None = None
) -> dict[str, Json]:
    """Return a workflow as it was written and as it was compiled, in its newest version or another.

    A removed workflow is still registered: its tasks continue, and its versions can be shown.
    """
    versions = workflow_versions.versions_of(connection, name)
    if not versions:
        raise NotFoundError(
            f"no workflow {name!r} is registered: `agent up` registers every file of the workflow"
            " directory, and `agent run` the file that it runs"
        )
    wanted = versions[0].number if number is None else number
    chosen = next((version for version in versions if version.number == wanted), None)
    if chosen is None:
        numbers = ", ".join(str(version.number) for version in reversed(versions))
        raise NotFoundError(f"workflow {name!r} has no version {wanted}; it has {numbers}")
    graph, source = _texts(connection, chosen)
    return {
        **_summary(connection, chosen, graph),
        "graph": graph,
        "source": source,
        "code": json.loads(workflow_versions.code_of(connection, name, wanted) or "null"),
        "versions": [
            {
                "version": version.number,
                "created_at": to_iso(version.created_at),
                "removed_at": to_iso(version.removed_at),
                "file": version.path,
                "tasks": workflow_versions.task_count(connection, version),
            }
            for version in versions
        ],
    }


def _texts(connection: Connection, version: Version) -> tuple[Json, str | None]:
    texts = workflow_versions.texts_of(connection, version.name, version.number)
    assert texts is not None, version
    graph, source = texts
    return json.loads(graph), source


def _summary(connection: Connection, version: Version, graph: Json) -> dict[str, Json]:
    return {
        "name": version.name,
        "version": version.number,
        "description": graph.get("description"),
        "file": version.path,
        "tasks": workflow_versions.task_count(connection, version),
        "tool": tool_name(version.name) if (graph.get("on") or {}).get("mcp") else None,
        "created_at": to_iso(version.created_at),
        "removed_at": to_iso(version.removed_at),
    }
