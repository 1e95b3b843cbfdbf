"""Rescue: put the running steps of a dead worker back to pending. Startup recovery and running workers share it.

It executes nothing. A recorded result is applied, a success and a final failure alike. Every other
outcome is unknown: the step goes back to pending with one attempt more, and that attempt follows the
step's `on_unknown`. Success never follows from the absence of failure.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from agent.core.clock import SECOND, Clock
from agent.core.ids import random_fraction
from agent.core.state_machine import CallStatus, StepStatus
from agent.steps.attempt.recorded_calls.replay import BAD_RESPONSE
from agent.steps.attempt.services import Limits
from agent.steps.spec.registry import KINDS
from agent.steps.types.outcome import TRUNCATED, StepError
from agent.store.db.database import Connection
from agent.store.engine import call_rows, reads, workers
from agent.tasks.rescue.failure_detector import has_process_ended
from agent.tasks.rules import advance, row_writer
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.isolation import IS_ISOLATED, MUST_BE_ISOLATED, WAITS_FOR_STORE
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow, TaskRow

log = structlog.get_logger(__name__)

MAX_STEPS_AT_ONCE: Final = 200

_DIED: Final = (
    "the process died while this step ran isolated: os._exit(), a crash of native code,"
    " the kernel's out-of-memory killer, or a kill from outside"
)
_SILENT: Final = (
    "the process died or stopped answering while this step ran isolated: os._exit(), a crash of"
    " native code, the kernel's out-of-memory killer, a kill from outside, or a call that held the"
    " interpreter"
)
_NOTHING: Final = (None, None, None)


def take_over(
    connection: Connection,
    graphs: GraphCache,
    clock: Clock,
    owners: Iterable[str],
    *,
    is_process_gone: bool,
    has_crashed: bool = True,
    limits: Limits | None = None,
) -> int:
    """Rescue all steps of dead workers, some in each transaction; return how many.

    `is_process_gone` says that the workers' processes have surely ended, so nothing that they began
    is still under way; so does a process on this machine that has ended. Otherwise an unknown effect is
    not decided before its own time is over, which by the worker's `limits` lasts as long as its attempt may. Any
    step of a worker that `has_crashed` may be the cause, and runs isolated next time, unless it
    only waited for a store. Steps of tasks that other transactions hold, or
    whose definition cannot be read, are left for the next pass.
    """
    total = 0
    for owner in owners:
        is_gone = is_process_gone or has_process_ended(connection, owner)
        cause = _Cause(is_gone, has_crashed, limits or Limits())
        with connection.transaction():
            step_ids = _steps_of(connection, owner, has_crashed=has_crashed)
        for first in range(0, len(step_ids), MAX_STEPS_AT_ONCE):
            batch = step_ids[first : first + MAX_STEPS_AT_ONCE]
            with connection.transaction():
                total += _take_over_batch(connection, graphs, owner, batch, cause, clock.now())
    return total


def _steps_of(tx: Connection, owner: str, *, has_crashed: bool) -> list[str]:
    """Return the steps of a dead worker, with the possible causes of its crash on record.

    Other steps may run beside an isolated one once its time is over; then any may be the cause. That
    is recorded before the first step is rescued, since every later batch and pass finds fewer of
    them. Where another transaction holds the task of the isolated step, all wait for the next pass.
    """
    owned = reads.owned_steps(tx, owner)
    isolated = {task_id for _, task_id, alone in owned if alone == IS_ISOLATED}
    running = sum(alone != WAITS_FOR_STORE for *_, alone in owned)
    if has_crashed and isolated and running > 1:
        if len(reads.lock_tasks(tx, ("id",), list(isolated))) < len(isolated):
            return []
        workers.end_isolation(tx, owner, IS_ISOLATED, MUST_BE_ISOLATED)
    return [step_id for step_id, *_ in owned]


def _take_over_batch(
    tx: Connection, graphs: GraphCache, owner: str, step_ids: list[str], cause: "_Cause", now: int
) -> int:
    """Rescue some steps of a dead worker; return how many could be locked and read."""
    owned = [StepRow.read(values) for values in reads.steps_by_id(tx, STEP_COLUMNS, step_ids)]
    locked_tasks = _lock_tasks(tx, graphs, {step.task_id for step in owned}, now)
    # Read again under the locks: a step may have moved since.
    addresses = [[s.task_id, s.index, s.parallel_index] for s in owned if s.task_id in locked_tasks]
    lost = [
        locked_tasks[step.task_id].add(step)
        for step in map(StepRow.read, reads.steps_at(tx, STEP_COLUMNS, addresses))
        if step.owner == owner
    ]
    others = _apply_recorded(tx, locked_tasks, lost)
    if others:
        _rescue(tx, locked_tasks, others, cause)
    for locked in locked_tasks.values():
        advance.advance(tx, locked)
    row_writer.write(tx, locked_tasks.values(), now)
    return len(lost)


def _lock_tasks(
    tx: Connection, graphs: GraphCache, task_ids: set[str], now: int
) -> dict[str, LockedTask]:
    """Lock those of the tasks that no other transaction holds and whose definition can be read."""
    locked_tasks: dict[str, LockedTask] = {}
    for values in reads.lock_tasks(tx, TASK_COLUMNS, list(task_ids)):
        task = TaskRow.read(values)
        try:
            graph = graphs.get(tx, task.workflow_name, task.workflow_version)
        except UnreadableError as error:
            # One unreadable task must not stop the recovery of the others.
            log.error("task.unreadable", task=task.id, error=str(error))
            continue
        locked_tasks[task.id] = LockedTask(task, graph, now)
    return locked_tasks


@dataclass(frozen=True, slots=True)
class _Cause:
    """What is known of the end of a worker."""

    is_process_gone: bool
    has_crashed: bool
    limits: Limits

    def error(self, step: StepRow) -> StepError:
        """Return why an attempt is lost; a crash while it ran isolated is the step's own."""
        if step.alone == WAITS_FOR_STORE:
            return StepError("lost", "crash", "its worker ended while it waited for a store")
        if not self.has_crashed:
            return StepError("lost", "crash", "its worker ended")
        if step.alone != IS_ISOLATED:
            return StepError("lost", "crash", "its worker died")
        return StepError("process_died", "crash", _DIED if self.is_process_gone else _SILENT)


def _rescue(
    tx: Connection, locked_tasks: dict[str, LockedTask], lost: list[StepRow], cause: _Cause
) -> None:
    """Give steps whose outcome is unknown their next attempt."""
    unknown: dict[str, list[tuple[Any, ...]]] = {}
    for step_id, *call in call_rows.unresolved_calls(tx, [step.id for step in lost]):
        unknown.setdefault(step_id, []).append(tuple(call))
    if cause.is_process_gone and unknown:
        call_rows.expire_calls(tx, list(unknown), next(iter(locked_tasks.values())).now)
    if not cause.is_process_gone and unknown:
        _extend_calls(tx, locked_tasks, [step for step in lost if step.id in unknown], cause.limits)
    for step in lost:
        locked = locked_tasks[step.task_id]
        assert step.status == StepStatus.RUNNING
        for call_id, number, action, attempt, _, _ in unknown.get(step.id, ()):
            if attempt == step.attempt:
                data = {"call": call_id, "action": action, "number": number}
                locked.emit("tool_call.unknown", step, data)
        if locked.task.phase == "failing" and not advance.is_cleanup(locked, step):
            transitions.skip(locked, step, advance.end_reason(locked))
            continue
        definition = locked.definition(step)
        delay = definition.retry.delay_after(step.attempt, random_fraction())
        wake_at = locked.now + int(delay * SECOND)
        is_suspect = step.alone != WAITS_FOR_STORE and not definition.runs_elsewhere
        must_isolate = cause.has_crashed and is_suspect
        transitions.lose(locked, step, wake_at, cause.error(step), must_isolate=must_isolate)


def _extend_calls(
    tx: Connection, locked_tasks: dict[str, LockedTask], steps: list[StepRow], limits: Limits
) -> None:
    """Extend the own time of calls without a timeout: a silent worker's command may still run."""
    ends = []
    for step in steps:
        locked = locked_tasks[step.task_id]
        definition, kind = locked.definition(step), KINDS.get(locked.definition(step).kind)
        if kind is None or not kind.runs_code or definition.timeout_seconds is not None:
            continue
        budget_seconds = (definition.budget or {}).get("time_seconds") or 0
        seconds = max(limits.attempt_seconds, locked.graph.timeout_seconds or 0, budget_seconds)
        end = (step.started_at or locked.now) + int(seconds * SECOND)
        ends.append([step.id, step.attempt, locked.task.deadline or end])
    if ends:
        call_rows.extend_calls(tx, ends, int(limits.call_seconds * SECOND))


def _apply_recorded(
    tx: Connection, locked_tasks: dict[str, LockedTask], lost: list[StepRow]
) -> list[StepRow]:
    """Apply the recorded results of calls that are their steps' outcomes; return the other steps.

    A failure that allows a retry is left to the next attempt, and so is a response that has still
    to be checked: that attempt finds the call on record and repeats nothing.
    """
    keys = [step.idempotency_key for step in lost if step.idempotency_key is not None]
    results = call_rows.recorded_results(tx, keys) if keys else {}
    others = []
    for step in lost:
        locked = locked_tasks[step.task_id]
        status, response, text = results.get(step.idempotency_key or "", _NOTHING)
        error = StepError.read(json.loads(text)) if text is not None else None
        if status == CallStatus.FAILED and error is not None and error.is_final:
            transitions.fail(locked, step, replace(error, is_final=False))
        elif (
            status == CallStatus.SUCCEEDED
            and response is not None
            and locked.definition(step).output_schema is None
            # Only an attempt renders what the step writes to `state`.
            and not locked.definition(step).set_state
            and (error is None or error.code != BAD_RESPONSE)
            and not _is_truncated(response)
        ):
            transitions.succeed(locked, step, response)
        else:
            others.append(step)
    return others


def _is_truncated(response: str) -> bool:
    """Whether a response says that it is not whole; an `http` step fails with such a response."""
    document = json.loads(response)
    return isinstance(document, dict) and bool(document.get(TRUNCATED))
