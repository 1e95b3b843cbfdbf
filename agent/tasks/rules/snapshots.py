"""Context snapshots: values that steps, workers and operators append to a task, each with an event."""

from typing import Final

from agent.core.ids import new_id
from agent.core.plain_json import Json
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection
from agent.store.engine import snapshot_rows
from agent.store.engine.snapshot_rows import SnapshotRow
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

MAX_BYTES: Final = 256 * 1024
MAX_PER_TASK: Final = 1000


def append(
    tx: Connection,
    locked: LockedTask,
    step: StepRow | None,
    value: str,
    label: str | None,
    written_by: str,
    parent: str | None = None,
) -> str | StepError:
    """Append a value, which is JSON text; return the snapshot's id, or why it is refused.

    Without a parent it continues the task's newest snapshot.
    """
    task_id = locked.task.id
    size = len(value.encode())
    if size > MAX_BYTES:
        text = f"a snapshot of {size:,} bytes is too large: {MAX_BYTES:,} are allowed"
        return StepError("snapshot_too_large", "limit", text)
    if snapshot_rows.count(tx, task_id) + len(locked.snapshots) >= MAX_PER_TASK:
        text = f"the task has {MAX_PER_TASK:,} snapshots, and more are not allowed"
        return StepError("too_many_snapshots", "limit", text)
    if parent is None:
        parent = _newest(tx, locked)
    elif not _has(tx, locked, parent):
        return StepError("no_parent", "input", f"the task has no snapshot {parent}")
    step_id = None if step is None else step.id
    row = SnapshotRow(new_id(), task_id, step_id, parent, label, value, written_by, locked.now)
    locked.snapshots.append(row)
    data: dict[str, Json] = {"snapshot": row.id, "parent": parent, "by": written_by, "size": size}
    if label is not None:
        data["label"] = label
    locked.emit("context_snapshot.appended", step, data)
    return row.id


def _newest(tx: Connection, locked: LockedTask) -> str | None:
    if locked.snapshots:
        return locked.snapshots[-1].id
    return snapshot_rows.newest(tx, [locked.task.id]).get(locked.task.id)


def _has(tx: Connection, locked: LockedTask, snapshot_id: str) -> bool:
    if any(row.id == snapshot_id for row in locked.snapshots):
        return True
    return snapshot_rows.find(tx, locked.task.id, snapshot_id) is not None
