"""The SQL of approvals: rows are inserted as pending and decided once."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from agent.core.quick_classes.quick_dataclasses import dataclass, fields_of, values_of
from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.engine.reads import Rows

TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "task_id": "text",
    "step_id": "text",
    "attempt": "int",
    "kind": "text",
    "status": "text",
    "message": "text",
    "request": "text",
    "request_hash": "text",
    "choices": "text",
    "value_schema": "text",
    "editable": "text",
    "who": "text",
    "expires_at": "int",
    "on_expiry": "text",
    "remind_at": "int",
    "remind_us": "int",
    "renews": "text",
    "decided_by": "text",
    "decided_channel": "text",
    "decided_at": "int",
    "comment": "text",
    "value": "text",
    "edits": "text",
    "approved_hash": "text",
    "created_at": "int",
}


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One row, as it is stored: JSON values are text."""

    id: str
    task_id: str
    step_id: str
    attempt: int
    kind: str
    status: str
    message: str
    request: str
    request_hash: str
    choices: str | None = None
    value_schema: str | None = None
    editable: str | None = None
    who: str | None = None
    expires_at: int | None = None
    on_expiry: str = "fail"
    remind_at: int | None = None
    remind_us: int | None = None
    renews: str | None = None
    decided_by: str | None = None
    decided_channel: str | None = None
    decided_at: int | None = None
    comment: str | None = None
    value: str | None = None
    edits: str | None = None
    approved_hash: str | None = None
    created_at: int = 0

    @property
    def wake_at(self) -> int | None:
        """When it needs a reminder or expires, whichever is first."""
        instants = [at for at in (self.expires_at, self.remind_at) if at is not None]
        return min(instants, default=None)


assert tuple(fields_of(ApprovalRow)) == tuple(TYPES)

_COLUMNS: Final = ", ".join(f"a.{name}" for name in TYPES)


@cache
def _insert(sql: Sql) -> str:
    picked = ", ".join(f"r.{name}" for name in TYPES)
    return f"INSERT INTO approvals ({', '.join(TYPES)}) SELECT {picked} FROM {sql.rows(**TYPES)}"


def insert(tx: Connection, rows: Iterable[ApprovalRow]) -> None:
    """Insert approvals, in the transaction that parks the steps which wait on them."""
    values = [tuple(values_of(row).values()) for row in rows]
    tx.defer(_insert(tx.sql), rows=json.dumps(values, ensure_ascii=False))


def decide(tx: Connection, approval_id: str, status: str, now: int, **decided: Any) -> bool:
    """Decide a pending approval; False if it was decided before: the first answer counts."""
    assignments = "".join(f", {name} = :{name}" for name in decided)
    changed = tx.execute(
        f"UPDATE approvals SET status = :status, decided_at = :now{assignments}"
        " WHERE id = :id AND status = 'pending'",
        id=approval_id,
        status=status,
        now=now,
        **decided,
    )
    return changed == 1


@cache
def _withdraw(sql: Sql) -> str:
    return (
        "UPDATE approvals SET status = 'withdrawn', decided_at = :now"
        f" WHERE id IN {sql.ids()} AND status = 'pending'"
    )


def withdraw(tx: Connection, approval_ids: Sequence[str], now: int) -> None:
    """Withdraw approvals that no step waits on any more."""
    tx.defer(_withdraw(tx.sql), ids=json.dumps(list(approval_ids)), now=now)


def set_reminder(tx: Connection, approval_id: str, remind_at: int | None) -> None:
    """Plan the next reminder."""
    tx.execute(
        "UPDATE approvals SET remind_at = :at WHERE id = :id AND status = 'pending'",
        at=remind_at,
        id=approval_id,
    )


def set_times(tx: Connection, row: ApprovalRow) -> None:
    """Write when a pending approval was requested, is due for a reminder, and expires."""
    tx.execute(
        "UPDATE approvals SET created_at = :created_at, remind_at = :remind_at,"
        " expires_at = :expires_at WHERE id = :id AND status = 'pending'",
        created_at=row.created_at,
        remind_at=row.remind_at,
        expires_at=row.expires_at,
        id=row.id,
    )


def find(connection: Connection, approval_id: str) -> ApprovalRow | None:
    """Return one row."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM approvals AS a WHERE a.id = :id", id=approval_id
    )
    return ApprovalRow(*rows[0]) if rows else None


def created_at(connection: Connection, approval_id: str) -> int:
    """Return when an approval was requested."""
    ((instant,),) = connection.query(
        "SELECT created_at FROM approvals WHERE id = :id", id=approval_id
    )
    return int(instant)


def like(connection: Connection, text: str) -> list[str]:
    """Return a few approvals whose ids are, begin with, or end with a text."""
    exact = connection.query("SELECT id FROM approvals WHERE id = :text", text=text)
    if exact:
        return [str(exact[0][0])]
    rows = connection.query(
        "SELECT id FROM approvals WHERE id LIKE :begins OR id LIKE :ends ORDER BY id DESC LIMIT 5",
        begins=f"{text}%",
        ends=f"%{text}",
    )
    return [str(approval_id) for (approval_id,) in rows]


_LISTED: Final = (
    f"SELECT {_COLUMNS}, t.workflow_name, t.status, s.name, s.parallel_index FROM approvals AS a"
    " JOIN tasks AS t ON t.id = a.task_id JOIN steps AS s ON s.id = a.step_id"
)


def listed(
    connection: Connection,
    *,
    is_all: bool,
    limit: int,
    task_id: str | None = None,
    task_ids: Sequence[str] | None = None,
    after: str | None = None,
    like: str | None = None,
) -> list[tuple[ApprovalRow, str, str, str, int]]:
    """Return approvals with their workflow, its task's status, and the step's name and number.

    Pending ones, the oldest first; or all, the newest first. `after` is the last one of the page
    before; with `like` only those whose ids begin or end with it.
    """
    conditions = [] if is_all else ["a.status = 'pending'"]
    params: dict[str, Any] = {"limit": limit}
    if task_id is not None:
        conditions.append("a.task_id = :task_id")
        params["task_id"] = task_id
    if task_ids is not None:
        conditions.append(f"a.task_id IN {connection.sql.ids('task_ids')}")
        params["task_ids"] = json.dumps(list(task_ids))
    if after is not None:
        conditions.append(f"a.id {'<' if is_all else '>'} :after")
        params["after"] = after
    if like is not None:
        conditions.append("(a.id LIKE :begins OR a.id LIKE :ends)")
        params |= {"begins": f"{like}%", "ends": f"%{like}"}
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = " ORDER BY a.id" + (" DESC" if is_all else "")
    return _with_place(connection.query(f"{_LISTED}{where}{order} LIMIT :limit", **params))


def placed(
    connection: Connection, approval_id: str
) -> tuple[ApprovalRow, str, str, str, int] | None:
    """Return one approval as `listed` does."""
    approvals = _with_place(connection.query(f"{_LISTED} WHERE a.id = :id", id=approval_id))
    return approvals[0] if approvals else None


def recently_decided(
    connection: Connection, most: int
) -> list[tuple[ApprovalRow, str, str, str, int]]:
    """Return the approvals decided last as `listed` does, the newest decision first."""
    return _with_place(
        connection.query(
            f"{_LISTED} WHERE a.decided_at IS NOT NULL ORDER BY a.decided_at DESC LIMIT :most",
            most=most,
        )
    )


def approved_last(connection: Connection, among: int) -> dict[tuple[str, str], str]:
    """Return the last approval of each (workflow, step), among the latest decisions of all."""
    rows = connection.query(
        "SELECT t.workflow_name, s.name, a.id FROM (SELECT id, task_id, step_id, status, decided_at"
        " FROM approvals WHERE decided_at IS NOT NULL ORDER BY decided_at DESC LIMIT :among) AS a"
        " JOIN tasks AS t ON t.id = a.task_id JOIN steps AS s ON s.id = a.step_id"
        " WHERE a.status = 'approved' ORDER BY a.decided_at",
        among=among,
    )
    return {(str(workflow), str(step)): str(approval_id) for workflow, step, approval_id in rows}


def _with_place(rows: Rows) -> list[tuple[ApprovalRow, str, str, str, int]]:
    count = len(TYPES)
    return [(ApprovalRow(*row[:count]), *row[count:]) for row in rows]


def definition_of(connection: Connection, step_id: str) -> tuple[str, int, int]:
    """Return (workflow, version, step index): where a step is defined."""
    ((name, version, index),) = connection.query(
        'SELECT t.workflow_name, t.workflow_version, s."index" FROM tasks AS t'
        " JOIN steps AS s ON s.task_id = t.id WHERE s.id = :id",
        id=step_id,
    )
    return name, version, index


@cache
def _of_steps(sql: Sql) -> str:
    return (
        f"SELECT {_COLUMNS} FROM {sql.rows(id='text')} JOIN approvals AS a ON a.step_id = r.id"
        " ORDER BY a.step_id, a.id"
    )


def of_steps(connection: Connection, step_ids: Sequence[str]) -> list[ApprovalRow]:
    """Return all approvals of steps, the oldest of each first."""
    rows = json.dumps([[step_id] for step_id in step_ids])
    return [ApprovalRow(*row) for row in connection.query(_of_steps(connection.sql), rows=rows)]


def due(connection: Connection, now: int, most: int, after: str) -> Rows:
    """Return pending approvals of open tasks that need a reminder or expire, those after an id.

    Each is (task id, step id, its own id), in the order of their ids.
    """
    return connection.query(
        "SELECT a.task_id, a.step_id, a.id FROM approvals AS a JOIN tasks AS t ON t.id = a.task_id"
        " WHERE a.status = 'pending' AND (a.expires_at <= :now OR a.remind_at <= :now)"
        " AND t.status IN ('running', 'paused') AND a.id > :after ORDER BY a.id LIMIT :most",
        now=now,
        most=most,
        after=after,
    )


def decided_and_waiting(connection: Connection, since: int) -> Rows:
    """Return (task id, step id) of steps that wait on an approval decided since an instant."""
    return connection.query(
        "SELECT a.task_id, a.step_id FROM approvals AS a JOIN steps AS s ON s.id = a.step_id"
        " JOIN tasks AS t ON t.id = a.task_id WHERE a.decided_at >= :since"
        " AND s.status = 'waiting' AND t.status IN ('running', 'paused')"
        " AND s.waiting_on LIKE '%' || a.id || '%'",
        since=since,
    )


DEFERRED: Final = "remind_at IS NOT NULL AND remind_at > :now + coalesce(remind_us, 0)"
"""Whether a person has postponed a question: otherwise a reminder comes after one interval, or never."""


def deferred(connection: Connection, now: int) -> set[str]:
    """Return the pending approvals whose reminder a person has postponed."""
    rows = connection.query(
        f"SELECT id FROM approvals WHERE status = 'pending' AND {DEFERRED}", now=now
    )
    return {str(approval_id) for (approval_id,) in rows}
