"""Workflows that run others, and the child tasks that come of it."""

from agent.store.engine import workflow_versions
from agent.workflows.graph import Graph
from tests.support.engine import Reader, eventually, graph, other, step
from tests.support.step_functions import Gate


def register(reader: Reader, known: Graph, now: int = 1) -> None:
    """Make a workflow known without starting it."""
    with reader.database.connect("writer") as tx, tx.transaction():
        workflow_versions.register(tx, known.name, known.hash, known.text, None, None, now)


def parent(child: str) -> Graph:
    """Return a workflow that runs another one and hands on what it gave."""
    return graph(
        other("run", "workflow", config={"name": child, "with": {"n": 5}}),
        step("after", "echo", after=["run"], given={"value": "{{ steps.run.output }}"}),
        name="parent",
    )


def child_of(reader: Reader, task_id: str) -> str:
    """Return the one child of a task, once it is there."""
    (found,) = eventually(
        lambda: reader.rows("SELECT id FROM tasks WHERE parent_task_id = :id", id=task_id)
    )
    return str(found[0])


def gated_child(reader: Reader) -> Gate:
    """Make a child known that waits at a gate."""
    gate = Gate()
    waits = step("c", "gated", given={"gate": gate.name, "value": 1})
    register(reader, graph(waits, name="child", inputs={"n": {"default": 0}}))
    return gate
