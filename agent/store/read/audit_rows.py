"""Everything a database says of some tasks, read whole, for whoever checks it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from agent.core import waits
from agent.core.waits import Wait
from agent.store.db.database import Connection, Row

TASKS_AT_ONCE = 1000
EVENTS_AT_ONCE = 20_000
"""A wide task has thousands of rows: few such are held in memory at a time."""

_IDS_AT_ONCE: Final = 1000

_WRITTEN: Final = {
    "tasks": ("input", "output", "error", "trigger", "pause_reason"),
    "steps": ("waiting_on", "checkpoint", "output", "error", "item", "items"),
    "tool_calls": ("request", "response", "error"),
    "events": ("data",),
    "step_logs": ("text",),
    "signals": ("payload",),
    "approvals": ("message", "request", "comment", "value", "edits"),
}
"""Where values of users are written down; definitions are users' own files."""


@dataclass(slots=True)
class TaskFacts:
    """A task's row, without its values."""

    id: str
    status: str
    workflow_name: str
    workflow_version: int
    next_wake_time: int | None
    deadline: int | None
    steps_open: int
    steps_running: int
    steps_failed: int
    steps_held: int
    places_taken: int
    phase: str
    event_seq: int
    is_continuation: bool
    """Whether it went on from another task: a retry or a fork."""
    has_error: bool
    ended_at: int | None


@dataclass(slots=True)
class StepFacts:
    """A step's row, without its values: first what steps of like tasks have in common."""

    id: str
    task_id: str
    index: int
    parallel_index: int
    name: str
    kind: str
    status: str
    attempt: int
    max_attempts: int
    deps_remaining: int
    deps_failed: int
    wake_at: int | None
    held: int
    placed: int
    alone: int
    owner: str | None
    claim_token: int
    claim_turn: int | None
    skip_reason: str | None
    parallel_count: int | None
    items_done: int
    items_placed: int
    items_ended: int
    items_failed: int
    owner_turn: int | None
    """The last turn of its owner that landed; null when there is no such worker."""
    waiting_on: str | None
    idempotency_key: str | None
    process_id: int | None
    process_started: str | None
    ended_at: int | None

    @property
    def is_item(self) -> bool:
        """Whether this is one of a group's items."""
        return self.parallel_index >= 0

    @property
    def is_group(self) -> bool:
        """Whether this is a group whose items have been decided."""
        return self.parallel_index < 0 and self.parallel_count is not None

    @property
    def title(self) -> str:
        """Its name as people write it: an item has its number."""
        return f"{self.name}[{self.parallel_index}]" if self.is_item else self.name

    @property
    def wait(self) -> Wait | None:
        """What it waits on, or waited on last."""
        return waits.parse(self.waiting_on)


STEP_COLUMNS: Final = {field.name: place for place, field in enumerate(fields(StepFacts))}
"""Where each field stands in a row of steps."""
_KEY: Final = STEP_COLUMNS["idempotency_key"]
_PROCESS: Final = STEP_COLUMNS["process_id"]


@dataclass(slots=True)
class EventFacts:
    """One event of a task."""

    task_id: str
    seq: int
    type: str
    step_id: str | None
    attempt: int | None
    data: str | None

    def document(self) -> dict[str, Any]:
        """Return the event's data."""
        data: dict[str, Any] = json.loads(self.data) if self.data else {}
        return data


@dataclass(slots=True)
class CallFacts:
    """One call, with its row of the ledger; what is of the ledger is null when it has none."""

    task_id: str
    id: str
    step_id: str
    number: int
    attempt: int
    action: str
    idempotency_key: str
    request_hash: str
    remote_key: str
    on_unknown: str
    model: str | None
    tokens_used: int | None
    """Null while what a call of a model used is not known."""
    microusd_used: int | None
    tokens_reserved: int | None
    microusd_reserved: int | None
    status: str | None
    resolved_at: int | None
    error: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether it failed for good."""
        is_failed = self.status == "failed" and self.error is not None
        return is_failed and json.loads(self.error or "{}").get("final") is True


@dataclass(frozen=True, slots=True)
class ApprovalFacts:
    """One question to a person, and whether it was decided."""

    task_id: str
    id: str
    step_id: str
    kind: str
    status: str
    request: str
    request_hash: str
    approved_hash: str | None
    edits: str | None
    renews: str | None
    who: str | None
    decided_by: str | None
    decided_channel: str | None
    decided_at: int | None


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """What a task, or one of its steps, may use of models, and what is taken of it."""

    task_id: str
    id: str
    tokens_limit: int | None
    microusd_limit: int | None
    tokens_used: int
    microusd_used: int
    tokens_reserved: int
    microusd_reserved: int

    @property
    def step_index(self) -> int | None:
        """The place of the step whose own budget it is; null for the task's."""
        _, slash, index = self.id.partition("/")
        return int(index) if slash else None


@dataclass(slots=True)
class AuditRows:
    """One task with all that belongs to it."""

    task: TaskFacts
    read_at: int
    """The instant at which all of it was read, by the database's clock."""
    step_rows: list[Row] = field(default_factory=list)
    """The fields of `StepFacts` in order, for code that needs no names."""
    event_rows: list[Row] = field(default_factory=list)
    """The fields of `EventFacts`."""
    calls: list[CallFacts] = field(default_factory=list)
    approvals: list[ApprovalFacts] = field(default_factory=list)
    budgets: list[BudgetFacts] = field(default_factory=list)
    children: set[str] = field(default_factory=set)
    """Tasks that its steps have started."""
    _steps: list[StepFacts] | None = None
    _events: list[EventFacts] | None = None

    @property
    def steps(self) -> list[StepFacts]:
        """Its steps in the order of their places."""
        if self._steps is None:
            self._steps = [StepFacts(*row) for row in self.step_rows]
        return self._steps

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its steps and their events belongs to it."""
        return not (self.calls or self.approvals or self.budgets) and all(
            row[_KEY] is None and row[_PROCESS] is None for row in self.step_rows
        )

    @property
    def events(self) -> list[EventFacts]:
        """Its events in their order."""
        if self._events is None:
            self._events = [EventFacts(*row) for row in self.event_rows]
        return self._events


def collect(connection: Connection, since: int | None = None) -> Iterator[AuditRows]:
    """Yield every task, some at a time, each as it was at one moment.

    With `since`, only those that have not ended before that instant.
    """
    last = ""
    while True:
        if connection.in_transaction:
            page = _page(connection, last, since)
        else:
            # A snapshot a page: a long one would keep the database from tidying up.
            with connection.snapshot():
                page = _page(connection, last, since)
        if not page:
            return
        yield from page
        last = page[-1].task.id


def task_count(connection: Connection, since: int | None = None) -> int:
    """Return how many tasks there are, or how many have not ended before an instant."""
    condition, params = _changed(since)
    ((count,),) = connection.query(f"SELECT count(*) FROM tasks AS t WHERE {condition}", **params)
    return int(count)


def created_at(connection: Connection, task_id: str) -> int | None:
    """Return when a task was created; None if it is gone."""
    rows = connection.query("SELECT created_at FROM tasks WHERE id = :id", id=task_id)
    return int(rows[0][0]) if rows else None


def definition(connection: Connection, name: str, version: int) -> str | None:
    """Return a version of a workflow, as it is stored."""
    rows = connection.query(
        "SELECT graph FROM workflows WHERE name = :name AND version = :version",
        name=name,
        version=version,
    )
    return str(rows[0][0]) if rows else None


def duplicates(connection: Connection) -> list[tuple[str, int]]:
    """Return (dedupe key, count) of what was delivered once and became several tasks."""
    found = connection.query(
        "SELECT dedupe_key, count(*) FROM tasks WHERE dedupe_key IS NOT NULL"
        " GROUP BY dedupe_key HAVING count(*) > 1 ORDER BY dedupe_key"
    )
    return [(str(key), int(count)) for key, count in found]


def several_retries(connection: Connection) -> list[tuple[str, int]]:
    """Return (id, count) of tasks that were retried more than once: each retry does the same work."""
    found = connection.query(
        "SELECT retry_of, count(*) FROM tasks WHERE retry_of IS NOT NULL"
        " GROUP BY retry_of HAVING count(*) > 1 ORDER BY retry_of"
    )
    return [(str(task_id), int(count)) for task_id, count in found]


def absent(connection: Connection, task_ids: Sequence[str]) -> list[str]:
    """Return those of some tasks that are not there."""
    there: set[str] = set()
    for start in range(0, len(task_ids), _IDS_AT_ONCE):
        page = task_ids[start : start + _IDS_AT_ONCE]
        there |= {
            str(row[0]) for row in _of(connection, "SELECT id FROM tasks WHERE id IN {ids}", page)
        }
    return [task_id for task_id in task_ids if task_id not in there]


def graphs(connection: Connection) -> Iterator[str]:
    """Yield every version of every definition, as it is stored."""
    for name, version in connection.query("SELECT name, version FROM workflows"):
        ((graph,),) = connection.query(
            "SELECT graph FROM workflows WHERE name = :name AND version = :version",
            name=name,
            version=version,
        )
        yield str(graph)


def mentions(connection: Connection, text: str) -> list[tuple[str, str, int]]:
    """Return (table, column, count) of the places where a text is written."""
    found = []
    for table, columns in _WRITTEN.items():
        counts = ", ".join(
            f"count(CASE WHEN {connection.sql.position}({column}, :text) > 0 THEN 1 END)"
            for column in columns
        )
        (row,) = connection.query(f"SELECT {counts} FROM {table}", text=text)
        found += [
            (table, column, int(count)) for column, count in zip(columns, row, strict=True) if count
        ]
    return found


def stray_ledger_rows(connection: Connection) -> list[str]:
    """Return the keys of the ledger's rows that belong to no call."""
    found = connection.query(
        "SELECT o.idempotency_key FROM idempotency_outcomes AS o"
        " LEFT JOIN tool_calls AS c ON c.id = o.tool_call_id"
        " AND c.idempotency_key = o.idempotency_key WHERE c.id IS NULL"
    )
    return [str(key) for (key,) in found]


def days(connection: Connection) -> list[tuple[str, int, int]]:
    """Return (amount, what the days hold of it, what the calls of models say), for each amount.

    Both at one moment. A time is known as soon as its call's end was seen, whatever else it used;
    calls of before there was a budget of time have none.
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
        # What a retry has taken over was paid for by the task that it retries.
        f" (SELECT {calls} FROM tool_calls AS c WHERE c.model IS NOT NULL AND c.attempt > 0) AS c"
    )
    amounts = iter(int(amount) for amount in row)
    return [(name, next(amounts), next(amounts)) for name in used]


def isolated_together(connection: Connection, isolated: int) -> list[tuple[str, int]]:
    """Return (worker, number of steps) of workers that run several isolated steps."""
    found = connection.query(
        "SELECT owner, count(*) FROM steps WHERE owner IS NOT NULL AND alone = :isolated"
        " GROUP BY owner HAVING count(*) > 1 ORDER BY owner",
        isolated=isolated,
    )
    return [(worker_id, count) for worker_id, count in found]


def commits_after_death(connection: Connection) -> list[tuple[str, int, int]]:
    """Return (worker, its turn when it was declared dead, its turn now) of those that went on."""
    ends = connection.query(
        "SELECT data FROM events WHERE task_id IS NULL"
        " AND type IN ('worker.died', 'worker.stopped') ORDER BY id"
    )
    # After the ends: a worker that dies in between is not taken for one that went on.
    turns: dict[str, int] = dict(connection.query("SELECT id, turn FROM workers WHERE dead = 1"))
    told = [json.loads(data) for (data,) in ends]
    return [
        (end["worker"], end["turn"], turns[end["worker"]])
        for end in told
        if "turn" in end and turns.get(end["worker"], end["turn"]) != end["turn"]
    ]


def _changed(since: int | None) -> tuple[str, dict[str, Any]]:
    """Return the condition on tasks that did not end before an instant, and its parameters."""
    if since is None:
        return "true", {}
    return "(t.ended_at IS NULL OR t.ended_at >= :since)", {"since": since}


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
        # All tasks of a range are quicker read as that than one by one.
        first, end = next(iter(page)), next(reversed(page))
        _read(connection, page, None if since is not None else (first, end))
    return list(page.values())


def _read(connection: Connection, page: dict[str, AuditRows], span: tuple[str, str] | None) -> None:
    """Add to tasks what belongs to them; rows whose task is gone belong to none."""

    def of(sql: str) -> list[Row]:
        if span is None:
            return _of(connection, sql.replace("{within}", "IN {ids}"), list(page))
        between = "BETWEEN :first AND :end"
        return connection.query(sql.replace("{within}", between), first=span[0], end=span[1])

    for row in of(
        'SELECT s.id, s.task_id, s."index", s.parallel_index, s.name, s.kind, s.status, s.attempt,'
        " s.max_attempts, s.deps_remaining, s.deps_failed, s.wake_at, s.held, s.placed, s.alone,"
        " s.owner, s.claim_token, s.claim_turn, s.skip_reason, s.parallel_count, s.items_done,"
        " s.items_placed, s.items_ended, s.items_failed, w.turn, s.waiting_on, s.idempotency_key,"
        " s.process_id, s.process_started, s.ended_at"
        " FROM steps AS s LEFT JOIN workers AS w ON w.id = s.owner WHERE s.task_id {within}"
        ' ORDER BY s.task_id, s."index", s.parallel_index'
    ):
        if (task := page.get(row[1])) is not None:
            task.step_rows.append(row)
    for row in of(
        "SELECT task_id, seq, type, step_id, attempt, data FROM events WHERE task_id {within}"
        " ORDER BY task_id, seq"
    ):
        if (task := page.get(row[0])) is not None:
            task.event_rows.append(row)
    for row in of(
        "SELECT c.task_id, c.id, c.step_id, c.number, c.attempt, c.action, c.idempotency_key,"
        " c.request_hash, c.remote_key, c.on_unknown, c.model, c.tokens_in + c.tokens_out,"
        " c.cost_microusd, c.reserved_tokens, c.reserved_microusd, o.status, o.resolved_at, c.error"
        " FROM tool_calls AS c"
        " LEFT JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        " AND o.tool_call_id = c.id"
        " WHERE c.task_id {within} ORDER BY c.task_id, c.step_id, c.number, c.attempt, c.id"
    ):
        if (task := page.get(row[0])) is not None:
            task.calls.append(CallFacts(*row))
    for row in of(
        "SELECT task_id, id, step_id, kind, status, request, request_hash, approved_hash, edits,"
        " renews, who, decided_by, decided_channel, decided_at FROM approvals"
        " WHERE task_id {within} ORDER BY task_id, id"
    ):
        if (task := page.get(row[0])) is not None:
            task.approvals.append(ApprovalFacts(*row))
    for row in of(
        "SELECT task_id, id, tokens_limit, microusd_limit, tokens_used, microusd_used,"
        " tokens_reserved, microusd_reserved FROM budgets WHERE task_id {within} ORDER BY id"
    ):
        if (task := page.get(row[0])) is not None:
            task.budgets.append(BudgetFacts(*row))
    for task_id, child in of(
        "SELECT parent_task_id, id FROM tasks WHERE parent_step_id IN"
        " (SELECT id FROM steps WHERE task_id {within} AND kind IN ('workflow', 'agent'))"
    ):
        if task_id in page:
            page[task_id].children.add(child)


def _of(connection: Connection, sql: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    return connection.query(sql.format(ids=connection.sql.ids()), ids=json.dumps(list(ids)))
