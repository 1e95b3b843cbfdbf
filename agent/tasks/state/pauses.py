"""Why a task is paused, as columns that code may act on: `pause_kind` and `pause_command`.

`pause_reason` is for people. Both columns are null in a row that a worker of a version before
schema 0006 paused: such a pause has no known kind, and `agent resume` ends it.
"""

from enum import StrEnum

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.store.db.database import Connection
from agent.store.engine import task_rows
from agent.tasks.state.rows import TaskRow


class PauseKind(StrEnum):
    """The cause of a task's pause."""

    OPERATOR = "operator"
    """The command `pause`."""
    BUDGET = "budget"
    """A budget of tokens, money or time; raising it resumes the task."""
    RESTORE = "restore"
    """A restore of the database: everything after the backup is lost."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a task is paused."""

    kind: PauseKind | None
    reason: str | None = None
    command: str | None = None
    """The arguments of `agent` that resume it, where `resume` alone would not."""


NO_PAUSE = Pause(None)


def record(task: TaskRow, pause: Pause) -> None:
    """Set the columns of a pause, or clear them with `NO_PAUSE`."""
    task.set_columns(pause_kind=pause.kind, pause_reason=pause.reason, pause_command=pause.command)


def of_task(tx: Connection, task: TaskRow) -> Pause:
    """Return why a paused task is paused, also where this transaction has just paused it."""
    if "pause_kind" in task.extra:
        columns = ("pause_kind", "pause_reason", "pause_command")
        kind, reason, command = (task.extra[name] for name in columns)
    else:
        kind, reason, command = task_rows.pause_of(tx, task.id)
    return Pause(None if kind is None else PauseKind(kind), reason, command)
