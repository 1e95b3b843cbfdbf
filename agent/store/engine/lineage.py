"""Relations between tasks: descendants of a task, and the earlier tasks that a retry continues."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from agent.core.state_machine import STEP_ENDED, CallStatus
from agent.store.db.database import Connection

_CHILDREN: Final = "s.kind IN ('workflow', 'agent')"
_OPEN: Final = "('pending', 'running', 'paused')"
_BELOW: Final = (
    "WITH RECURSIVE below(id) AS (SELECT id FROM tasks WHERE id = :task_id"
    " UNION SELECT c.id FROM below AS b"
    f" JOIN steps AS s ON s.task_id = b.id AND {_CHILDREN}"
    " JOIN tasks AS c ON c.parent_step_id = s.id)"
)
_LINE: Final = (
    "WITH RECURSIVE line(id, before, distance) AS (SELECT id, retry_of, 0 FROM tasks"
    " WHERE id = :task_id UNION ALL SELECT t.id, t.retry_of, l.distance + 1 FROM line AS l"
    " JOIN tasks AS t ON t.id = l.before)"
)
"""A task and those that it retries, directly or through others."""


def below(tx: Connection, task_id: str) -> list[str]:
    """Return the descendants of a task, in the order of their creation."""
    rows = tx.query(
        f"{_BELOW} SELECT id FROM below WHERE id <> :task_id ORDER BY id", task_id=task_id
    )
    return [str(row[0]) for row in rows]


def open_descendant(tx: Connection, task_id: str) -> str | None:
    """Return a descendant that has not ended."""
    rows = tx.query(
        f"{_BELOW} SELECT t.id FROM below AS b JOIN tasks AS t ON t.id = b.id"
        f" WHERE t.id <> :task_id AND t.status IN {_OPEN} ORDER BY t.id LIMIT 1",
        task_id=task_id,
    )
    return str(rows[0][0]) if rows else None


def effects_alive_until(tx: Connection, task_id: str) -> int | None:
    """Return until when an unknown effect of a task or a descendant may still be running."""
    rows = tx.query(
        f"{_BELOW} SELECT max(c.expires_at) FROM below AS b"
        " JOIN tool_calls AS c ON c.task_id = b.id"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        " WHERE o.status = 'unknown'",
        task_id=task_id,
    )
    until: int | None = rows[0][0]
    return until


def has_acted(tx: Connection, task_id: str) -> bool:
    """Whether a task, a descendant or a task that it retries has made an effect, or may have."""
    rows = tx.query(
        "WITH RECURSIVE involved(id) AS (SELECT id FROM tasks WHERE id = :task_id"
        " UNION SELECT other.id FROM involved AS i JOIN tasks AS t ON t.id = i.id"
        f" LEFT JOIN steps AS s ON s.task_id = t.id AND {_CHILDREN}"
        " JOIN tasks AS other ON other.id = t.retry_of OR other.parent_step_id = s.id)"
        " SELECT DISTINCT o.status, c.error FROM involved AS i"
        " JOIN tool_calls AS c ON c.task_id = i.id"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        " WHERE c.model IS NULL",
        task_id=task_id,
    )
    return any(_may_have_acted(status, error) for status, error in rows)


def addresses_that_acted(tx: Connection, task_id: str) -> list[tuple[int, int]]:
    """Return (index, parallel index) of steps that made an effect, or may have, or whose children did."""
    rows = tx.query(
        'WITH RECURSIVE below("index", parallel_index, id) AS ('
        ' SELECT s."index", s.parallel_index, c.id FROM steps AS s'
        f" JOIN tasks AS c ON c.parent_step_id = s.id WHERE s.task_id = :task_id AND {_CHILDREN}"
        ' UNION SELECT b."index", b.parallel_index, c.id FROM below AS b'
        f" JOIN steps AS s ON s.task_id = b.id AND {_CHILDREN}"
        " JOIN tasks AS c ON c.parent_step_id = s.id),"
        ' own("index", parallel_index, key, error) AS ('
        ' SELECT s."index", s.parallel_index, c.idempotency_key, c.error FROM tool_calls AS c'
        " JOIN steps AS s ON s.id = c.step_id WHERE c.task_id = :task_id"
        ' UNION ALL SELECT b."index", b.parallel_index, c.idempotency_key, c.error FROM below AS b'
        " JOIN tool_calls AS c ON c.task_id = b.id)"
        ' SELECT DISTINCT own."index", own.parallel_index, o.status, own.error FROM own'
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = own.key",
        task_id=task_id,
    )
    addresses = {
        (int(index), int(parallel_index)): None
        for index, parallel_index, status, error in rows
        if _may_have_acted(status, error)
    }
    return list(addresses)


def steps_that_acted(tx: Connection, task_id: str) -> list[tuple[str, str, bool]]:
    """Return (name, kind, whether an item) of steps that acted in a task or in one that it retries."""
    found: dict[tuple[str, str, bool], None] = {}
    line = tx.query(f"{_LINE} SELECT id FROM line ORDER BY distance", task_id=task_id)
    for (ancestor_id,) in line:
        acted = set(addresses_that_acted(tx, ancestor_id))
        if not acted:
            continue
        names = ("name", "kind", "index", "parallel_index")
        for name, kind, index, parallel_index in steps_of(tx, names, ancestor_id):
            if (index, parallel_index) in acted:
                found[(str(name), str(kind), parallel_index >= 0)] = None
    return list(found)


def _may_have_acted(status: str, error: str | None) -> bool:
    """Whether a call has made an effect, or may have; so may a command with an exit code."""
    if status != CallStatus.FAILED:
        return True
    return error is not None and json.loads(error).get("code") == "exit_code"


def earlier_children(
    tx: Connection, task_id: str, step: str, index: int, parallel_index: int
) -> list[tuple[Any, ...]]:
    """Return (id, trigger) of a step's children in the tasks that this one retries, the latest first.

    In a task of the same version the step has the same index, which finds it by the primary index.
    """
    children = (
        "SELECT c.id, c.trigger, l.distance FROM line AS l JOIN tasks AS t ON t.id = l.id"
        " JOIN tasks AS own ON own.id = :task_id JOIN steps AS s ON s.task_id = l.id"
        " AND s.parallel_index = :parallel_index AND {same} JOIN tasks AS c"
        " ON c.parent_step_id = s.id WHERE l.distance > 0"
        " AND {version}"
    )
    same = children.format(
        same='s."index" = :index', version="t.workflow_version = own.workflow_version"
    )
    other = children.format(
        same="s.name = :step", version="t.workflow_version <> own.workflow_version"
    )
    rows = tx.query(
        f"{_LINE} SELECT id, trigger FROM ({same} UNION ALL {other}) AS f"
        " ORDER BY distance, id DESC",
        task_id=task_id,
        step=step,
        index=index,
        parallel_index=parallel_index,
    )
    return list(rows)


def retried_as(tx: Connection, task_id: str) -> str | None:
    """Return the task that retried this one."""
    rows = tx.query("SELECT id FROM tasks WHERE retry_of = :id ORDER BY id LIMIT 1", id=task_id)
    return str(rows[0][0]) if rows else None


class Ancestor(NamedTuple):
    """A task, or one that it continues."""

    id: str
    input: str
    before: str | None
    version: int


def predecessors(tx: Connection, task_id: str) -> list[Ancestor]:
    """Return a task and those that it continues, nearest first.

    The last one names a predecessor only if that was pruned.
    """
    rows = tx.query(
        "WITH RECURSIVE line(id, input, before, version, distance) AS ("
        " SELECT id, input, COALESCE(retry_of, forked_from), workflow_version, 0 FROM tasks"
        " WHERE id = :task_id UNION ALL SELECT t.id, t.input,"
        " COALESCE(t.retry_of, t.forked_from), t.workflow_version, l.distance + 1"
        " FROM line AS l JOIN tasks AS t ON t.id = l.before)"
        " SELECT id, input, before, version FROM line ORDER BY distance",
        task_id=task_id,
    )
    return [Ancestor(*row) for row in rows]


def asked_again(tx: Connection, task_id: str, step: str) -> list[str] | None:
    """Return the changes for which a step's question is asked again, or for which a task above has it asked.

    None where no earlier answer was dropped.
    """
    above: str | None = task_id
    while above is not None:
        rows = tx.query(
            "SELECT e.data, t.parent_task_id, s.name FROM tasks AS t"
            " JOIN events AS e ON e.task_id = t.id AND e.seq = 1"
            " LEFT JOIN steps AS s ON s.id = t.parent_step_id WHERE t.id = :id",
            id=above,
        )
        if not rows:
            return None
        data, above, parent_step = rows[0]
        dropped: dict[str, list[str]] = json.loads(data or "{}").get("asked_again", {})
        if step in dropped:
            return dropped[step]
        step = parent_step
    return None


class Predecessor(NamedTuple):
    """The task that another one retries, or is forked from."""

    id: str
    version: int
    is_retried: bool


def predecessor(tx: Connection, task_id: str) -> Predecessor | None:
    """Return the task that a task continues; None if there is none, or it was pruned."""
    rows = tx.query(
        "SELECT o.id, o.workflow_version, t.retry_of FROM tasks AS t"
        " JOIN tasks AS o ON o.id = COALESCE(t.retry_of, t.forked_from) WHERE t.id = :id",
        id=task_id,
    )
    return Predecessor(str(rows[0][0]), int(rows[0][1]), rows[0][2] is not None) if rows else None


def kept_steps(tx: Connection, task_id: str) -> dict[str, str]:
    """Return the steps that a task took over as ended, each with the step that it came from.

    A group that the task reopened is not among them: it ends in this task.
    """
    rows = tx.query(
        "SELECT step_id, data FROM events WHERE task_id = :id AND type = 'step.kept'", id=task_id
    )
    kept = [(str(step_id), json.loads(data)) for step_id, data in rows]
    return {step_id: str(data["from"]) for step_id, data in kept if data["status"] in STEP_ENDED}


def children_with_questions(tx: Connection, step_ids: Sequence[str]) -> dict[str, bool]:
    """Return the steps with children, and whether a descendant has a step that asks a person."""
    rows = tx.query(
        "WITH RECURSIVE below(top, id) AS ("
        f" SELECT parent_step_id, id FROM tasks WHERE parent_step_id IN {tx.sql.ids()}"
        " UNION SELECT b.top, c.id FROM below AS b"
        f" JOIN steps AS s ON s.task_id = b.id AND {_CHILDREN}"
        " JOIN tasks AS c ON c.parent_step_id = s.id)"
        " SELECT b.top, count(s.id) FROM below AS b"
        " LEFT JOIN steps AS s ON s.task_id = b.id AND s.kind IN ('approval', 'input')"
        " GROUP BY b.top",
        ids=json.dumps(list(step_ids)),
    )
    return {str(step_id): count > 0 for step_id, count in rows}


def steps_of(tx: Connection, columns: Sequence[str], task_id: str) -> list[tuple[Any, ...]]:
    """Return columns of all steps of a task, each group before its items."""
    selected = ", ".join(f'"{name}"' for name in columns)
    return tx.query(
        f'SELECT {selected} FROM steps WHERE task_id = :id ORDER BY "index", parallel_index',
        id=task_id,
    )


def steps_with_calls(tx: Connection, task_id: str) -> set[str]:
    """Return the ids of the steps of a task that have recorded a call."""
    rows = tx.query("SELECT DISTINCT step_id FROM tool_calls WHERE task_id = :id", id=task_id)
    return {str(step_id) for (step_id,) in rows}


class PastCall(NamedTuple):
    """A call of an earlier task, by its step's address."""

    step_index: int
    parallel_index: int
    number: int
    task_id: str
    action: str
    remote_key: str
    request_hash: str
    request: str
    response: str | None
    error: str | None
    on_unknown: str
    send_by: int
    expires_at: int
    status: str


_PAST_CALLS: Final = (
    'SELECT s."index", s.parallel_index, c.number, c.task_id, c.action, c.remote_key,'
    " c.request_hash, c.request, c.response, c.error, c.on_unknown, c.send_by, c.expires_at,"
    " o.status FROM tool_calls AS c JOIN steps AS s ON s.id = c.step_id"
    " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
)


def calls_of(tx: Connection, task_id: str) -> list[PastCall]:
    """Return the calls of a task in the order of their numbers and attempts."""
    rows = tx.query(
        f"{_PAST_CALLS} WHERE c.task_id = :task_id ORDER BY c.number, c.attempt, c.id",
        task_id=task_id,
    )
    return [PastCall(*row) for row in rows]


def calls_of_items(
    tx: Connection, task_id: str, step: str, first: int, last: int
) -> list[PastCall]:
    """Return the calls of a range of items in the tasks that a task retries, oldest task first."""
    rows = tx.query(
        f"{_LINE} {_PAST_CALLS} JOIN line AS l ON l.id = c.task_id WHERE l.distance > 0"
        " AND s.name = :step AND s.parallel_index BETWEEN :first AND :last"
        " ORDER BY l.distance DESC, c.number, c.attempt, c.id",
        task_id=task_id,
        step=step,
        first=first,
        last=last,
    )
    return [PastCall(*row) for row in rows]


def state_reads_of_items(
    tx: Connection, task_id: str, step: str, first: int, last: int
) -> dict[int, str]:
    """Return the values of `state` that a range of items had read in the tasks that a task retries, by item."""
    rows = tx.query(
        f"{_LINE} SELECT s.parallel_index, s.state_read FROM line AS l"
        " JOIN steps AS s ON s.task_id = l.id AND s.name = :step"
        " AND s.parallel_index BETWEEN :first AND :last"
        " WHERE l.distance > 0 AND s.state_read IS NOT NULL ORDER BY l.distance DESC",
        task_id=task_id,
        step=step,
        first=first,
        last=last,
    )
    return {int(item): str(document) for item, document in rows}


def first_claims_of_items(
    tx: Connection, task_id: str, step: str, first: int, last: int
) -> dict[int, int]:
    """Return when a range of items was first claimed in the tasks that a task retries, by item."""
    rows = tx.query(
        f"{_LINE} SELECT s.parallel_index, min(e.at) FROM line AS l"
        " JOIN steps AS s ON s.task_id = l.id AND s.name = :step"
        " AND s.parallel_index BETWEEN :first AND :last"
        " JOIN events AS e ON e.task_id = l.id AND e.step_id = s.id AND e.type = 'step.claimed'"
        " WHERE l.distance > 0 GROUP BY s.parallel_index",
        task_id=task_id,
        step=step,
        first=first,
        last=last,
    )
    return {int(item): int(at) for item, at in rows}
