"""`state`: every version has one writer, and a step that succeeded has written its values once."""

from collections.abc import Iterator

from agent.core.state_machine import STEP_ENDED, CallStatus, StepStatus
from agent.core.state_names import KEPT_VERSIONS, StateKey
from agent.store.db.database import Connection
from agent.store.read.audit import state as state_audit
from agent.store.read.audit.rows import AuditRows, EventFacts, StepFacts
from agent.tasks.checker.violation import Finding, Violation
from agent.workflows.graph import Graph

_CHANGED = "state.changed"


def check_steps(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check that each step has written its values exactly once, and that other steps wrote nothing."""
    own: dict[str | None, list[EventFacts]] = {}
    by_call: dict[str, int] = {}
    kept: set[str | None] = set()
    for event in task.events:
        if event.type == _CHANGED:
            call = event.document().get("call")
            if call is None:
                own.setdefault(event.step_id, []).append(event)
            else:
                by_call[str(call)] = by_call.get(str(call), 0) + 1
        elif event.type == "step.kept" and event.document().get("status") in STEP_ENDED:
            kept.add(event.step_id)
    # `row_invariants` reports steps that the definition does not have.
    for step in (step for step in task.steps if step.index < len(graph.steps)):
        changes = own.get(step.id, [])
        for sentence in _check_step(step, graph, changes, is_kept=step.id in kept):
            yield Finding(f"step {step.title} {sentence}", step.title)
    for call_row in task.calls:
        count = by_call.get(call_row.id, 0)
        is_set = call_row.action.startswith("state.set#") and call_row.attempt > 0
        if count > 1 or (is_set and call_row.status == CallStatus.SUCCEEDED and count != 1):
            yield Finding(f"call {call_row.action} has written state {count} times")


def _check_step(
    step: StepFacts, graph: Graph, changes: list[EventFacts], *, is_kept: bool
) -> Iterator[str]:
    sets = graph.steps[step.index].set_state
    has_written = bool(sets) and step.status == StepStatus.SUCCEEDED and not is_kept
    if not has_written:
        if changes:
            how = "was kept" if is_kept else f"is {step.status}"
            yield f"{how}, and has written state {len(changes)} times"
        return
    if len(changes) != 1:
        yield f"succeeded, and has written state {len(changes)} times"
        return
    written = [(change["scope"], change["name"]) for change in changes[0].document()["changes"]]
    if sorted(written) != sorted((graph.state_scope(name), name) for name in sets):
        yield f"sets {', '.join(sorted(sets))}, and has written {written}"


def check_values(connection: Connection) -> Iterator[Violation]:
    """Check the values, their histories and the events that name them, at one moment."""
    if connection.in_transaction:
        yield from _check_values(connection)
    else:
        with connection.snapshot():
            violations = list(_check_values(connection))
        yield from violations


def _check_values(connection: Connection) -> Iterator[Violation]:
    if not state_audit.is_used(connection):
        return
    for scope, name, version in state_audit.differing(connection):
        yield Violation(f"{scope}/{name} is at version {version}, and its history says otherwise")
    oldest: dict[StateKey, int] = {}
    for scope, name, first, last, count, version in state_audit.histories(connection):
        oldest[(scope, name)] = first
        where = f"the history of {scope}/{name}"
        if last - first + 1 != count:
            yield Violation(f"{where} has {count} of the versions {first} to {last}")
        if version != last:
            yield Violation(f"{where} ends with {last}, and the value is at {version}")
        if first > 1 and count < KEPT_VERSIONS:
            yield Violation(f"{where} begins with {first}, and keeps only {count} versions")
    yield from _check_writers(connection, oldest)


def _check_writers(connection: Connection, oldest: dict[StateKey, int]) -> Iterator[Violation]:
    """Check that each version that is kept has one writer, whose task says so."""
    writers = {
        (scope, name, version): (task_id, step_id, call_id, bool(exists))
        for scope, name, version, task_id, step_id, call_id, exists in state_audit.writers(
            connection
        )
    }
    named: set[tuple[str, str, int]] = set()
    for change in state_audit.changes(connection):
        key = (change.scope, change.name, change.version)
        what = f"version {change.version} of {change.scope}/{change.name}"
        writer = writers.get(key)
        if writer is None:
            if change.version >= oldest.get((change.scope, change.name), 0):
                yield Violation(f"has written {what}, which does not exist", change.task_id)
        elif writer[:3] != (change.task_id, change.step_id, change.call_id):
            yield Violation(f"has written {what}, and so has task {writer[0]}", change.task_id)
        elif key in named:
            yield Violation(f"has written {what} twice", change.task_id)
        named.add(key)
    for (scope, name, version), (task_id, _, _, exists) in writers.items():
        if exists and (scope, name, version) not in named:
            what = f"version {version} of {scope}/{name}"
            yield Violation(f"{what} names it as the writer, and its events do not", task_id)
