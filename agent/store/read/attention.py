"""Cases for a person besides questions: used-up budgets, failing triggers, missed schedules."""

from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.engine import approval_rows

Found = dict[str, Any]

_TRIGGER: Final = (
    "id",
    "workflow",
    "name",
    "kind",
    "status",
    "alert",
    "status",
    "pause_kind",
    "pause_reason",
    "failures",
    "problem",
    "last_error",
    "last_ok_at",
)
_MISSED: Final = ("id", "workflow", "name", "reason", "nominal_at", "until_at", "count")
_PAUSED: Final = (
    "id",
    "workflow_name",
    "pause_reason",
    "pause_command",
    "parent_task_id",
)


_USED_UP: Final = "status = 'paused' AND pause_kind = 'budget'"
_TROUBLED: Final = (
    "status <> 'removed' AND (status = 'broken' OR problem IS NOT NULL"
    " OR alert IS NOT NULL OR (pause_kind = 'failures' AND status = 'paused'))"
)
_MISSED_LAST: Final = (
    # CROSS JOIN: one firing of each schedule, by its key, and not all that are on record.
    " FROM triggers AS t CROSS JOIN firings AS f"
    " WHERE f.trigger_id = t.id AND t.kind = 'schedule' AND t.status <> 'removed' AND f.status = 'missed'"
    " AND f.key = (SELECT l.key FROM firings AS l WHERE l.trigger_id = t.id"
    " ORDER BY l.recorded_at DESC, l.nominal_at DESC LIMIT 1)"
)


def count(connection: Connection, now: int, most: int) -> int:
    """Return how much waits for a person now, of each kind no more than this many.

    A used-up budget counts once for all tasks that it pauses; a postponed question does not count.
    """
    each = (
        f"SELECT 1 FROM approvals WHERE status = 'pending' AND NOT ({approval_rows.DEFERRED})",
        # The budget of a day has no command: it pauses each task by itself.
        "SELECT DISTINCT CASE WHEN pause_command LIKE 'budget %' THEN pause_command ELSE id END"
        f" FROM tasks WHERE {_USED_UP}",
        f"SELECT 1 FROM triggers WHERE {_TROUBLED}",
        f"SELECT 1{_MISSED_LAST}",
    )
    counts = [f"(SELECT count(*) FROM ({sql} LIMIT :most) AS c{at})" for at, sql in enumerate(each)]
    ((number,),) = connection.query(f"SELECT {' + '.join(counts)}", now=now, most=most)
    return int(number)


def budget_pauses(connection: Connection, most: int) -> list[Found]:
    """Return tasks that are paused because a budget is used up, the oldest first."""
    rows = connection.query(
        f"SELECT {', '.join(_PAUSED)} FROM tasks WHERE {_USED_UP} ORDER BY id LIMIT :most",
        most=most,
    )
    return [dict(zip(_PAUSED, row, strict=True)) for row in rows]


def troubled_triggers(connection: Connection, most: int) -> list[Found]:
    """Return triggers that are broken or paused themselves, whose polls fail, or whose file has a problem."""
    rows = connection.query(
        f"SELECT {', '.join(_TRIGGER)} FROM triggers WHERE {_TROUBLED} ORDER BY id LIMIT :most",
        most=most,
    )
    return [dict(zip(_TRIGGER, row, strict=True)) for row in rows]


def missed_schedules(connection: Connection, most: int) -> list[Found]:
    """Return schedules whose latest instants were missed, and that have not run since."""
    rows = connection.query(
        f"SELECT t.id, t.workflow, t.name, f.reason, f.nominal_at, f.until_at, f.count{_MISSED_LAST}"
        " ORDER BY f.recorded_at DESC LIMIT :most",
        most=most,
    )
    return [dict(zip(_MISSED, row, strict=True)) for row in rows]
