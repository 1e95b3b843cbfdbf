"""A task that continues another one, perhaps under another version of its workflow.

A kept step is what it was in the task before, by name and by definition; a kept answer is to the question that
this version asks; and a step that runs again has the calls that the task before left on record.
"""

from collections.abc import Callable, Iterator

from agent.core.state_machine import STEP_ENDED, CallStatus, StepStatus
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.store.engine.lineage import Predecessor
from agent.store.read.audit.rows import AuditRows, StepFacts
from agent.tasks.checker.violation import Finding
from agent.tasks.rules.retries.changed_questions import AskingTask, changed_questions
from agent.tasks.rules.retries.kept_answers import ASKING_KINDS
from agent.tasks.rules.retries.version_fit import differences
from agent.workflows.graph import Graph

GraphOf = Callable[[str, int], Graph | None]
"""Returns the graph of a workflow's version."""


def check_versions(
    connection: Connection, task: AuditRows, graph: Graph | None, graph_of: GraphOf
) -> Iterator[Finding]:
    """Check a task that continues another one."""
    if graph is None or not task.task.is_continuation:
        return
    before = lineage.predecessor(connection, task.task.id)
    if before is None:
        return
    old_graph = graph_of(task.task.workflow_name, before.version)
    if old_graph is None:
        return
    kept = _kept(task)
    yield from _check_names(connection, task, before, kept)
    if before.version != task.task.workflow_version:
        yield from _check_definitions(task, old_graph, graph, kept, before.version)
        asking_steps = [
            step.name for step in task.steps if step.id in kept and step.kind in ASKING_KINDS
        ]
        asking = AskingTask(before.id, before.version, old_graph)
        for index in sorted(
            changed_questions(connection, asking, graph, dict.fromkeys(asking_steps))
        ):
            if _relies_on(task, graph, index):
                name = graph.steps[index].name
                text = (
                    f"step {name} keeps the answer to another question, of version {before.version}"
                )
                yield Finding(text, name)
    if before.is_retried:
        yield from _check_calls(connection, task, before, kept)


def _kept(task: AuditRows) -> dict[str, str]:
    """Return the steps that were taken over as ended, each with the step that it came from."""
    return {
        str(event.step_id): str(event.document().get("from"))
        for event in task.events
        if event.type == "step.kept" and event.document().get("status") in STEP_ENDED
    }


def _relies_on(task: AuditRows, graph: Graph, index: int) -> bool:
    """Whether a step after this one has run in the task itself."""
    ran = {event.step_id for event in task.events if event.type == "step.claimed"}
    after = graph.downstream(index) - {index}
    return any(step.id in ran and step.index in after for step in task.steps)


def _check_names(
    connection: Connection, task: AuditRows, before: Predecessor, kept: dict[str, str]
) -> Iterator[Finding]:
    columns = ("id", "name", "kind", "parallel_index", "status")
    sources = {row[0]: row[1:] for row in lineage.steps_of(connection, columns, before.id)}
    for step in task.steps:
        if step.id not in kept:
            continue
        own = (step.name, step.kind, step.parallel_index, step.status)
        if sources.get(kept[step.id]) != own:
            yield Finding(f"step {step.title} was kept from something else", step.title)


def _check_definitions(
    task: AuditRows, old: Graph, new: Graph, kept: dict[str, str], version: int
) -> Iterator[Finding]:
    for step in task.steps:
        if step.id not in kept or step.status != StepStatus.SUCCEEDED:
            continue
        if step.kind in ASKING_KINDS or step.name not in old.index_of:
            continue
        changed = differences(old.steps[old.index_of[step.name]], new.steps[step.index])
        if changed:
            text = (
                f"step {step.title} was kept from version {version}, where it differs: {changed[0]}"
            )
            yield Finding(text, step.title)


def _check_calls(
    connection: Connection, task: AuditRows, before: Predecessor, kept: dict[str, str]
) -> Iterator[Finding]:
    """Check that no call on record was left behind: it would be made a second time."""
    names = dict(lineage.steps_of(connection, ("index", "name"), before.id))
    here: dict[tuple[str, int], StepFacts] = {
        (step.name, step.parallel_index): step for step in task.steps
    }
    inherited = {(call.step_id, call.number) for call in task.calls if call.attempt == 0}
    for call in lineage.calls_of(connection, before.id):
        name = str(names[call.step_index])
        if call.status == CallStatus.FAILED:
            continue
        step = here.get((name, call.parallel_index))
        if step is None and call.parallel_index < 0:
            yield Finding(f"step {name} acted in task {before.id}, and does not exist here", name)
        elif step is not None and step.id not in kept and (step.id, call.number) not in inherited:
            yield Finding(f"step {step.title} lost {call.action} of task {before.id}", step.title)
