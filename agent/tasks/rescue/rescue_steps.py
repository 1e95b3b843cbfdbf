"""What becomes of a step whose attempt is lost: the one function for recovery and for takeover.

It executes nothing and decides nothing. A result that is on record is applied, a success and a final
failure alike; everything else is unknown, and the step goes back to pending with one attempt more: the
next attempt sees the unknown and follows the step's `on_unknown`. Success never follows from the
absence of failure.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from agent.core.clock import SECOND
from agent.core.ids import random_fraction
from agent.core.state_machine import CallStatus, StepStatus
from agent.steps.attempt.replay import BAD_RESPONSE
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection
from agent.store.engine import call_rows, reads
from agent.tasks.rules import advance, row_writer
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.poison_isolation import IS_ISOLATED
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
    tx: Connection,
    graphs: GraphCache,
    owner: str,
    now: int,
    *,
    is_process_gone: bool,
    has_crashed: bool = True,
) -> tuple[int, int]:
    """Recover the steps of a dead worker; return how many, and how many are still locked.

    Tasks that another transaction holds are left for the next time. `is_process_gone` says that the
    worker's process has surely ended, so that nothing it began goes on by itself; otherwise nobody
    acts on an unknown before the effect's own time is over. Of a worker that `has_crashed` each step
    may have been the cause, and runs alone the next time.
    """
    found = [
        StepRow.read(values)
        for values in reads.owned_steps(tx, STEP_COLUMNS, owner, MAX_STEPS_AT_ONCE)
    ]
    locked_tasks: dict[str, LockedTask] = {}
    for row in reads.lock_tasks(tx, TASK_COLUMNS, list({step.task_id for step in found})):
        task = TaskRow.read(row)
        try:
            graph = graphs.get(tx, task.workflow_name, task.workflow_version)
        except UnreadableError as error:
            # One task that cannot be read must not keep the others, and the agent, from going on.
            log.error("task.unreadable", task=task.id, error=str(error))
            continue
        locked_tasks[task.id] = LockedTask(task, graph, now)
    # Read again under the locks: a step may have moved since it was found.
    places = [[s.task_id, s.index, s.parallel_index] for s in found if s.task_id in locked_tasks]
    lost = [
        locked_tasks[step.task_id].add(step)
        for step in map(StepRow.read, reads.steps_at(tx, STEP_COLUMNS, places))
        if step.owner == owner
    ]
    # Others may run beside an isolated step once its time alone is over: then any was the cause.
    is_only_one = len(found) == 1
    cause = _Cause(is_process_gone, has_crashed, is_only_one)
    _recover(tx, locked_tasks, lost, cause)
    for locked in locked_tasks.values():
        advance.advance(tx, locked)
    row_writer.write(tx, locked_tasks.values(), now)
    return len(lost), len(found) - len(lost)


def _recover(
    tx: Connection,
    locked_tasks: dict[str, LockedTask],
    lost: list[StepRow],
    cause: "_Cause",
) -> None:
    """Take running steps from a worker that is dead."""
    unsettled = _apply_recorded(tx, locked_tasks, lost)
    if not unsettled:
        return
    step_ids = [step.id for step in unsettled]
    unknown: dict[str, list[tuple[Any, ...]]] = {}
    for step_id, *call in call_rows.unresolved_calls(tx, step_ids):
        unknown.setdefault(step_id, []).append(tuple(call))
    if cause.is_process_gone and unknown:
        call_rows.expire_calls(tx, list(unknown), next(iter(locked_tasks.values())).now)
    for step in unsettled:
        locked = locked_tasks[step.task_id]
        assert step.status == StepStatus.RUNNING
        for call_id, number, action, attempt in unknown.get(step.id, ()):
            if attempt == step.attempt:
                data = {"call": call_id, "action": action, "number": number}
                locked.emit("tool_call.unknown", step, data)
        if locked.task.phase == "failing" and not advance.is_cleanup(locked, step):
            transitions.skip(locked, step, "fail_fast")
            continue
        policy = locked.definition(step).retry
        delay = policy.delay_after(step.attempt, random_fraction())
        wake_at = locked.now + int(delay * SECOND)
        transitions.lose(locked, step, wake_at, cause.error(step), is_alone=cause.has_crashed)


@dataclass(frozen=True, slots=True)
class _Cause:
    """What is known of the end of a worker."""

    is_process_gone: bool
    has_crashed: bool
    is_only_one: bool
    """Whether it ran a single step."""

    def error(self, step: StepRow) -> StepError:
        """Say why an attempt is lost; a crash while it ran isolated is the step's own."""
        if not self.has_crashed:
            return StepError("lost", "crash", "its worker ended")
        if step.alone != IS_ISOLATED or not self.is_only_one:
            return StepError("lost", "crash", "its worker died")
        return StepError("process_died", "crash", _DIED if self.is_process_gone else _SILENT)


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
            and (error is None or error.code != BAD_RESPONSE)
            # An `http` response without its body fails its step, which the next attempt does.
            and '"truncated"' not in response
        ):
            transitions.succeed(locked, step, response)
        else:
            others.append(step)
    return others
