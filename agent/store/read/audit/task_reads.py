"""Reads whole tasks, and questions about the whole database, for the checker.

Everything here only reads; `collect` yields each task as it was at one moment.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent.store.db.database import Connection, Row
from agent.store.read.audit.rows import (
    ApprovalFacts,
    AuditRows,
    BudgetFacts,
    CallFacts,
    TaskFacts,
)

TASKS_AT_ONCE = 1000
EVENTS_AT_ONCE = 20_000
"""Bounds a page by its events: a wide task has thousands of rows."""

_IDS_AT_ONCE: Final = 1000

_WRITTEN: Final = {
    "tasks": ("input", "output", "error", "trigger", "pause_reason"),
    "steps": ("waiting_on", "checkpoint", "output", "error", "item", "items", "state_read"),
    "tool_calls": ("request", "response", "error"),
    "events": ("data",),
    "step_logs": ("text",),
    "signals": ("payload",),
    "approvals": ("message", "request", "comment", "value", "edits"),
    "triggers": ("cursor", "last_error", "problem"),
    "firings": ("key", "reason", "input", "context"),
    "memories": ("text",),
    "state_values": ("value", "written_by"),
    "state_history": ("value",),
}
"""The columns with values of users; definitions are files of their own."""
_STEPS: Final = (
    'SELECT s.id, s.task_id, s."index", s.parallel_index, s.name, s.kind, s.status, s.attempt,'
    " s.max_attempts, s.deps_remaining, s.deps_failed, s.wake_at, s.held, s.placed, s.alone,"
    " s.owner, s.claim_token, s.claim_turn, s.skip_reason, s.parallel_count, s.items_done,"
    " s.items_placed, s.items_ended, s.items_failed, w.turn, s.waiting_on, s.idempotency_key,"
    " s.process_id, s.process_started, s.ended_at"
    " FROM steps AS s LEFT JOIN workers AS w ON w.id = s.owner WHERE s.task_id {within}"
    ' ORDER BY s.task_id, s."index", s.parallel_index'
)
_EVENTS: Final = (
    "SELECT task_id, seq, type, step_id, attempt, data FROM events WHERE task_id {within}"
    " ORDER BY task_id, seq"
)
_CALLS: Final = (
    "SELECT c.task_id, c.id, c.step_id, c.number, c.attempt, c.action, c.idempotency_key,"
    " c.request_hash, c.remote_key, c.on_unknown, c.model, c.tokens_in + c.tokens_out,"
    " c.cost_microusd, c.reserved_tokens, c.reserved_microusd, o.status, o.resolved_at, c.error"
    " FROM tool_calls AS c"
    " LEFT JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
    " AND o.tool_call_id = c.id"
    " WHERE c.task_id {within} ORDER BY c.task_id, c.step_id, c.number, c.attempt, c.id"
)
_APPROVALS: Final = (
    "SELECT task_id, id, step_id, kind, status, request, request_hash, approved_hash, edits,"
    " renews, who, decided_by, decided_channel, decided_at FROM approvals"
    " WHERE task_id {within} ORDER BY task_id, id"
)
_BUDGETS: Final = (
    "SELECT task_id, id, tokens_limit, microusd_limit, tokens_used, microusd_used,"
    " tokens_reserved, microusd_reserved FROM budgets WHERE task_id {within} ORDER BY id"
)
_CHILDREN: Final = (
    "SELECT parent_task_id, id FROM tasks WHERE parent_step_id IN"
    " (SELECT id FROM steps WHERE task_id {within} AND kind IN ('workflow', 'agent'))"
)


def collect(connection: Connection, since: int | None = None) -> Iterator[AuditRows]:
    """Yield every task, some at a time, each as it was at one moment.

    With `since`, only those that have not ended before that instant.
    """
    last = ""
    while True:
        if connection.in_transaction:
            page = _page(connection, last, since)
        else:
            # One snapshot per page: a long one would keep the database from vacuuming.
            with connection.snapshot():
                page = _page(connection, last, since)
        if not page:
            return
        yield from page
        last = page[-1].task.id


def steps_with_open_gates(connection: Connection, task_id: str) -> set[str]:
    """Return the steps of a task that recorded that their gate's condition was false."""
    rows = connection.query(
        "SELECT DISTINCT step_id FROM step_logs WHERE task_id = :id AND stream = 'config'"
        " AND text LIKE '{\"open_gate\"%'",
        id=task_id,
    )
    return {str(step_id) for (step_id,) in rows}


def _page(connection: Connection, last: str, since: int | None) -> list[AuditRows]:
    condition, params = _changed(since)
    tasks = connection.query(
        "SELECT t.id, t.status, t.workflow_name, t.workflow_version, t.next_wake_time, t.deadline,"
        " t.steps_open, t.steps_running, t.steps_failed, t.steps_held, t.places_taken, t.phase,"
        " t.event_seq, t.retry_of IS NOT NULL OR t.forked_from IS NOT NULL, t.error IS NOT NULL,"
        f" t.ended_at FROM tasks AS t WHERE t.id > :last AND {condition}"
        " ORDER BY t.id LIMIT :most",
        last=last,
        most=TASKS_AT_ONCE,
        **params,
    )
    ((now,),) = connection.query(f"SELECT {connection.sql.now_us}")
    page: dict[str, AuditRows] = {}
    events = 0
    for row in tasks:
        task = TaskFacts(*row)
        events += task.event_seq
        if page and events > EVENTS_AT_ONCE:
            break
        page[task.id] = AuditRows(task, int(now))
    if page:
        # A range is quicker to read than a set of ids.
        first, end = next(iter(page)), next(reversed(page))
        _read(connection, page, None if since is not None else (first, end))
    return list(page.values())


def _read(connection: Connection, page: dict[str, AuditRows], span: tuple[str, str] | None) -> None:
    """Add to tasks their rows; rows of a task outside the page are left out."""
    for task, row in _rows_of(connection, page, span, _STEPS, task_column=1):
        task.step_rows.append(row)
    for task, row in _rows_of(connection, page, span, _EVENTS):
        task.event_rows.append(row)
    for task, row in _rows_of(connection, page, span, _CALLS):
        task.calls.append(CallFacts(*row))
    for task, row in _rows_of(connection, page, span, _APPROVALS):
        task.approvals.append(ApprovalFacts(*row))
    for task, row in _rows_of(connection, page, span, _BUDGETS):
        task.budgets.append(BudgetFacts(*row))
    for task, row in _rows_of(connection, page, span, _CHILDREN):
        task.children.add(row[1])


def _rows_of(
    connection: Connection,
    page: dict[str, AuditRows],
    span: tuple[str, str] | None,
    sql: str,
    task_column: int = 0,
) -> Iterator[tuple[AuditRows, Row]]:
    if span is None:
        rows = _query_ids(connection, sql.replace("{within}", "IN {ids}"), list(page))
    else:
        between = "BETWEEN :first AND :end"
        rows = connection.query(sql.replace("{within}", between), first=span[0], end=span[1])
    for row in rows:
        if (task := page.get(row[task_column])) is not None:
            yield task, row


def task_count(connection: Connection, since: int | None = None) -> int:
    """Return how many tasks there are, or how many have not ended before an instant."""
    condition, params = _changed(since)
    ((count,),) = connection.query(f"SELECT count(*) FROM tasks AS t WHERE {condition}", **params)
    return int(count)


def _changed(since: int | None) -> tuple[str, dict[str, Any]]:
    """Return the condition on tasks that did not end before an instant, and its parameters."""
    if since is None:
        return "true", {}
    return "(t.ended_at IS NULL OR t.ended_at >= :since)", {"since": since}


def created_at(connection: Connection, task_id: str) -> int | None:
    """Return when a task was created; None if it does not exist."""
    rows = connection.query("SELECT created_at FROM tasks WHERE id = :id", id=task_id)
    return int(rows[0][0]) if rows else None


def graph_text(connection: Connection, name: str, version: int) -> str | None:
    """Return a version of a workflow as stored."""
    rows = connection.query(
        "SELECT graph FROM workflows WHERE name = :name AND version = :version",
        name=name,
        version=version,
    )
    return str(rows[0][0]) if rows else None


def all_graphs(connection: Connection) -> Iterator[str]:
    """Yield every version of every workflow as stored."""
    for name, version in connection.query("SELECT name, version FROM workflows"):
        ((graph,),) = connection.query(
            "SELECT graph FROM workflows WHERE name = :name AND version = :version",
            name=name,
            version=version,
        )
        yield str(graph)


def duplicate_deliveries(connection: Connection) -> list[tuple[str, int]]:
    """Return (dedupe key, count) of keys with several tasks: a delivery must create one."""
    rows = connection.query(
        "SELECT dedupe_key, count(*) FROM tasks WHERE dedupe_key IS NOT NULL"
        " GROUP BY dedupe_key HAVING count(*) > 1 ORDER BY dedupe_key"
    )
    return [(str(key), int(count)) for key, count in rows]


def several_retries(connection: Connection) -> list[tuple[str, int]]:
    """Return (id, count) of tasks that were retried more than once: each retry does the same work."""
    rows = connection.query(
        "SELECT retry_of, count(*) FROM tasks WHERE retry_of IS NOT NULL"
        " GROUP BY retry_of HAVING count(*) > 1 ORDER BY retry_of"
    )
    return [(str(task_id), int(count)) for task_id, count in rows]


def missing_tasks(connection: Connection, task_ids: Sequence[str]) -> list[str]:
    """Return which of the tasks do not exist."""
    existing: set[str] = set()
    for start in range(0, len(task_ids), _IDS_AT_ONCE):
        page = task_ids[start : start + _IDS_AT_ONCE]
        existing |= {
            str(row[0])
            for row in _query_ids(connection, "SELECT id FROM tasks WHERE id IN {ids}", page)
        }
    return [task_id for task_id in task_ids if task_id not in existing]


def stray_ledger_rows(connection: Connection) -> list[str]:
    """Return the keys of the ledger's rows that belong to no call."""
    rows = connection.query(
        "SELECT o.idempotency_key FROM idempotency_outcomes AS o"
        " LEFT JOIN tool_calls AS c ON c.id = o.tool_call_id"
        " AND c.idempotency_key = o.idempotency_key WHERE c.id IS NULL"
    )
    return [str(key) for (key,) in rows]


def columns_containing(connection: Connection, text: str) -> list[tuple[str, str, int]]:
    """Return (table, column, count) of the columns that contain a text."""
    mentions = []
    for table, columns in _WRITTEN.items():
        counts = ", ".join(
            f"count(CASE WHEN {connection.sql.position}({column}, :text) > 0 THEN 1 END)"
            for column in columns
        )
        (row,) = connection.query(f"SELECT {counts} FROM {table}", text=text)
        mentions += [
            (table, column, int(count)) for column, count in zip(columns, row, strict=True) if count
        ]
    return mentions


def daily_sums(connection: Connection) -> list[tuple[str, int, int]]:
    """Return (amount, its sum over days, its sum over calls of models), for each amount, at one moment.

    The time of a call is known as soon as the call has ended. Calls from before there was a budget of
    time have none.
    """
    is_known = "c.tokens_out IS NOT NULL"
    used = {
        "tokens_used": "c.tokens_in + c.tokens_out",
        "microusd_used": "c.cost_microusd",
        "tokens_reserved": f"CASE WHEN {is_known} THEN 0 ELSE c.reserved_tokens END",
        "microusd_reserved": f"CASE WHEN {is_known} THEN 0 ELSE c.reserved_microusd END",
        "ms_used": "CASE WHEN c.reserved_ms IS NULL THEN 0 ELSE c.latency_ms END",
        "ms_reserved": "CASE WHEN c.latency_ms IS NULL THEN c.reserved_ms ELSE 0 END",
    }
    days = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in used)
    calls = ", ".join(f"coalesce(sum({sql}), 0) AS {name}" for name, sql in used.items())
    pairs = ", ".join(f"d.{name}, c.{name}" for name in used)
    (row,) = connection.query(
        f"SELECT {pairs} FROM (SELECT {days} FROM daily_spend) AS d,"
        # An inherited call was paid for by the task that the retry continues.
        f" (SELECT {calls} FROM tool_calls AS c WHERE c.model IS NOT NULL AND c.attempt > 0) AS c"
    )
    amounts = iter(int(amount) for amount in row)
    return [(name, next(amounts), next(amounts)) for name in used]


def isolated_together(connection: Connection, isolated: int) -> list[tuple[str, int]]:
    """Return (worker, number of steps) of workers that run several isolated steps."""
    rows = connection.query(
        "SELECT owner, count(*) FROM steps WHERE owner IS NOT NULL AND alone = :isolated"
        " GROUP BY owner HAVING count(*) > 1 ORDER BY owner",
        isolated=isolated,
    )
    return [(worker_id, count) for worker_id, count in rows]


def commits_after_death(connection: Connection) -> list[tuple[str, int, int]]:
    """Return (worker, its number when declared dead, its number now) of workers that committed after that."""
    ends = connection.query(
        "SELECT data FROM events WHERE task_id IS NULL"
        " AND type IN ('worker.died', 'worker.stopped') ORDER BY id"
    )
    # Read after the events: otherwise a worker that dies in between would be reported.
    tx_numbers: dict[str, int] = dict(
        connection.query("SELECT id, turn FROM workers WHERE dead = 1")
    )
    deaths = [json.loads(data) for (data,) in ends]
    return [
        (end["worker"], end["turn"], tx_numbers[end["worker"]])
        for end in deaths
        if "turn" in end and tx_numbers.get(end["worker"], end["turn"]) != end["turn"]
    ]


def _query_ids(connection: Connection, sql: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    return connection.query(sql.format(ids=connection.sql.ids()), ids=json.dumps(list(ids)))
