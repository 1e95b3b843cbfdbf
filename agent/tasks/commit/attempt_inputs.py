"""Reads the inputs of attempts: task input, upstream outputs, item, checkpoint, recorded calls.

It runs after the commit, outside every transaction. Values that `KnownTasks` has are not read again.
"""

import json
from dataclasses import replace
from typing import Final

from agent.core import waits
from agent.core.clock import SECOND
from agent.core.state_machine import ApprovalStatus, CallStatus
from agent.core.waits import Child, EndedWait
from agent.steps.spec.child_workflows import workflows_of
from agent.steps.types.attempt_input import AttemptInput, TaskView, Upstream
from agent.steps.types.call_records import RecordedApproval, RecordedCall
from agent.steps.types.outcome import Json
from agent.steps.types.state_values import StateValue
from agent.store.artifacts.artifact_rows import FetchedValues, NotFetchedError
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import approval_rows, call_rows, state_rows, workflow_versions
from agent.store.engine import attempt_reads as read
from agent.tasks.commit.known_tasks import KnownTask, KnownTasks, task_view
from agent.tasks.read_models import outputs
from agent.tasks.rules import budgets
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.compile.inputs import inputs_schema
from agent.workflows.graph import Step

_KINDS_THAT_ASK: Final = frozenset({"approval", "input", "agent"})
_NO_VALUES: Final = (None, None, None, None)

Claimed = list[tuple[LockedTask, StepRow]]


def load(
    connection: Connection,
    claimed: Claimed,
    known: KnownTasks,
    graphs: GraphCache,
    fetched: FetchedValues,
) -> list[AttemptInput]:
    """Return the inputs of each claimed step's attempt.

    Raise `NotFetchedError` if a value is outside the database and not among `fetched`.
    """
    fetched.missing = set()
    tasks = _load_tasks(connection, claimed, known, graphs)
    _load_outputs(connection, claimed, tasks, fetched)
    # The first claim of a plain step finds nothing on record.
    with_history = [(locked, step) for locked, step in claimed if step.has_history]
    values = _own_values(connection, claimed, with_history)
    calls = _calls(connection, with_history, fetched)
    approvals = _approvals(connection, with_history)
    state = _state_reads(connection, claimed)
    first_claims = _first_claims(connection, claimed)
    inputs = []
    for locked, step in claimed:
        definition = locked.definition(step)
        task = tasks[step.task_id]
        checkpoint, item, waiting_on, error = values.get(step.id, _NO_VALUES)
        inputs.append(
            AttemptInput(
                task=_with_deadline(task.view, locked),
                graph=locked.graph,
                step=definition,
                step_id=step.id,
                attempt=step.attempt,
                max_attempts=step.max_attempts,
                claim_token=step.claim_token,
                is_group=definition.fanout is not None and not step.is_item,
                parallel_index=step.parallel_index if step.is_item else None,
                parallel_count=step.parallel_count,
                item=decode(item),
                checkpoint=decode(checkpoint),
                waited=_ended_wait(connection, waiting_on, graphs, fetched) if waiting_on else None,
                deadline=_step_deadline(connection, locked, step, definition),
                failures=step.failures,
                last_error=decode(error),
                upstream={
                    name: task.ended[name]
                    for name in locked.graph.sees[step.index]
                    if name in task.ended
                },
                calls=calls.get(step.id, []),
                approvals=approvals.get(step.id, []),
                state=state.get(step.id, {}),
                now=first_claims.get(step.id),
                workflows=_workflows(connection, definition, graphs),
            )
        )
    known.trim()
    if fetched.missing:
        raise NotFetchedError
    return inputs


def _own_values(
    connection: Connection, claimed: Claimed, with_history: Claimed
) -> dict[str, tuple[Json, ...]]:
    """Read the checkpoint, the item, the wait and the error of steps that may have one."""
    step_ids = {step.id for _, step in with_history}
    step_ids.update([step.id for _, step in claimed if step.is_item])
    if not step_ids:
        return {}
    return {row[0]: row[1:] for row in read.own_values(connection, list(step_ids))}


def _state_reads(connection: Connection, claimed: Claimed) -> dict[str, dict[str, StateValue]]:
    """Read the values of `state` that steps got at their first claims."""
    reading = [step.id for locked, step in claimed if locked.graph.steps[step.index].reads_state]
    if not reading:
        return {}
    return {
        step_id: {
            name: StateValue(version or 0, value)
            for name, (version, value) in (decode(document) or {}).items()
        }
        for step_id, document in state_rows.recorded_reads(connection, reading)
    }


def _first_claims(connection: Connection, claimed: Claimed) -> dict[str, int]:
    """Return when steps whose templates read the time were first claimed.

    That is recorded with every claim; a step that inherited calls has the claim of the task before it.
    """
    reading = [step for locked, step in claimed if locked.graph.steps[step.index].reads_now]
    known = {step.id: step.started_at for step in reading if step.started_at is not None}
    earlier = [step.id for step in reading if step.has_history]
    if earlier:
        known |= read.first_claims(connection, earlier)
    return known


def _ended_wait(
    connection: Connection, waiting_on: str, graphs: GraphCache, fetched: FetchedValues
) -> EndedWait | None:
    """Return the wait of the step, with the result of a child task."""
    ended = waits.parse_ended(waiting_on)
    if ended is not None and isinstance(ended.on, Child) and ended.on.task_id is not None:
        child_id = ended.on.task_id
        ended.result.update(outputs.child_result(connection, child_id, graphs, fetched.take))
    return ended


def _workflows(
    connection: Connection, definition: Step, graphs: GraphCache
) -> dict[str, dict[str, Json]]:
    """Describe the workflows that the tools of an agent step name and that exist."""
    described: dict[str, dict[str, Json]] = {}
    for name in workflows_of(definition.config) if definition.kind == "agent" else ():
        latest = workflow_versions.latest(connection, name)
        if latest is not None:
            graph = graphs.get(connection, name, latest[0])
            described[name] = {"description": graph.description, "schema": inputs_schema(graph)}
    return described


def _step_deadline(
    connection: Connection, locked: LockedTask, step: StepRow, definition: Step
) -> int | None:
    """Return when the time budget of a step ends, counted from its first claim."""
    if definition.budget is None:
        return None
    seconds = definition.budget.get("time_seconds")
    if seconds is None:
        return None
    began = None
    if step.has_history:
        began = read.first_claimed_at(connection, locked.task.id, step.id)
        seconds = read.raised_seconds(connection, locked.task.id, definition.name) or seconds
    return (began or locked.now) + int(seconds * SECOND)


def _with_deadline(view: TaskView, locked: LockedTask) -> TaskView:
    """Return a task's view with its current deadline: clean-up has none."""
    deadline = locked.task.deadline
    if deadline is not None and budgets.pauses_when_time_is_over(locked.graph):
        # Such a task is paused, and its running attempts may finish.
        deadline = None
    return view if view.deadline == deadline else replace(view, deadline=deadline)


def _load_tasks(
    connection: Connection,
    claimed: Claimed,
    known: KnownTasks,
    graphs: GraphCache,
) -> dict[str, KnownTask]:
    """Return the tasks of claimed steps; those that are not known are read."""
    tasks = {locked.task.id: known.get(locked.task.id) for locked, _ in claimed}
    unread = {locked.task.id: locked.task for locked, _ in claimed if tasks[locked.task.id] is None}
    for task_id, stored_input, trigger, created_at in (
        read.tasks(connection, list(unread)) if unread else ()
    ):
        task = unread[task_id]
        path = graphs.path(connection, task.workflow_name, task.workflow_version)
        tasks[task_id] = known.add(task_view(task, stored_input, trigger, created_at, path))
    return {task_id: task for task_id, task in tasks.items() if task is not None}


def _load_outputs(
    connection: Connection,
    claimed: Claimed,
    tasks: dict[str, KnownTask],
    fetched: FetchedValues,
) -> None:
    """Read the outputs that steps refer to, where they are not known."""
    wanted: dict[tuple[str, int], str] = {}
    for locked, step in claimed:
        ended = tasks[step.task_id].ended
        for name in locked.graph.sees[step.index]:
            if name not in ended:
                wanted[(step.task_id, locked.graph.index_of[name])] = name
    if not wanted:
        return
    for _, task_id, index, status, output, error, count in read.ended_steps(
        connection, list(wanted)
    ):
        misses = fetched.misses
        value: Json = fetched.take(connection, output)
        if count is not None and status == "succeeded":
            value = read.gathered(connection, task_id, index, fetched.take)
        if fetched.misses > misses:
            # Incomplete: the next load reads it again.
            continue
        tasks[task_id].ended[wanted[(task_id, index)]] = Upstream(status, value, decode(error))


def _approvals(connection: Connection, with_history: Claimed) -> dict[str, list[RecordedApproval]]:
    """Read the approvals of steps that may have asked for one before."""
    asking = [
        step.id
        for locked, step in with_history
        if locked.definition(step).approval is not None
        or locked.definition(step).kind in _KINDS_THAT_ASK
    ]
    by_step: dict[str, list[RecordedApproval]] = {}
    for row in approval_rows.of_steps(connection, asking) if asking else ():
        by_step.setdefault(row.step_id, []).append(
            RecordedApproval(
                approval_id=row.id,
                kind=row.kind,
                status=ApprovalStatus(row.status),
                request_hash=row.request_hash,
                approved_hash=row.approved_hash,
                by=row.decided_by,
                channel=row.decided_channel,
                comment=row.comment,
                value=json.loads(row.value) if row.value is not None else None,
                edits=json.loads(row.edits) if row.edits is not None else None,
            )
        )
    return by_step


def _calls(
    connection: Connection, with_history: Claimed, fetched: FetchedValues
) -> dict[str, list[RecordedCall]]:
    """Read the recorded calls of steps that were claimed before."""
    step_ids = [step.id for _, step in with_history]
    calls: dict[str, list[RecordedCall]] = {}
    for row in call_rows.recorded_calls(connection, step_ids) if step_ids else ():
        calls.setdefault(row[0], []).append(_call(connection, row, fetched))
    return calls


def _call(connection: Connection, row: tuple[Json, ...], fetched: FetchedValues) -> RecordedCall:
    _, call_id, number, attempt, action, key, remote, digest, status, *rest = row
    response, error, on_unknown, expires_at = rest
    return RecordedCall(
        call_id=call_id,
        number=number,
        attempt=attempt,
        action=action,
        idempotency_key=key,
        remote_key=remote,
        request_hash=digest,
        status=CallStatus(status),
        response=fetched.take(connection, response),
        error=json.loads(error) if error is not None else None,
        on_unknown=on_unknown,
        expires_at=expires_at,
    )
