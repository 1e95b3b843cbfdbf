"""Caches the inputs of tasks that a worker handled lately, so that attempts need not read them again."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agent.core.chat_origin import read_origin, with_origin
from agent.core.state_machine import TASK_ENDED, StepStatus
from agent.steps.types.attempt_input import TaskView, Upstream
from agent.store.artifacts import artifact_rows
from agent.store.db.json_values import decode
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow, TaskRow

_MOST_TASKS: Final = 2000
_LARGEST_OUTPUT: Final = 16_384


@dataclass(slots=True)
class KnownTask:
    """A task's view, and the outputs of its steps by name."""

    view: TaskView
    ended: dict[str, Upstream] = field(default_factory=dict)


class KnownTasks:
    """The tasks that this worker handled last; `trim` bounds their number."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, KnownTask] = OrderedDict()

    def get(self, task_id: str) -> KnownTask | None:
        """Return the cached values of a task."""
        known = self._tasks.get(task_id)
        if known is not None:
            self._tasks.move_to_end(task_id)
        return known

    def add(self, view: TaskView) -> KnownTask:
        """Add a task; it stays until `trim` at least, while its attempts are loaded."""
        known = self._tasks[view.id] = KnownTask(view)
        return known

    def learn(self, locked_tasks: Iterable[LockedTask]) -> None:
        """Cache the values that the next attempts of these tasks will need."""
        for locked in locked_tasks:
            task = locked.task
            if locked.is_new:
                extra = task.extra
                stored = extra["input"], extra["trigger"], extra["created_at"]
                self.add(task_view(task, *stored, locked.source_path))
            elif task.status in TASK_ENDED:
                self._tasks.pop(task.id, None)
                continue
            for step in locked.steps.values():
                self._learn_output(locked, step)
        self.trim()

    def _learn_output(self, locked: LockedTask, step: StepRow) -> None:
        """Add the output of a step, unless it is large."""
        output = step.extra.get("output")
        known = self._tasks.get(step.task_id)
        if (
            output is None
            or known is None
            or step.status != StepStatus.SUCCEEDED
            or step.is_item
            or step.parallel_count is not None
            or len(output) > _LARGEST_OUTPUT
            or artifact_rows.looks_like_reference(output)
        ):
            return
        known.ended[locked.definition(step).name] = Upstream("succeeded", text=output)

    def trim(self) -> None:
        """Drop the tasks that were not used for the longest, beyond the bound."""
        while len(self._tasks) > _MOST_TASKS:
            self._tasks.popitem(last=False)


def task_view(
    task: TaskRow, stored_input: str, trigger: str | None, created_at: int, source_path: str | None
) -> TaskView:
    """Return the values of a task that steps may see."""
    chat_origin = read_origin(task.chat_origin)
    return TaskView(
        id=task.id,
        workflow=task.workflow_name,
        version=task.workflow_version,
        input=decode(stored_input),
        trigger=with_origin(decode(trigger), chat_origin),
        origin_id=task.origin_id,
        created_at=created_at,
        deadline=task.deadline,
        depth=task.depth,
        source_path=source_path,
        chat_origin=chat_origin,
    )
