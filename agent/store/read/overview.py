"""Bounded reads about one task, for a page that shows it whatever its size."""

from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.json_values import decode, set_of
from agent.store.read import activity

Found = dict[str, Any]

MAX_STEPS: Final = 2000
MAX_ITEMS: Final = 60
MAX_CHANGES: Final = 8000
MAX_CHANGED_ITEMS: Final = 1000
"""Of a task with more items than this, `item_runs` replaces the changes of each."""
_RUNS: Final = 200
"""The parts of a task's time in which items that start together are one run."""
MAX_RELATIVES: Final = 50

_STEP_NAMES: Final = (
    "id",
    "index",
    "parallel_index",
    "name",
    "kind",
    "status",
    "attempt",
    "max_attempts",
    "waiting_on",
    "wake_at",
    "error",
    "skip_reason",
    "item",
    "parallel_count",
    "started_at",
    "ended_at",
)
_CHANGES: Final = (
    "step.claimed",
    "step.succeeded",
    "step.failed",
    "step.retried",
    "step.lost",
    "step.returned",
    "step.waiting",
    "step.woken",
    "step.paused",
    "step.resumed",
    "step.skipped",
    "step.abandoned",
)
_RELATIVE_NAMES: Final = (
    "id",
    "workflow_name",
    "workflow_version",
    "status",
    "created_at",
    "started_at",
    "ended_at",
    "parent_step_id",
    "activity",
)


def _columns(names: tuple[str, ...], table: str) -> str:
    return ", ".join(f'{table}."{name}"' for name in names)


def _relative_columns(connection: Connection) -> str:
    columns = _columns(_RELATIVE_NAMES[:-1], "t")
    return f"{columns}, {activity.expression(connection.sql, 't')}"


def _named(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[Found]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def steps(connection: Connection, task_id: str) -> list[Found]:
    """Return a task's steps in order, groups without their items and without outputs."""
    rows = connection.query(
        f"SELECT {_columns(_STEP_NAMES, 's')} FROM steps AS s WHERE s.task_id = :id"
        ' AND s.parallel_index = -1 ORDER BY s."index" LIMIT :limit',
        id=task_id,
        limit=MAX_STEPS,
    )
    return _named(_STEP_NAMES, rows)


def item_counts(connection: Connection, task_id: str) -> dict[int, dict[str, int]]:
    """Return how many items of each group have which status, by the group's index."""
    counts: dict[int, dict[str, int]] = {}
    rows = connection.query(
        'SELECT "index", status, count(*) FROM steps WHERE task_id = :id AND parallel_index >= 0'
        ' GROUP BY "index", status ORDER BY "index", status',
        id=task_id,
    )
    for index, status, count in rows:
        counts.setdefault(int(index), {})[str(status)] = int(count)
    return counts


def open_items(connection: Connection, task_id: str) -> list[Found]:
    """Return the items that failed, run, wait or are paused, the first of each group."""
    rows = connection.query(
        f"SELECT {_columns(_STEP_NAMES, 's')} FROM steps AS s WHERE s.task_id = :id"
        " AND s.parallel_index >= 0 AND s.status IN ('failed', 'waiting', 'paused', 'running')"
        ' ORDER BY s."index", s.parallel_index LIMIT :limit',
        id=task_id,
        limit=MAX_ITEMS,
    )
    return _named(_STEP_NAMES, rows)


def has_many_items(connection: Connection, task_id: str) -> bool:
    """Whether a task has too many items for the changes of each."""
    rows = connection.query(
        "SELECT count(*) FROM (SELECT 1 FROM steps WHERE task_id = :id AND parallel_index >= 0"
        " LIMIT :most) AS s",
        id=task_id,
        most=MAX_CHANGED_ITEMS + 1,
    )
    return int(rows[0][0]) > MAX_CHANGED_ITEMS


def step_changes(
    connection: Connection, task_id: str, *, with_items: bool
) -> list[tuple[str, int, int, str, int]]:
    """Return (step id, index, attempt, type, at) of the events of steps, and of items, in order.

    Of a task with more changes, the first ones are returned.
    """
    rows = connection.query(
        'SELECT e.step_id, s."index", e.attempt, e.type, e.at FROM events AS e'
        " JOIN steps AS s ON s.id = e.step_id WHERE e.task_id = :id"
        f" AND e.type IN {connection.sql.ids()} AND s.parallel_index <= :last"
        " ORDER BY e.seq LIMIT :limit",
        id=task_id,
        ids=set_of(_CHANGES),
        last=2**31 if with_items else -1,
        limit=MAX_CHANGES,
    )
    return [
        (str(step), int(index), int(attempt), kind, int(at))
        for step, index, attempt, kind, at in rows
    ]


def item_runs(
    connection: Connection, task_id: str, start: int, end: int
) -> list[tuple[int, str, int, int, int]]:
    """Return (index, status, number, first start, last end) of items of one status that start together."""
    rows = connection.query(
        'SELECT "index", status, count(*), min(started_at), max(coalesce(ended_at, :end))'
        " FROM steps WHERE task_id = :id AND parallel_index >= 0 AND started_at IS NOT NULL"
        " AND status <> 'pending' GROUP BY \"index\", status, (started_at - :start) / :length"
        ' ORDER BY "index", min(started_at)',
        id=task_id,
        start=start,
        end=end,
        length=max((end - start) // _RUNS, 1),
    )
    return [
        (int(index), str(status), int(number), int(first), int(last))
        for index, status, number, first, last in rows
    ]


def children(connection: Connection, task_id: str) -> list[Found]:
    """Return the child tasks of a task, the oldest first, each with the step that started it."""
    rows = connection.query(
        f"SELECT {_relative_columns(connection)}, s.name, s.parallel_index FROM steps AS s"
        " JOIN tasks AS t ON t.parent_step_id = s.id WHERE s.task_id = :id"
        " AND s.kind IN ('workflow', 'agent') ORDER BY t.id LIMIT :limit",
        id=task_id,
        limit=MAX_RELATIVES,
    )
    return _named((*_RELATIVE_NAMES, "step_name", "step_item"), rows)


def successors(connection: Connection, task_id: str) -> list[Found]:
    """Return the tasks that retry a task or were forked from it, the oldest first."""
    rows = connection.query(
        f"SELECT {_relative_columns(connection)}, t.retry_of FROM tasks AS t"
        " WHERE t.retry_of = :id ORDER BY t.id LIMIT :limit",
        id=task_id,
        limit=MAX_RELATIVES,
    )
    # There is no index on the task that another was forked from: its events name its forks.
    forks = connection.query(
        "SELECT data FROM events WHERE task_id = :id AND type = 'task.forked'"
        " ORDER BY seq LIMIT :limit",
        id=task_id,
        limit=MAX_RELATIVES,
    )
    relatives = _named((*_RELATIVE_NAMES, "retry_of"), rows)
    return sorted(
        relatives + _forks(connection, [str(data) for (data,) in forks]), key=lambda row: row["id"]
    )


def _forks(connection: Connection, documents: list[str]) -> list[Found]:
    ids = [decode(text)["as"] for text in documents]
    return [row | {"retry_of": None} for row in tasks(connection, ids)]


def tasks(connection: Connection, task_ids: list[str]) -> list[Found]:
    """Return a few tasks by their ids; those that were pruned are left out."""
    if not task_ids:
        return []
    rows = connection.query(
        f"SELECT {_relative_columns(connection)} FROM tasks AS t"
        f" WHERE t.id IN {connection.sql.ids()} ORDER BY t.id",
        ids=set_of(task_ids),
    )
    return _named(_RELATIVE_NAMES, rows)


def version(connection: Connection, task_id: str) -> tuple[Any, ...] | None:
    """Return a value that changes whenever a task or one below it does; None without a task.

    Children, and their own as long as they are open: below a task that has ended nothing changes.
    """
    kinds = "s.kind IN ('workflow', 'agent')"
    rows = connection.query(
        "WITH RECURSIVE below(id, status, event_seq) AS ("
        "SELECT c.id, c.status, c.event_seq FROM steps AS s"
        f" JOIN tasks AS c ON c.parent_step_id = s.id WHERE s.task_id = :id AND {kinds}"
        " UNION ALL SELECT c.id, c.status, c.event_seq FROM below AS b"
        f" JOIN steps AS s ON s.task_id = b.id AND {kinds}"
        " JOIN tasks AS c ON c.parent_step_id = s.id"
        " WHERE b.status IN ('pending', 'running', 'paused'))"
        " SELECT t.event_seq, t.status, (SELECT sum(event_seq) FROM below),"
        " (SELECT max(w.version) FROM workflows AS w WHERE w.name = t.workflow_name)"
        " FROM tasks AS t WHERE t.id = :id",
        id=task_id,
    )
    return tuple(rows[0]) if rows else None


def latest_events(connection: Connection, task_id: str, limit: int) -> list[Found]:
    """Return the newest events of a task, the newest first."""
    names = ("seq", "type", "step_name", "step_item", "attempt", "at", "data")
    rows = connection.query(
        "SELECT e.seq, e.type, s.name, s.parallel_index, e.attempt, e.at, e.data FROM events AS e"
        " LEFT JOIN steps AS s ON s.id = e.step_id WHERE e.task_id = :id"
        " ORDER BY e.seq DESC LIMIT :limit",
        id=task_id,
        limit=limit,
    )
    return _named(names, rows)
