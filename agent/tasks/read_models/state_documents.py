"""Values of `state` as documents: the same for every surface."""

import json
from typing import Final

from agent.core.clock import to_iso
from agent.core.plain_json import Json
from agent.core.state_names import StateKey, describe_scope, workflow_of
from agent.store.db.database import Connection
from agent.store.engine import state_rows
from agent.store.engine.state_rows import StateRow
from agent.tasks.errors import NotFoundError
from agent.workflows.graph import Graph

MOST: Final = 2**31


def list_values(
    connection: Connection,
    scope: str | None = None,
    name: str | None = None,
    after: str | None = None,
    most: int = MOST,
) -> list[dict[str, Json]]:
    """Return the current values by scope and name; `after` is the `id` of the last one before."""
    last = tuple(after.split("/", 1)) if after and "/" in after else None
    rows = state_rows.values(connection, scope, name, last, most)
    return [_value_document(row) for row in rows]


def value_document(connection: Connection, key: StateKey) -> dict[str, Json]:
    """Return a value with the versions that are kept, the newest first; also of a deleted one."""
    scope, name = key
    history = state_rows.history(connection, key)
    if not history:
        raise NotFoundError(f"there is no {name} in {describe_scope(scope)}")
    return {**_value_document(history[0]), "history": [_version(row) for row in history]}


def _value_document(row: StateRow) -> dict[str, Json]:
    return {
        "id": f"{row.scope}/{row.name}",
        "scope": row.scope,
        "workflow": workflow_of(row.scope),
        "name": row.name,
        **_version(row),
    }


def _version(row: StateRow) -> dict[str, Json]:
    return {
        "version": row.version,
        "value": None if row.value is None else json.loads(row.value),
        "deleted": row.value is None,
        "written_by": row.written_by,
        "task": row.task_id,
        "written_at": to_iso(row.written_at),
    }


def steps_with_state(
    connection: Connection, task_id: str, graph: Graph
) -> dict[str, dict[str, Json]]:
    """Return what each step of a task has read and written of `state`, by the step's id."""
    documents: dict[str, dict[str, Json]] = {}
    if graph.reads_state:
        for step_id, document in state_rows.reads_of_task(connection, task_id):
            read = {
                name: {
                    "version": version or 0,
                    "value": None if value is None else json.loads(value),
                    "exists": value is not None,
                }
                for name, (version, value) in json.loads(document).items()
            }
            documents[step_id] = {"read": read, "written": []}
    if graph.may_write_state:
        for step_id, data in state_rows.changes_of_task(connection, task_id):
            entry = documents.setdefault(step_id, {"read": {}, "written": []})
            entry["written"] += json.loads(data)["changes"]
    return documents
