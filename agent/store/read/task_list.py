"""The list of tasks: its filters, a search in texts of tasks, and the waits of listed tasks.

A list is read in two steps: first the ids that a filter selects, the newest first, then the columns of
those few tasks. Each status of a filter is a branch of its own, read from the end of an index: one
condition over several statuses would sort all their tasks.

No index serves the search. `matches` therefore tests a few tasks at a time, and its caller decides how
long to continue.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from agent.core.ids import first_id_at
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.core.search_terms import folded
from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.read import activity
from agent.store.read.views import Found, delayed_events, named, selected

_LISTED: Final = (
    "id",
    "workflow_name",
    "workflow_version",
    "status",
    "priority",
    "created_at",
    "started_at",
    "ended_at",
    "error",
    "pause_reason",
    "pause_kind",
    "pause_command",
    "trigger_id",
    "parent_task_id",
)
_TASK_TEXTS: Final = ("t.input", "t.workflow_name", "t.error", "t.pause_reason", "t.trigger_id")
_STEP_TEXTS: Final = ("s.output", "s.error")
PRINTED_SIGNS: Final = "=:'"
"""What lists print between stored texts: `amount=250`, `pay: no money`, `the signal 'go'`."""
_MOST_FOLDED: Final = 10_000
"""Characters of a text that are compared without accents."""
_SHOWN_INPUT: Final = 4000
"""Characters of an input that a list reads: inputs may be large, and a list has many."""
_OPEN: Final = "('pending', 'running', 'paused')"


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list; an empty filter selects all."""

    statuses: tuple[str, ...] = ()
    """Stored statuses; a task has one."""
    activities: tuple[str, ...] = ()
    """As the statuses, except that some running tasks are `waiting`."""
    workflow: str | None = None
    trigger: str | None = None
    """The id of the schedule or watcher that started them."""
    since: int | None = None
    """Created at this instant or later, in microseconds."""
    part_of_id: str | None = None
    """The beginning or the end of their ids."""
    search: str | None = None
    """A text in what lists print of a task, or in its input, its error, or an output or error of a step."""


def ids(
    connection: Connection, wanted: TaskFilter, limit: int, before: str | None = None
) -> list[str]:
    """Return the ids of the newest tasks that a filter selects, without its search."""
    statement, params = _selection(connection.sql, wanted, before)
    return [str(task_id) for (task_id,) in connection.query(statement, limit=limit, **params)]


def matches(
    connection: Connection, wanted: TaskFilter, limit: int, before: str | None
) -> list[tuple[str, bool, bool]]:
    """Return the newest tasks that a filter selects: (id, whether its search finds it, whether `texts` may).

    A database folds the case of ASCII letters only, and no accents.
    """
    sql = connection.sql
    statement, params = _selection(sql, wanted, before)
    patterns = _patterns(wanted.search or "")
    params |= {f"pattern{number}": pattern for number, pattern in enumerate(patterns)}

    def has_text(*columns: str) -> str:
        return " OR ".join(
            f"{column} {sql.like_any_case} :pattern{number} ESCAPE '\\'"
            for column in columns
            for number in range(len(patterns))
        )

    is_printed = any(sign in (wanted.search or "") for sign in PRINTED_SIGNS)
    beyond = " OR ".join(map(sql.beyond_ascii, _TASK_TEXTS))
    beyond_of_step = " OR ".join(map(sql.beyond_ascii, _STEP_TEXTS))
    of_steps = "EXISTS (SELECT 1 FROM steps AS s WHERE s.task_id = t.id AND"
    rows = connection.query(
        f"SELECT t.id, {has_text(*_TASK_TEXTS)} OR {of_steps} ({has_text(*_STEP_TEXTS)}"
        f" OR s.status = 'failed' AND ({has_text('s.name')})"
        f" OR s.status = 'waiting' AND ({has_text('s.waiting_on')})))"
        " OR EXISTS (SELECT 1 FROM approvals AS a WHERE a.task_id = t.id AND a.status = 'pending'"
        f" AND ({has_text('a.message')})),"
        f" {'true' if is_printed else f'{beyond} OR {of_steps} ({beyond_of_step}))'}"
        f" FROM ({statement}) AS found JOIN tasks AS t ON t.id = found.id ORDER BY t.id DESC",
        limit=limit,
        **params,
    )
    return [(str(task_id), bool(is_found), bool(may)) for task_id, is_found, may in rows]


def texts(connection: Connection, task_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the texts of tasks that a search looks through; of long ones the beginning."""
    found: dict[str, list[str]] = {}
    for columns, source in (
        (_TASK_TEXTS, "tasks AS t WHERE t.id"),
        (_STEP_TEXTS, "steps AS s WHERE s.task_id"),
        (("a.message",), "approvals AS a WHERE a.status = 'pending' AND a.task_id"),
    ):
        id_column = source.rpartition(" ")[2]
        shown = ", ".join(f"substr({column}, 1, {_MOST_FOLDED})" for column in columns)
        rows = connection.query(
            f"SELECT {id_column}, {shown} FROM {source} IN {connection.sql.ids()}",
            ids=json.dumps(list(task_ids)),
        )
        for task_id, *values in rows:
            found.setdefault(str(task_id), []).extend(value or "" for value in values)
    return found


def count(connection: Connection, wanted: TaskFilter, most: int) -> int:
    """Return how many tasks a filter selects, without its search; no more than `most`."""
    branches, params = _branches(connection.sql, wanted, None)
    counted = " UNION ALL ".join(
        f"SELECT 1 FROM (SELECT 1 FROM tasks AS t WHERE {branch} LIMIT :most) AS b{number}"
        for number, branch in enumerate(branches)
    )
    ((count,),) = connection.query(
        f"SELECT count(*) FROM ({counted}) AS every", most=most, **params
    )
    return min(int(count), most)


def rows(connection: Connection, task_ids: Sequence[str]) -> list[Found]:
    """Return the listed columns of tasks, the newest first."""
    # Only the latest events are searched: this is about the current state.
    delay = (
        f"(SELECT e.data {delayed_events('t.id')} AND t.status = 'running'"
        " AND e.seq > t.event_seq - 500 ORDER BY e.seq DESC LIMIT 1)"
    )
    extra = {
        "input": f"substr(t.input, 1, {_SHOWN_INPUT})",
        "trigger": f'substr(t."trigger", 1, {_SHOWN_INPUT})',
        "delay": delay,
        "activity": activity.expression(connection.sql, "t"),
    }
    rows = connection.query(
        f"SELECT {selected(_LISTED, 't')}, {', '.join(extra.values())} FROM tasks AS t"
        f" WHERE t.id IN {connection.sql.ids()} ORDER BY t.id DESC",
        ids=json.dumps(list(task_ids)),
    )
    return named((*_LISTED, *extra), rows)


# The first letters of the key of a stored wait tell its type; a step between two attempts has none.
_KIND: Final = "CASE WHEN s.status = 'pending' THEN 'retry' ELSE substr(s.waiting_on, 3, 5) END"
_WAITS: Final = (
    "s.status = 'waiting' OR s.status = 'pending' AND s.attempt > 1 AND s.wake_at IS NOT NULL"
)


def waits(connection: Connection, task_ids: Sequence[str]) -> list[Found]:
    """Return the waits of tasks' steps: a row for each task and kind of wait, with the first one.

    `wait` is the stored wait that is first by its text, and so the earliest of timers.
    """
    rows = connection.query(
        "SELECT s.task_id, count(*), min(s.waiting_on), min(s.wake_at)"
        f" FROM steps AS s WHERE s.task_id IN {connection.sql.ids()} AND ({_WAITS})"
        f" GROUP BY s.task_id, {_KIND} ORDER BY s.task_id, {_KIND}",
        ids=json.dumps(list(task_ids)),
    )
    return named(("task_id", "count", "wait", "wake_at"), rows)


def open_descendants(connection: Connection, task_ids: Sequence[str]) -> list[Found]:
    """Return the open children of tasks, and theirs: (root, id, status)."""
    rows = connection.query(
        "WITH RECURSIVE family(root, id, status) AS ("
        "SELECT s.task_id, t.id, t.status FROM steps AS s JOIN tasks AS t ON t.parent_step_id = s.id"
        f" WHERE s.task_id IN {connection.sql.ids()} AND s.status = 'waiting' AND t.status IN {_OPEN}"
        " UNION ALL SELECT f.root, t.id, t.status FROM family AS f"
        " JOIN steps AS s ON s.task_id = f.id JOIN tasks AS t ON t.parent_step_id = s.id"
        f" WHERE s.status = 'waiting' AND t.status IN {_OPEN})"
        " SELECT root, id, status FROM family ORDER BY id",
        ids=json.dumps(list(task_ids)),
    )
    return named(("root", "id", "status"), rows)


def questions(connection: Connection, approval_ids: Sequence[str]) -> dict[str, str]:
    """Return the messages of approvals by id."""
    return dict(
        connection.query(
            f"SELECT id, message FROM approvals WHERE id IN {connection.sql.ids()}",
            ids=json.dumps(list(approval_ids)),
        )
    )


def _selection(sql: Sql, wanted: TaskFilter, before: str | None) -> tuple[str, dict[str, Any]]:
    """Return the statement that selects ids, the newest first, up to `:limit`."""
    branches, params = _branches(sql, wanted, before)
    parts = [
        f"SELECT id FROM (SELECT t.id FROM tasks AS t WHERE {branch}"
        f" ORDER BY t.id DESC LIMIT :limit) AS b{number}"
        for number, branch in enumerate(branches)
    ]
    return f"{' UNION ALL '.join(parts)} ORDER BY id DESC LIMIT :limit", params


def _branches(sql: Sql, wanted: TaskFilter, before: str | None) -> tuple[list[str], dict[str, Any]]:
    """Return conditions and their parameters; each selected task meets exactly one condition."""
    params: dict[str, Any] = {}
    shared = []
    if before is not None:
        shared.append("t.id < :before")
        params["before"] = before
    if wanted.since is not None:
        # Ids are in the order of creation: the primary key finds the first one.
        shared.append("t.id >= :first_id")
        params["first_id"] = first_id_at(wanted.since)
    if wanted.workflow is not None:
        shared.append("t.workflow_name = :workflow")
        params["workflow"] = wanted.workflow
    if wanted.trigger is not None:
        shared.append("t.trigger_id = :trigger")
        params["trigger"] = wanted.trigger
    if wanted.part_of_id is not None:
        shared.append("(t.id LIKE :begins OR t.id LIKE :ends)")
        params |= {"begins": f"{wanted.part_of_id}%", "ends": f"%{wanted.part_of_id}"}
    states = _state_conditions(sql, wanted)
    return [" AND ".join([*state, *shared]) or "true" for state in states], params


def _state_conditions(sql: Sql, wanted: TaskFilter) -> list[list[str]]:
    statuses = [TaskStatus(status) for status in dict.fromkeys(wanted.statuses)]
    if not wanted.activities:
        return [[f"t.status = '{status}'"] for status in statuses] or [[]]
    either = " OR ".join(f"t.status = '{status}'" for status in statuses)
    also = [f"({either})"] if statuses else []
    return [
        [activity.condition(sql, "t", wanted_activity), *also]
        for wanted_activity in dict.fromkeys(wanted.activities)
    ]


def _patterns(text: str) -> list[str]:
    """Return LIKE patterns for a text as it stands in stored JSON."""
    variants = [text]
    if not text.isascii():
        # SQLite folds the case of ASCII letters only, and so does PostgreSQL in the locale C.
        variants = list(
            dict.fromkeys((text, text.lower(), text.upper(), text.title(), folded(text)))
        )
    return [f"%{_escaped(variant)}%" for variant in variants]


def _escaped(text: str) -> str:
    stored = json.dumps(text, ensure_ascii=False)[1:-1]
    for special in ("\\", "%", "_"):
        stored = stored.replace(special, f"\\{special}")
    return stored


def failed_steps(connection: Connection, task_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the first failed step of each of some tasks: its name and its stored error."""
    rows = connection.query(
        "SELECT s.task_id, s.name, s.parallel_index, s.error FROM tasks AS t JOIN steps AS s"
        " ON s.id = (SELECT f.id FROM steps AS f WHERE f.task_id = t.id AND f.status = 'failed'"
        ' ORDER BY f."index", f.parallel_index DESC LIMIT 1)'
        f" WHERE t.id IN {connection.sql.ids()}",
        ids=json.dumps(list(task_ids)),
    )
    return {
        str(task_id): (f"{name}[{item}]" if item >= 0 else str(name), str(error or "null"))
        for task_id, name, item, error in rows
    }


def step_counts(connection: Connection, task_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return how many steps of each of some tasks have each status, items not counted."""
    rows = connection.query(
        "SELECT task_id, status, count(*) FROM steps WHERE parallel_index < 0"
        f" AND task_id IN {connection.sql.ids()} GROUP BY task_id, status",
        ids=json.dumps(list(task_ids)),
    )
    counts: dict[str, dict[str, int]] = {}
    for task_id, status, number in rows:
        counts.setdefault(str(task_id), {})[str(status)] = int(number)
    return counts
