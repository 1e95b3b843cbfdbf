"""Tasks that have not ended, as a restore of the database needs them."""

from dataclasses import dataclass

from agent.store.db.database import Connection


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that is paused since a restore, with its steps that have not ended."""

    id: str
    workflow: str
    steps: tuple[tuple[str, str], ...]
    """(name, kind) of each, in the order of the graph; a group is named once."""


def open_task_ids(connection: Connection) -> list[str]:
    """Return the tasks that have not ended, the oldest first."""
    rows = connection.query(
        "SELECT id FROM tasks WHERE status IN ('pending', 'running', 'paused') ORDER BY id"
    )
    return [str(task_id) for (task_id,) in rows]


def held_tasks(connection: Connection, pause_kind: str) -> list[HeldTask]:
    """Return the tasks that a pause of this kind holds, the oldest first."""
    rows = connection.query(
        'SELECT t.id, t.workflow_name, s.name, s.kind, min(s."index") FROM tasks AS t'
        " LEFT JOIN steps AS s ON s.task_id = t.id"
        " AND s.status IN ('pending', 'running', 'waiting', 'paused')"
        " WHERE t.status = 'paused' AND t.pause_kind = :kind"
        " GROUP BY t.id, t.workflow_name, s.name, s.kind ORDER BY t.id, 5",
        kind=pause_kind,
    )
    held: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for task_id, workflow, step, kind, _ in rows:
        steps = held.setdefault((task_id, workflow), [])
        if step is not None:
            steps.append((step, kind))
    return [HeldTask(*key, tuple(steps)) for key, steps in held.items()]
