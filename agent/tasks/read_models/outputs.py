"""The output of a task: a view over its steps, computed on reading, never inside a transaction."""

import json

from agent.core.chat_origin import read_origin, with_origin
from agent.core.plain_json import Json
from agent.core.state_machine import StepStatus
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection
from agent.store.engine import attempt_reads as read
from agent.store.engine import task_rows
from agent.tasks.state.graph_cache import GraphCache
from agent.workflows.graph import Graph
from agent.workflows.templates.templates import TemplateError, render


class OutputError(ValueError):
    """A workflow's `output:` cannot be rendered from its steps' outputs."""

    def document(self) -> dict[str, Json]:
        """Return it as a task's error."""
        return {"code": "bad_output", "class": "input", "message": str(self)}


def task_output(
    connection: Connection,
    task_id: str,
    graph: Graph,
    read_value: artifact_rows.Read = artifact_rows.load,
) -> Json:
    """Return a succeeded task's output: its workflow's `output:`, or its last steps' outputs.

    Where `output:` cannot be rendered, the task stays succeeded and `OutputError` says why.
    """
    if graph.output is None:
        last = [index for index, after in enumerate(graph.dependents) if not after]
        ended = _ended(connection, task_id, graph, last, read_value)
        return {name: value["output"] for name, value in ended.items() if value["has_run"]}
    steps = _ended(connection, task_id, graph, range(len(graph.steps)), read_value)
    task_input, trigger, version = task_rows.input_of(connection, task_id)
    origin = read_origin(task_rows.chat_origin_of(connection, task_id))
    scope = {
        "steps": steps,
        "inputs": json.loads(task_input),
        "trigger": with_origin(json.loads(trigger) if trigger else None, origin),
        "task": {"id": task_id, "workflow": graph.name, "version": version},
    }
    try:
        return render(graph.output, scope)
    except TemplateError as error:
        raise OutputError(f"the workflow's output could not be computed: {error}") from None


def _ended(
    connection: Connection,
    task_id: str,
    graph: Graph,
    indexes: "list[int] | range",
    read_value: artifact_rows.Read,
) -> dict[str, dict[str, Json]]:
    result: dict[str, dict[str, Json]] = {}
    rows = read.ended_steps(connection, [(task_id, index) for index in indexes])
    for _, _, index, status, output, error, count in rows:
        value = read_value(connection, output)
        if count is not None and status == StepStatus.SUCCEEDED:
            value = read.gathered(connection, task_id, index, read_value)
        result[graph.steps[index].name] = {
            "status": status,
            "output": value,
            "error": json.loads(error) if error is not None else None,
            "has_run": status == StepStatus.SUCCEEDED,
        }
    return result


def child_result(
    connection: Connection,
    task_id: str,
    graphs: GraphCache,
    read_value: artifact_rows.Read = artifact_rows.take,
) -> dict[str, Json]:
    """Return how a child task ended: its status, and its output or its error."""
    ending = task_rows.ending_of(connection, task_id)
    if ending is None:
        return {"status": "lost", "output": None, "error": None}
    status, error, name, version = ending
    result = {
        "status": status,
        "output": None,
        "error": json.loads(error) if error is not None else None,
    }
    if status == "succeeded":
        try:
            graph = graphs.get(connection, name, version)
            result["output"] = task_output(connection, task_id, graph, read_value)
        except OutputError as exception:
            result["error"] = exception.document()
    return result
