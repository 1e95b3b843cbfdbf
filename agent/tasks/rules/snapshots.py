"""Context snapshots: values that steps, workers and operators append to a task, each with an event."""

from dataclasses import dataclass
from typing import Final

from agent.core.ids import new_id, request_hash
from agent.core.plain_json import Json
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection
from agent.store.engine import snapshot_rows
from agent.store.engine.snapshot_rows import SnapshotRow
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

MAX_BYTES: Final = 256 * 1024
MAX_PER_TASK: Final = 1000


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A value to append: JSON text, with its label."""

    value: str
    label: str | None = None
    parent: str | None = None
    """The snapshot that it continues; None: the task's newest."""
    client_token: str | None = None
    """From `token_of`: a repetition with the same token appends nothing, and gets the same id."""


def token_of(caller: str, token: str | None) -> str | None:
    """Return the token of a call as it is stored: callers cannot take each other's, nor read them."""
    return None if token is None else request_hash([caller, token])


def append(
    tx: Connection, locked: LockedTask, step: StepRow | None, new: NewSnapshot, written_by: str
) -> str | StepError:
    """Append a value; return the snapshot's id, or why it is refused."""
    known = repeated(tx, locked, new)
    if known is not None:
        return known
    task_id = locked.task.id
    size = len(new.value.encode())
    if size > MAX_BYTES:
        text = f"a snapshot of {size:,} bytes is too large: {MAX_BYTES:,} are allowed"
        return StepError("snapshot_too_large", "limit", text)
    if snapshot_rows.count(tx, task_id) + len(locked.snapshots) >= MAX_PER_TASK:
        text = f"the task has {MAX_PER_TASK:,} snapshots, and more are not allowed"
        return StepError("too_many_snapshots", "limit", text)
    parent = new.parent
    if parent is None:
        parent = _newest(tx, locked)
    elif not _has(tx, locked, parent):
        return StepError("no_parent", "input", f"the task has no snapshot {parent}")
    row = SnapshotRow(
        id=new_id(),
        task_id=task_id,
        step_id=None if step is None else step.id,
        parent=parent,
        label=new.label,
        value=new.value,
        written_by=written_by,
        created_at=locked.now,
        client_token=new.client_token,
    )
    locked.snapshots.append(row)
    data: dict[str, Json] = {"snapshot": row.id, "parent": parent, "by": written_by, "size": size}
    if new.label is not None:
        data["label"] = new.label
    locked.emit("context_snapshot.appended", step, data)
    return row.id


def repeated(tx: Connection, locked: LockedTask, new: NewSnapshot) -> str | StepError | None:
    """Return the id of the snapshot that the same call has appended before; None if there is none."""
    token = new.client_token
    if token is None:
        return None
    unwritten = (row for row in locked.snapshots if row.client_token == token)
    row = next(unwritten, None) or snapshot_rows.by_client_token(tx, locked.task.id, token)
    if row is None:
        return None
    if (row.value, row.label) != (new.value, new.label):
        text = "this client_token was already used for another snapshot"
        return StepError("token_reused", "input", text)
    return row.id


def _newest(tx: Connection, locked: LockedTask) -> str | None:
    if locked.snapshots:
        return locked.snapshots[-1].id
    return snapshot_rows.newest(tx, [locked.task.id]).get(locked.task.id)


def _has(tx: Connection, locked: LockedTask, snapshot_id: str) -> bool:
    if any(row.id == snapshot_id for row in locked.snapshots):
        return True
    return snapshot_rows.find(tx, locked.task.id, snapshot_id) is not None
