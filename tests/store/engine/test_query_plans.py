"""The plans of the hot statements: every statement of a commit uses an index, on both databases."""

import re
from typing import Any

from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.core.waits import Signal
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Succeeded, Waiting
from agent.store.db.database import Connection, Database
from agent.store.engine import conversation_rows, firing_rows, lineage, trigger_rows, workers
from agent.store.engine.conversation_rows import NewEntry
from agent.store.read import attention, conversation_views, task_list, views
from agent.store.read.task_list import TaskFilter
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.worker.attempts import claim_of
from agent.workflows.graph import Fanout
from tests.support.engine import RETRY, Hand, HandClock, graph, other, step
from tests.support.interventions import intend
from tests.support.statements import record_statements
from tests.support.work_bench import WorkBench, worker_step

ROWS = 20_000
TABLES = (
    "tasks", "steps", "events", "tool_calls", "idempotency_outcomes", "signals", "step_logs", "triggers",
    "firings", "conversations", "conversation_turns", "work", "context_snapshots",
)  # fmt: skip


def fill(database: Database) -> None:
    """Write many ended and waiting tasks, each with a step, an event and a call."""
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
        if database.is_sqlite
        else f"WITH n(i) AS (SELECT generate_series(1, {ROWS}))"
    )
    far = database.clock.now() + 10**6 * SECOND
    status = "CASE WHEN i % 2 = 0 THEN 'running' ELSE 'succeeded' END"
    inserts = [
        "tasks (id, status, workflow_name, workflow_version, priority, input, next_wake_time,"
        " steps_open, steps_running, steps_failed, steps_held, places_taken, phase, event_seq,"
        " depth, origin_id, created_at)"
        f" {numbers} SELECT 't' || i, {status}, 'filler', 1, i % 3, '{{}}', {far} + i,"
        " 1, 0, 0, 0, 1, 'normal', 1, 0, 't' || i, 1 FROM n",
        'steps (id, task_id, "index", parallel_index, name, kind, status, attempt, max_attempts,'
        " deps_remaining, deps_failed, wake_at, held, placed, alone, claim_token, failures,"
        " items_done, items_placed, items_ended, items_failed)"
        f" {numbers} SELECT 's' || i, 't' || i, 0, -1, 'a', 'python', 'pending', 1, 1,"
        f" 0, 0, {far} + i, 0, 1, 0, 0, 0, 0, 0, 0, 0 FROM n",
        "events (xid, task_id, seq, type, at)"
        f" {numbers} SELECT 1, 't' || i, 1, 'task.created', 1 FROM n",
        "tool_calls (id, task_id, step_id, number, attempt, action, idempotency_key, remote_key,"
        " request_hash, on_unknown, send_by, expires_at, created_at)"
        f" {numbers} SELECT 'c' || i, 't' || i, 's' || i, 1, 1, 'a', 'k' || i, 'r', 'h',"
        " 'ask', 1, 1, 1 FROM n",
        "idempotency_outcomes (idempotency_key, tool_call_id, status)"
        f" {numbers} SELECT 'k' || i, 'c' || i, 'unknown' FROM n",
    ]
    with database.connect("writer") as tx:
        with tx.transaction():
            for insert in inserts:
                tx.execute(f"INSERT INTO {insert}")
        if not database.is_sqlite:
            tx.query("ANALYZE")


def live(hand: Hand) -> None:
    """Make commits that execute every kind of statement."""
    whole = graph(
        step("a"),
        step("b", after=["a"]),
        step("each", after=["a"], fanout=Fanout(count=5, concurrency=2)),
        other("hear", "wait", config={"signal": "go"}),
        step("pay"),
        step("held"),
        step("last", after=["b", "each"]),
        max_parallel=4,
        timeout_seconds=1000.0,
    )
    task_id = hand.start(whole)
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed)
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    hand.settle({"a": RETRY, "hear": Waiting(Signal("go"))})
    result = CallResult(call_id, key, CallStatus.SUCCEEDED, 1)
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), whole, result=result)]))
    hand.succeed("pay")
    hand.succeed("a")
    hand.settle({"each": Succeeded(items=[1, 2, 3, 4, 5])})
    hand.succeed("each[0]")
    hand.committer.poll([claim_of(found) for found in hand.running.values()])
    hand.operator.signal(task_id, "go")
    hand.skip(20)
    hand.commit()
    hand.fail("b")
    while hand.names():
        hand.succeed(hand.names()[0])
    assert hand.status(task_id) == "failed"


def scans(connection: Connection, sql: str, parameters: dict[str, Any]) -> list[str]:
    """Return the lines of a statement's plan that read a whole table."""
    if connection.sql.name == "sqlite":
        lines = [row[3] for row in connection.query(f"EXPLAIN QUERY PLAN {sql}", **parameters)]
        aliases = {"s", "t", "e", "c", "o", "l", "f", "k", "w", *TABLES}
        return [line for line in lines if line.startswith("SCAN ") and line.split()[1] in aliases]
    lines = [row[0] for row in connection.query(f"EXPLAIN {sql}", **parameters)]
    pattern = re.compile(rf"Seq Scan on ({'|'.join(TABLES)})\b")
    return [line.strip() for line in lines if pattern.search(line)]


def test_no_hot_statement_reads_a_whole_table(database: Database) -> None:
    """With twenty thousand other tasks in the tables, every statement of a commit uses an index."""
    database.clock = HandClock()
    fill(database)
    hand = Hand(database)
    connection = hand.committer.connection
    asked = record_statements(connection)
    live(hand)
    explained = {
        sql: parameters
        for sql, parameters in asked.items()
        if sql.lstrip().upper().startswith(("SELECT", "UPDATE", "INSERT", "WITH"))
        and any(table in sql for table in TABLES)
    }
    # Steps without a conversation pay nothing for those of others.
    assert not any("conversation" in sql for sql in asked)
    # Nor do they for external workers.
    assert not any(re.search(r"\bwork\b|context_snapshots", sql) for sql in asked)
    kinds = {sql.split()[0] for sql in explained}
    assert kinds >= {"SELECT", "UPDATE", "INSERT"} and len(explained) > 15
    problems = {sql: found for sql in explained if (found := scans(connection, sql, asked[sql]))}
    assert problems == {}
    hand.close()


def test_queries_of_people_and_recovery_use_indexes(database: Database) -> None:
    """Takeover, the events' cursor and a task's own rows cost the same however full the tables."""
    database.clock = HandClock()
    fill(database)
    with database.connect("worker") as connection:
        without_index = scans(connection, "SELECT id FROM tasks WHERE phase = :p", {"p": "x"})
        assert without_index, "a scan of a whole table is detected"
        asked = record_statements(connection)
        views.task(connection, "t1")
        views.steps(connection, "t1")
        views.events(connection, 1, 5, None, 10)
        views.events(connection, 1, 5, "t1", 10)
        views.logs(connection, "t1", None, None, 0, 10)
        task_list.rows(connection, ["t1", "t2"])
        task_list.waits(connection, ["t1", "t2"])
        task_list.open_descendants(connection, ["t1", "t2"])
        for wanted in (
            TaskFilter(),
            TaskFilter(statuses=("failed", "canceled"), since=1),
            TaskFilter(activities=("waiting", "running", "failed")),
            TaskFilter(trigger="nightly"),
            TaskFilter(workflow="w"),
        ):
            task_list.ids(connection, wanted, 10, "t9")
            task_list.count(connection, wanted, 10)
            task_list.matches(connection, wanted, 10, "t9")
        workers.live_workers(connection)
        lineage.retried_as(connection, "t1")
        problems = {
            sql: found
            for sql, parameters in list(asked.items())
            if (found := scans(connection, sql, parameters))
        }
    # The newest tasks are read from the end of the primary key, as far as the limit goes.
    allowed = {
        "SCAN tasks USING INDEX sqlite_autoindex_tasks_1",
        "SCAN t USING COVERING INDEX sqlite_autoindex_tasks_1",
        "SCAN t",
        "SCAN f",  # the family that a recursive query has found so far
    }
    assert {line for found in problems.values() for line in found} <= allowed


def fill_conversations(database: Database) -> None:
    """Write many conversations, each with an exchange and a summary."""
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
        if database.is_sqlite
        else f"WITH n(i) AS (SELECT generate_series(1, {ROWS}))"
    )
    turns = (
        "conversation_turns (conversation, number, role, content, tokens, covers_until, created_at)"
    )
    inserts = [
        "conversations (id, last_number, forgotten_until, created_at, updated_at)"
        f" {numbers} SELECT 'c' || i, 3, 0, 1, i FROM n",
        f"{turns} {numbers} SELECT 'c' || i, 1, 'user', 'x', 1, NULL, 1 FROM n",
        f"{turns} {numbers} SELECT 'c' || i, 2, 'assistant', 'x', 1, NULL, 1 FROM n",
        f"{turns} {numbers} SELECT 'c' || i, 3, 'summary', 'x', 1, 2, 1 FROM n",
    ]
    with database.connect("writer") as tx:
        with tx.transaction():
            for insert in inserts:
                tx.execute(f"INSERT INTO {insert}")
        if not database.is_sqlite:
            tx.query("ANALYZE")


def test_conversations_use_indexes(database: Database) -> None:
    """Loading, appending, deleting and the question whose turn it is cost the same however many there are."""
    database.clock = HandClock()
    fill(database)
    fill_conversations(database)
    with database.connect("writer") as connection:
        asked = record_statements(connection)
        until = conversation_views.last_number(connection, "c7")
        assert len(conversation_views.current_entries(connection, "c7", until)) == 1
        assert conversation_views.earlier_tasks(connection, "c7", "t9") == []
        conversation_views.entries(connection, "c7", 0, 10)
        said = [NewEntry("c7", role, "x", "t1", "s1", 1) for role in ("user", "assistant")]
        said.append(NewEntry("c7", "summary", "x", "t1", "s1", 1, 3))
        with connection.transaction():
            conversation_rows.append(connection, said, 5)
        with connection.transaction():
            assert conversation_rows.forget(connection, "c7") == 6
        problems = {
            sql: found
            for sql, parameters in list(asked.items())
            if (found := scans(connection, sql, parameters))
        }
    assert problems == {}


def fill_work(database: Database) -> None:
    """Write much work that has ended, and much that is queued elsewhere."""
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
        if database.is_sqlite
        else f"WITH n(i) AS (SELECT generate_series(1, {ROWS}))"
    )
    status = "CASE WHEN i % 2 = 0 THEN 'queued' ELSE 'completed' END"
    with database.connect("writer") as tx:
        with tx.transaction():
            tx.execute(
                "INSERT INTO work (id, task_id, step_id, step_index, parallel_index, attempt, queue,"
                " priority, status, input, lease_us, start_within_us, client_token, created_at)"
                f" {numbers} SELECT 'w' || i, 't' || i, 's' || i, 0, -1, 1, 'filler' || i % 2, 1,"
                f" {status}, '{{}}', 1, 1, 'token' || i, 1 FROM n"
            )
        if not database.is_sqlite:
            tx.query("ANALYZE")


def test_calls_of_external_workers_use_indexes(database: Database) -> None:
    """Claims, heartbeats and results cost the same however much work there is and was."""
    database.clock = HandClock()
    fill(database)
    fill_work(database)
    hand = Hand(database)
    bench = WorkBench(hand)
    asked = record_statements(hand.committer.connection)
    hand.start(graph(worker_step()))
    bench.offer(is_effect=True)
    lease = bench.claim(client_token="mine")
    bench.call(lease, "running")
    bench.call(lease, "snapshot", text="1")
    bench.pass_time(30)
    bench.call(lease, "heartbeat")
    bench.pass_time(40)
    bench.complete(lease, 1)
    problems = {
        sql: found
        for sql in list(asked)
        if re.search(r"\bwork\b|context_snapshots|tasks|steps", sql)
        and (found := scans(hand.committer.connection, sql, asked[sql]))
    }
    assert problems == {}
    hand.close()


def fill_triggers(database: Database) -> None:
    """Write many triggers that are not due, each with a firing that has started."""
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
        if database.is_sqlite
        else f"WITH n(i) AS (SELECT generate_series(1, {ROWS}))"
    )
    far = database.clock.now() + 10**6 * SECOND
    # As many watchers as are promised, and schedules.
    kind = "CASE WHEN i % 20 = 0 THEN 'watch' ELSE 'schedule' END"
    inserts = [
        "triggers (id, workflow, name, kind, spec, spec_hash, timing_hash, workflow_version, status,"
        " version, next_at, anchor_at, polls, failures, created_at)"
        f" {numbers} SELECT 'filler:' || i, 'filler', 'f' || i, {kind}, '{{}}', 'h', 'h', 1,"
        f" 'active', 1, {far} + i, 1, 1, 0, 1 FROM n",
        "firings (trigger_id, key, status, task_id, due_at, recorded_at)"
        f" {numbers} SELECT 'filler:' || i, 'k', 'started', 't' || i, 1, 1 FROM n",
    ]
    with database.connect("writer") as tx:
        with tx.transaction():
            for insert in inserts:
                tx.execute(f"INSERT INTO {insert}")
        if not database.is_sqlite:
            tx.query("ANALYZE")


def test_passes_over_triggers_use_indexes(database: Database) -> None:
    """What a pass reads, and what a firing locks and reads, costs the same with many triggers."""
    database.clock = HandClock()
    fill_triggers(database)
    now, ids = database.clock.now(), ["filler:1", "filler:2"]
    with database.connect("writer") as connection:
        without_index = scans(connection, "SELECT id FROM triggers WHERE name = :n", {"n": "x"})
        assert without_index, "a scan of a whole table is detected"
        asked = record_statements(connection)
        with connection.transaction():
            assert trigger_rows.due(connection, "schedule", now, 500) == []
            assert trigger_rows.due(connection, "schedule", now, 500, set(ids)) == []
            assert trigger_rows.next_time(connection, "schedule", now) is not None
            assert firing_rows.next_release(connection, now) is None
            assert firing_rows.releasable(connection, now) == []
            assert len(trigger_rows.active_watchers(connection)) == ROWS // 20
            assert len(trigger_rows.find_all(connection, ids)) == 2
            assert len(trigger_rows.lock(connection, ids)) == 2
            trigger_rows.open_tasks(connection, ids)
            firing_rows.queued(connection, ids)
            firing_rows.taken_keys(connection, [("filler:1", "k")])
            firing_rows.known_keys(connection, "filler:1", ["k"])
            trigger_rows.last_endings(connection, "filler:1", 0, 3)
        problems = {
            sql: found
            for sql, parameters in list(asked.items())
            if (found := scans(connection, sql, parameters))
        }
    # This index has the queued firings alone.
    allowed = ("SCAN f USING INDEX firings_queued", "SCAN f USING COVERING INDEX firings_queued",
               "SCAN firings USING COVERING INDEX firings_queued")  # fmt: skip
    assert {line for found in problems.values() for line in found} <= set(allowed)


def test_what_waits_for_a_person_is_counted_without_reading_all_firings(database: Database) -> None:
    """Every page has the number: of each schedule only its latest firing is looked at."""
    fill_triggers(database)
    with database.connect("writer") as connection:
        asked = record_statements(connection)
        assert attention.count(connection, database.clock.now(), 100) == 0
        ((sql, parameters),) = list(asked.items())
        found = scans(connection, sql, parameters)
    assert [
        line for line in found if not re.match(r"SCAN t(riggers)?\b|.*Seq Scan on triggers", line)
    ] == []
