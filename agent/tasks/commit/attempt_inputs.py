"""From claimed rows to what the runner gets: input, upstream outputs, item, checkpoint, calls.

It runs after the commit, outside every transaction. What this worker knows already (tasks that it
created, outputs that it settled) is not read again.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from agent.core import waits
from agent.core.clock import SECOND
from agent.core.state_machine import TASK_ENDED, ApprovalStatus, CallStatus, StepStatus
from agent.core.waits import Child
from agent.steps.spec.agent_config import workflows_of
from agent.steps.types.attempt_input import AttemptInput, TaskView, Upstream
from agent.steps.types.call_records import RecordedApproval, RecordedCall
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.artifacts.artifact_rows import FetchedValues, NotFetchedError
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import approvals, call_rows, workflow_versions
from agent.store.engine import attempt_reads as read
from agent.tasks.read_models import outputs
from agent.tasks.rules import budgets
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow, TaskRow
from agent.workflows.compile.inputs import inputs_schema
from agent.workflows.graph import Step

_MOST_KEPT = 2000
_LARGEST_KEPT = 16_384
_ASKING = frozenset({"approval", "input", "agent"})
"""Kinds of steps that ask by themselves."""


_NOTHING: Final = (None, None, None, None)


@dataclass(slots=True)
class _Known:
    """What is remembered of a task."""

    view: TaskView
    ended: dict[str, Upstream] = field(default_factory=dict)


class Memory:
    """Tasks that this worker has seen lately, bounded by `trim` in number, and in size."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, _Known] = OrderedDict()

    def get(self, task_id: str) -> _Known | None:
        """Return what is known of a task."""
        known = self._tasks.get(task_id)
        if known is not None:
            self._tasks.move_to_end(task_id)
        return known

    def learn_task(self, view: TaskView) -> _Known:
        """Remember a task, until `trim` at least: what is being equipped must not be forgotten."""
        known = self._tasks[view.id] = _Known(view)
        return known

    def learn(self, locked_tasks: Iterable[LockedTask]) -> None:
        """Remember what the next attempts of these tasks will ask for, so that it is not read."""
        for locked in locked_tasks:
            task = locked.task
            if locked.is_new:
                extra = task.extra
                given = extra["input"], extra["trigger"], extra["created_at"]
                self.learn_task(_view(task, *given, locked.source_path))
            elif task.status in TASK_ENDED:
                self.forget(task.id)
                continue
            for step in locked.steps.values():
                self._learn_output(locked, step)
        self.trim()

    def _learn_output(self, locked: LockedTask, step: StepRow) -> None:
        """Remember what a step gave, unless it is large."""
        output = step.extra.get("output")
        known = self._tasks.get(step.task_id)
        if (
            output is None
            or known is None
            or step.status != StepStatus.SUCCEEDED
            or step.is_item
            or step.parallel_count is not None
            or len(output) > _LARGEST_KEPT
            or artifact_rows.looks_like_reference(output)
        ):
            return
        known.ended[locked.definition(step).name] = Upstream("succeeded", text=output)

    def forget(self, task_id: str) -> None:
        """Forget a task that has ended."""
        self._tasks.pop(task_id, None)

    def trim(self) -> None:
        """Forget what was not asked for the longest, beyond the bound."""
        while len(self._tasks) > _MOST_KEPT:
            self._tasks.popitem(last=False)


def equip(
    connection: Connection,
    claimed: list[tuple[LockedTask, StepRow]],
    memory: Memory,
    graphs: GraphCache,
    fetched: FetchedValues,
) -> list[AttemptInput]:
    """Return what each claimed step's attempt starts with.

    Raise `NotFetchedError` if a value is kept outside the database and was not `fetched` yet.
    """
    fetched.missing = set()
    tasks = _learn_tasks(connection, claimed, memory, graphs)
    _learn_outputs(connection, claimed, tasks, fetched)
    # A first claim of a plain step has no past; anything else may have.
    with_past = [step.id for _, step in claimed if step.claim_token > 1 or step.is_item]
    own = {row[0]: row[1:] for row in read.own_values(connection, with_past)} if with_past else {}
    calls: dict[str, list[RecordedCall]] = {}
    again = [step.id for _, step in claimed if step.claim_token > 1]
    if again:
        for row in call_rows.recorded_calls(connection, again):
            calls.setdefault(row[0], []).append(_call(connection, row, fetched))
    asked = _approvals(connection, claimed)
    result = []
    for locked, step in claimed:
        definition = locked.definition(step)
        known = tasks[step.task_id]
        ended = known.ended
        checkpoint, item, waiting_on, error = own.get(step.id, _NOTHING)
        waited = waits.parse_ended(waiting_on)
        if waited is not None and isinstance(waited.on, Child) and waited.on.task_id is not None:
            child_id = waited.on.task_id
            waited.result.update(outputs.child_result(connection, child_id, graphs, fetched.take))
        result.append(
            AttemptInput(
                task=_as_of_now(known.view, locked),
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
                waited=waited,
                deadline=_step_deadline(connection, locked, step),
                failures=step.failures,
                last_error=decode(error),
                upstream={
                    name: ended[name] for name in locked.graph.sees[step.index] if name in ended
                },
                calls=calls.get(step.id, []),
                approvals=asked.get(step.id, []),
                workflows=_workflows(connection, definition, graphs),
            )
        )
    memory.trim()
    if fetched.missing:
        raise NotFetchedError
    return result


def _workflows(
    connection: Connection, definition: Step, graphs: GraphCache
) -> dict[str, dict[str, Json]]:
    """Describe the workflows that an agent's tools name, as far as they are known."""
    described: dict[str, dict[str, Json]] = {}
    for name in workflows_of(definition.config) if definition.kind == "agent" else ():
        found = workflow_versions.latest(connection, name)
        if found is not None:
            graph = graphs.get(connection, name, found[0])
            described[name] = {"description": graph.description, "schema": inputs_schema(graph)}
    return described


def _step_deadline(connection: Connection, locked: LockedTask, step: StepRow) -> int | None:
    """Return when the time of a step's own budget is over, counted from its first claim."""
    definition = locked.definition(step)
    if definition.budget is None:
        return None
    seconds = definition.budget.get("time_seconds")
    if seconds is None:
        return None
    began = None
    if step.claim_token > 1:
        began = read.first_claimed_at(connection, locked.task.id, step.id)
        seconds = read.raised_seconds(connection, locked.task.id, definition.name) or seconds
    return (began or locked.now) + int(seconds * SECOND)


def _as_of_now(view: TaskView, locked: LockedTask) -> TaskView:
    """Return a task as remembered, with the deadline that it still has: clean-up has none."""
    deadline = locked.task.deadline
    if deadline is not None and budgets.pauses_when_time_is_over(locked.graph):
        # Then the task is paused, and what is in flight may finish.
        deadline = None
    return view if view.deadline == deadline else replace(view, deadline=deadline)


def _view(
    task: TaskRow, given: str, trigger: str | None, created_at: int, source_path: str | None
) -> TaskView:
    """Return what steps may see of a task."""
    return TaskView(
        id=task.id,
        workflow=task.workflow_name,
        version=task.workflow_version,
        input=decode(given),
        trigger=decode(trigger),
        origin_id=task.origin_id,
        created_at=created_at,
        deadline=task.deadline,
        depth=task.depth,
        source_path=source_path,
    )


def _learn_tasks(
    connection: Connection,
    claimed: list[tuple[LockedTask, StepRow]],
    memory: Memory,
    graphs: GraphCache,
) -> dict[str, _Known]:
    """Return what is known of the tasks of claimed steps; what is not remembered is read."""
    tasks = {locked.task.id: memory.get(locked.task.id) for locked, _ in claimed}
    unread = {locked.task.id: locked.task for locked, _ in claimed if tasks[locked.task.id] is None}
    for task_id, given, trigger, created_at in (
        read.tasks(connection, list(unread)) if unread else ()
    ):
        task = unread[task_id]
        path = graphs.path(connection, task.workflow_name, task.workflow_version)
        tasks[task_id] = memory.learn_task(_view(task, given, trigger, created_at, path))
    return {task_id: known for task_id, known in tasks.items() if known is not None}


def _learn_outputs(
    connection: Connection,
    claimed: list[tuple[LockedTask, StepRow]],
    tasks: dict[str, _Known],
    fetched: FetchedValues,
) -> None:
    """Read what steps refer to and this worker does not remember."""
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
            # Nothing to remember: the next try reads it again.
            continue
        tasks[task_id].ended[wanted[(task_id, index)]] = Upstream(status, value, decode(error))


def _approvals(
    connection: Connection, claimed: list[tuple[LockedTask, StepRow]]
) -> dict[str, list[RecordedApproval]]:
    """Read what people were asked about steps that may have asked before."""
    asking = [
        step.id
        for locked, step in claimed
        if step.claim_token > 1
        and (
            locked.definition(step).approval is not None or locked.definition(step).kind in _ASKING
        )
    ]
    found: dict[str, list[RecordedApproval]] = {}
    for row in approvals.of_steps(connection, asking) if asking else ():
        found.setdefault(row.step_id, []).append(
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
    return found


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
