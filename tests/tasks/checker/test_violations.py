"""The checker finds every kind of damage, and reports nothing for a sound database."""

import asyncio
import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from agent import bootstrap
from agent.approvals import answering
from agent.approvals.permission import terminal_user
from agent.config.execution import EngineSettings
from agent.config.models import ModelSettings
from agent.config.settings import Settings
from agent.core.clock import SECOND, Clock
from agent.models.registry import ModelRegistry, model_of
from agent.steps.process.processes import start_time
from agent.store.db.database import Database
from agent.store.db.sqlite_driver import driver
from agent.store.read.audit import task_reads as audit_reads
from agent.tasks import checker
from agent.tasks.checker import ExternalWitness
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import Committer
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import Fanout, Graph, Step
from tests.crash.shapes import once, step

PATIENCE_SECONDS = 60

DONE = Graph(
    name="done",
    steps=[
        step("one", "touch"),
        once("two", ["one"]),
        step("many", "touch", ["two"], fanout=Fanout(count=3, concurrency=2)),
    ],
    max_parallel=2,
)
FAILED = Graph(name="failed", steps=[step("broken", "fail"), step("never", "touch", ["broken"])])
WAITING = Graph(
    name="waiting",
    steps=[
        Step(name="ask", kind="wait", config={"signal": "go"}),
        step("after", "touch", ["ask"]),
    ],
)
NAPPING = Graph(name="napping", steps=[Step(name="nap", kind="wait", config={"duration": 86_400})])
CANCELED = Graph(name="canceled", steps=[Step(name="nap", kind="wait", config={"signal": "no"})])
ASKING = Graph(
    name="asking",
    steps=[Step(name="pay", kind="approval", config={"message": "Pay?", "who": ["terminal"]})],
)
MODEL = Graph(
    name="model",
    steps=[Step(name="say", kind="llm", config={"prompt": "hello", "max_tokens": 50})],
    budget={"tokens": 1000},
)
RUNNING = Graph(
    name="running",
    steps=[
        step("busy", "touch"),
        step("later", "touch", ["busy"]),
        step("away", "touch", ["busy"], executor={"name": "process"}),
    ],
)


async def _fill(database: Database) -> None:
    """Bring tasks into every state in which a checker may find them."""
    echo = ModelRegistry({"echo": model_of("echo", ModelSettings(provider="echo"))}, default="echo")
    worker = Worker(database, EngineSettings(poll_seconds=0.05), models=echo)
    running = asyncio.create_task(worker.run())
    for graph in (DONE, FAILED, WAITING, NAPPING, CANCELED, ASKING, MODEL):
        await worker.submit(Submission(graph=graph))
    with database.connect("reader") as reader:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # The worker writes to the database and sets no event of this test.
            while reader.query(  # noqa: ASYNC110
                "SELECT 1 FROM tasks AS t JOIN steps AS s ON s.task_id = t.id"
                " WHERE (t.workflow_name IN ('done', 'failed', 'model')"
                " AND t.ended_at IS NULL)"
                " OR (s.kind IN ('wait', 'approval') AND s.status <> 'waiting')"
            ):
                await asyncio.sleep(0.01)
        ((canceled,),) = reader.query("SELECT id FROM tasks WHERE workflow_name = 'canceled'")
        ((approval,),) = reader.query("SELECT id FROM approvals")
    Operator(database, database.clock).cancel(canceled)
    answering.answer(database, approval, "approve", principal=terminal_user("ann"))
    with database.connect("reader") as reader:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while reader.query(  # noqa: ASYNC110
                "SELECT 1 FROM tasks WHERE workflow_name = 'asking' AND ended_at IS NULL"
            ):
                await asyncio.sleep(0.01)
    worker.stop()
    await running


@pytest.fixture(scope="module")
def sound(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sound database with tasks in many states."""
    path = tmp_path_factory.mktemp("sound") / "agent.db"
    shutil.copyfile(sqlite_template, path)
    database = Database(f"sqlite:///{path}")
    asyncio.run(_fill(database))
    committer = Committer(database, Clock())
    committer.enroll()
    capacity = ClaimCapacity(slots=1, running=0, lease_us=60 * SECOND)
    committer.commit(Batch(submissions=[Submission(graph=RUNNING)]), capacity)
    committer.session.disconnect()
    return path


def _violations(path: Path) -> list[str]:
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        return checker.check(reader)


def test_a_sound_database_has_no_violations(sound: Path) -> None:
    """It has tasks in many states, and is read outside and inside a transaction."""
    assert _violations(sound) == []
    with Database(f"sqlite:///{sound}").connect("reader") as reader, reader.snapshot():
        assert checker.check(reader) == []


def _task(changes: str, workflow: str) -> str:
    return f"UPDATE tasks SET {changes} WHERE workflow_name = '{workflow}'"


def _step(changes: str, name: str, item: int = -1) -> str:
    return f"UPDATE steps SET {changes} WHERE name = '{name}' AND parallel_index = {item}"


def _event(changes: str, kind: str, name: str) -> str:
    return (
        f"UPDATE events SET {changes} WHERE type = '{kind}'"
        f" AND step_id IN (SELECT id FROM steps WHERE name = '{name}' AND parallel_index = -1)"
    )


def _swap(workflow: str, first: tuple[str, str], second: tuple[str, str]) -> list[str]:
    """Swap two events of a task, each named by its type and its step."""
    numbers = [
        "(SELECT min(e.seq) FROM events AS e JOIN tasks AS t ON t.id = e.task_id"
        " LEFT JOIN steps AS s ON s.id = e.step_id"
        f" WHERE t.workflow_name = '{workflow}' AND e.type = '{kind}'"
        f" AND coalesce(s.name || s.parallel_index, '') = '{step}')"
        for kind, step in (first, second)
    ]
    own = f"task_id = (SELECT id FROM tasks WHERE workflow_name = '{workflow}')"
    return [
        "CREATE TEMP TABLE swapped AS SELECT {} AS a, {} AS b".format(*numbers),
        f"UPDATE events SET seq = -1 WHERE {own} AND seq = (SELECT a FROM swapped)",
        "UPDATE events SET seq = (SELECT a FROM swapped)"
        f" WHERE {own} AND seq = (SELECT b FROM swapped)",
        f"UPDATE events SET seq = (SELECT b FROM swapped) WHERE {own} AND seq = -1",
    ]


_COPY_CALL = (
    "INSERT INTO tool_calls (id, task_id, step_id, number, attempt, action, idempotency_key,"
    " remote_key, request_hash, on_unknown, send_by, expires_at, created_at)"
    " SELECT 'another', task_id, step_id, number, {attempt}, action, 'key', remote_key,"
    " request_hash, on_unknown, send_by, expires_at, created_at FROM tool_calls LIMIT 1"
)
_COPY_OUTCOME = (
    "INSERT INTO idempotency_outcomes (idempotency_key, tool_call_id, status)"
    " VALUES ('key', 'another', 'unknown')"
)

_CLAIMED_AGAIN = (
    "INSERT INTO events (xid, task_id, seq, type, step_id, attempt, at)"
    " SELECT 0, task_id, 999, 'step.claimed', id, 2, 0 FROM steps WHERE name = 'two'"
)

DAMAGE: dict[str, tuple[list[str], str]] = {
    "no owner": ([_step("owner = NULL", "busy")], "step busy is running with owner None"),
    "no claim_turn": (
        [_step("claim_turn = NULL", "busy")],
        "a running step has both, any other neither",
    ),
    "claim kept": ([_step("owner = 'x', claim_turn = 1", "one")], "step one is succeeded with"),
    "no token": ([_step("claim_token = 0", "busy")], "step busy is running without a claim token"),
    "unknown owner": ([_step("owner = 'x'", "busy")], "which is not a worker on record"),
    "claimed in a later commit": (
        [_step("claim_turn = 9", "busy")],
        "was claimed in transaction 9",
    ),
    "steps_open": ([_task("steps_open = 7", "waiting")], "steps_open is 7"),
    "steps_running": ([_task("steps_running = 0", "running")], "steps_running is 0"),
    "steps_failed": ([_task("steps_failed = 0", "failed")], "steps_failed is 0"),
    "steps_held": ([_task("steps_held = 1", "napping")], "steps_held is 1"),
    "places_taken": ([_task("places_taken = 0", "waiting")], "places_taken is 0"),
    "items_placed": ([_step("items_placed = 2", "many")], "items_placed is 2"),
    "items_ended": ([_step("items_ended = 2", "many")], "items_ended is 2"),
    "items_done": ([_step("items_done = 2", "many")], "items_done is 2"),
    "items_failed": ([_step("items_failed = 2", "many")], "items_failed is 2"),
    "items missing": (
        ["DELETE FROM steps WHERE parallel_index = 1"],
        "the numbers of its items have gaps",
    ),
    "group not done": (
        [_step("status = 'skipped', skip_reason = 'fail_fast'", "many", 2)],
        "succeeded with 2 of 3 items done",
    ),
    "deps_remaining": ([_step("deps_remaining = 0", "after")], "and 1 have not ended"),
    "deps_failed": ([_step("deps_failed = 0", "never")], "deps_failed is 0, and 1 failed"),
    "woken late": (
        [_task("next_wake_time = next_wake_time + 3600000000", "napping")],
        "later than what is due",
    ),
    "woken early": (
        [_task("next_wake_time = next_wake_time - 3600000000", "napping")],
        "nothing is due before",
    ),
    "never woken": ([_task("next_wake_time = NULL", "napping")], "something is due at"),
    "waits on nothing": (
        [_step("waiting_on = NULL", "ask")],
        "it is running, nothing wakes it, and it waits on nothing named",
    ),
    "stuck": (
        [_step("status = 'pending', waiting_on = NULL", "ask")],
        "step ask is ready, and neither due nor held back",
    ),
    "due too soon": ([_step("wake_at = 1", "after")], "step after is due and could not be claimed"),
    "step paused in a running task": (
        [_step("status = 'paused'", "ask")],
        "paused in a running task",
    ),
    "no child": (
        [_step("""waiting_on = '{"child": "x"}', wake_at = 1""", "ask")],
        "which it did not start",
    ),
    "running after the end": (
        [_step("status = 'running', owner = 'x', claim_turn = 1", "one")],
        "it is succeeded and step one is still running",
    ),
    "placed after the end": ([_step("placed = 1", "one")], "still in the window"),
    "held after the end": ([_step("held = 1", "never")], "still held back"),
    "due after the end": ([_step("wake_at = 1", "two")], "still due"),
    "woken after the end": ([_task("next_wake_time = 1", "canceled")], "has a wake time"),
    "no end": ([_task("ended_at = NULL", "done")], "has no end time"),
    "no error": ([_task("error = NULL", "failed")], "it failed without an error"),
    "step missing": (["DELETE FROM steps WHERE name = 'later'"], "step later is missing"),
    "step renamed": ([_step("name = 'other'", "later")], "called later in the definition"),
    "no definition": (["DELETE FROM workflows WHERE name = 'done'"], "is missing or cannot be"),
    "window": (
        [
            _step("placed = 1", "one"),
            _step("placed = 1", "two"),
            _step("placed = 1", "many"),
            _task("status = 'running', places_taken = 3", "done"),
        ],
        "3 steps are in a window of 2",
    ),
    "events missing": (
        ["DELETE FROM events WHERE type = 'task.started'"],
        "without gaps",
    ),
    "status without an event": (
        [_task("status = 'failed'", "done")],
        "its events lead to succeeded",
    ),
    "step's status without an event": (
        [_step("status = 'skipped'", "one")],
        "step one is skipped, and its events lead to succeeded",
    ),
    "attempt without an event": ([_step("attempt = 2", "one")], "step one is at attempt 2"),
    "impossible event": (
        [_event("type = 'step.woken'", "step.succeeded", "one")],
        "step.woken cannot happen in state 'running'",
    ),
    "claimed before its parents": (
        [
            "UPDATE events SET seq = seq + 1000 WHERE type = 'step.succeeded'"
            " AND step_id IN (SELECT id FROM steps WHERE name = 'one')"
        ],
        "step two: claimed before the end of one was recorded",
    ),
    "claimed a moment too soon": (
        _swap("done", ("step.succeeded", "one-1"), ("step.claimed", "two-1")),
        "step two: claimed before the end of one was recorded",
    ),
    "succeeded twice": (
        [
            "UPDATE events SET seq = seq + 1 WHERE type = 'task.succeeded' AND task_id ="
            " (SELECT id FROM tasks WHERE workflow_name = 'done')",
            "INSERT INTO events (xid, task_id, seq, type, step_id, attempt, at)"
            " SELECT 0, t.id, t.event_seq, 'step.succeeded', s.id, 1, 0 FROM tasks AS t"
            " JOIN steps AS s ON s.task_id = t.id AND s.name = 'one'",
            _task("event_seq = event_seq + 1", "done"),
        ],
        "step.succeeded cannot happen in state 'succeeded'",
    ),
    "claimed after success": (
        [
            "INSERT INTO events (xid, task_id, seq, type, step_id, attempt, at)"
            " SELECT 0, task_id, 999, 'step.claimed', id, 1, 0 FROM steps WHERE name = 'one'"
        ],
        "step.claimed cannot happen in state 'succeeded'",
    ),
    "claimed after the end": (
        [
            "INSERT INTO events (xid, task_id, seq, type, step_id, attempt, at)"
            " SELECT 0, task_id, 999, 'step.claimed', id, 1, 0 FROM steps WHERE name = 'one'"
        ],
        "claimed while the task was succeeded",
    ),
    "token without a claim": (
        [_step("claim_token = 5", "one")],
        "token 5, and was claimed 1 times",
    ),
    "too many at once": (
        [
            "UPDATE events SET seq = 900 + seq WHERE type = 'step.succeeded' AND step_id IN"
            " (SELECT id FROM steps WHERE name = 'many' AND parallel_index >= 0)"
        ],
        "in a window of 2",
    ),
    "one item too many": (
        _swap("done", ("step.succeeded", "many0"), ("step.claimed", "many2")),
        "in a window of 2",
    ),
    "commit after its death": (
        ["UPDATE workers SET turn = turn + 1 WHERE dead = 1"],
        "was declared dead in transaction",
    ),
    "isolated without running": ([_step("alone = 2", "one")], "step one is isolated and succeeded"),
    "blamed for a crash elsewhere": (
        [_step("alone = 1", "away")],
        "step away runs in another process, which cannot end its worker",
    ),
    "isolated together": (
        [
            "UPDATE steps SET status = 'running', owner = 'w', claim_turn = 1, alone = 2"
            " WHERE name IN ('one', 'two')"
        ],
        "worker w runs 2 isolated steps side by side",
    ),
    "tried too often": (
        [
            _event("type = 'step.retried', data = '{}'", "step.succeeded", "one"),
            _step("max_attempts = 1", "one"),
        ],
        "tried again after attempt 1 of 1",
    ),
    "no ledger row": (["DELETE FROM idempotency_outcomes"], "has no row in the ledger"),
    "stray ledger row": (
        [
            "UPDATE idempotency_outcomes SET idempotency_key = 'x' WHERE idempotency_key IN"
            " (SELECT idempotency_key FROM steps WHERE name = 'two')"
        ],
        "the ledger's row x belongs to no call",
    ),
    "success out of nothing": (
        ["DELETE FROM events WHERE type = 'tool_call.succeeded'"],
        "is succeeded in the ledger, and its events lead to unknown",
    ),
    "resolved at no time": (["UPDATE idempotency_outcomes SET resolved_at = NULL"], "resolved at"),
    "no intent": (["DELETE FROM events WHERE type = 'tool_call.intended'"], "intended 0 times"),
    "key of another call": (
        ["UPDATE tool_calls SET request_hash = 'x'"],
        "a key that is not its own",
    ),
    "step succeeded by nothing": (
        ["UPDATE idempotency_outcomes SET status = 'failed'"],
        "step two succeeded by a call that is failed",
    ),
    "acted too often": ([_step("max_attempts = 0", "two")], "and 0 attempts may act"),
    "call of the future": ([_step("attempt = 0", "two")], "belongs to a later attempt"),
    "made twice": ([_COPY_CALL.format(attempt=1), _COPY_OUTCOME], "was made twice"),
    "repeated": (
        [
            _COPY_CALL.format(attempt=2),
            _COPY_OUTCOME,
            _CLAIMED_AGAIN,
        ],
        "repeats a call that is recorded as done in attempt 1",
    ),
    "repeated after a final failure": (
        [
            "UPDATE idempotency_outcomes SET status = 'failed'",
            """UPDATE tool_calls SET error = '{"code": "no", "final": true}'""",
            """UPDATE events SET type = 'tool_call.failed',"""
            """ data = replace(data, 'succeeded', 'failed') WHERE type = 'tool_call.succeeded'""",
            _COPY_CALL.format(attempt=2),
            _COPY_OUTCOME,
            _CLAIMED_AGAIN,
        ],
        "repeats a call that is recorded as finally failed in attempt 1",
    ),
    "another request after an unknown": (
        [
            "UPDATE idempotency_outcomes SET status = 'unknown'",
            "UPDATE tool_calls SET on_unknown = 'retry'",
            _step("kind = 'shell'", "two"),
            _COPY_CALL.format(attempt=2),
            _COPY_OUTCOME,
            "UPDATE tool_calls SET request_hash = 'x' WHERE id = 'another'",
        ],
        "differs from the request of attempt 1, whose outcome is unknown",
    ),
    "repeated blindly": (
        [
            "UPDATE idempotency_outcomes SET status = 'unknown'",
            _COPY_CALL.format(attempt=2),
            _COPY_OUTCOME,
        ],
        "whose outcome is unknown (on_unknown: ask)",
    ),
    "result before its intent": (
        ["UPDATE events SET seq = seq + 1000 WHERE type = 'tool_call.intended'"],
        "before its intent",
    ),
    "result recorded before its intent": (
        _swap("done", ("tool_call.intended", "two-1"), ("tool_call.succeeded", "")),
        "before its intent in event",
    ),
    "answer of another person": (
        ["UPDATE approvals SET decided_channel = 'api'"],
        "was decided by ann from api, and only terminal may",
    ),
    "answer without a person": (
        ["UPDATE approvals SET decided_by = NULL"],
        "was decided by None from",
    ),
    "another request than was shown": (
        ["""UPDATE approvals SET request = '{"message": "Pay more?"}'"""],
        "shows another request than its hash is of",
    ),
    "delivered twice": (
        ["DROP INDEX tasks_by_dedupe_key", "UPDATE tasks SET dedupe_key = 'hook:1'"],
        "hook:1 was delivered once, and there are 8 tasks of it",
    ),
    "retried twice": (
        ["UPDATE tasks SET retry_of = 'x' WHERE workflow_name IN ('napping', 'waiting')"],
        "task x: it was retried 2 times",
    ),
    "used more than recorded": (
        ["UPDATE budgets SET tokens_used = tokens_used - 1"],
        "its budget has tokens_used",
    ),
    "set aside for nothing": (
        ["UPDATE budgets SET tokens_reserved = 7"],
        "its budget has tokens_reserved 7, and its calls have 0",
    ),
    "asked beyond the limit": (
        ["UPDATE budgets SET tokens_limit = 10"],
        "its budget of 10 tokens was at",
    ),
    "a day's time forgotten": (
        ["UPDATE daily_spend SET ms_reserved = 0, ms_used = ms_used - 1"],
        "the budgets of days have ms_used",
    ),
    "a day's tokens forgotten": (
        ["UPDATE daily_spend SET tokens_used = tokens_used - 1"],
        "the budgets of days have tokens_used",
    ),
    "call of an unknown step": (
        ["UPDATE tool_calls SET step_id = 'x'"],
        "a step that does not exist",
    ),
}


def _found_in(name: str, sound: Path, tmp_path: Path) -> list[str]:
    """Return what is found in a copy that was damaged in this way."""
    path = tmp_path / "agent.db"
    with Database(f"sqlite:///{sound}").connect("reader") as reader:
        reader.copy_to(path)  # type: ignore[attr-defined]
    raw = driver().module.connect(str(path), isolation_level=None)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    for statement in DAMAGE[name][0]:
        is_known = raw.execute(statement).rowcount > 0 or statement.startswith(("DROP", "CREATE"))
        assert is_known, statement
    raw.close()
    return _violations(path)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str, sound: Path, tmp_path: Path) -> None:
    """Each kind of damage is reported by a sentence that names it."""
    found = _found_in(name, sound, tmp_path)
    assert any(DAMAGE[name][1] in violation for violation in found), found


@pytest.fixture(scope="module")
def patterns(sound: Path) -> checker.Patterns:
    """Return the patterns of all ended tasks of the sound database."""
    learned = checker.Patterns()
    with Database(f"sqlite:///{sound}").connect("reader") as reader:
        assert list(checker.violations(reader, patterns=learned)) == []
        for task in audit_reads.collect(reader):
            pattern = learned.of(task)
            is_to_be_learned = task.task.workflow_name in ("done", "failed", "asking", "model")
            assert (pattern is not None and learned.is_sound(pattern)) is is_to_be_learned
    return learned


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_beside_sound_tasks_of_the_same_workflow(
    name: str, sound: Path, tmp_path: Path, patterns: checker.Patterns
) -> None:
    """A task that differs slightly from others does not share their pattern."""
    without_patterns = _found_in(name, sound, tmp_path)
    path = tmp_path / "agent.db"
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        with_patterns = [str(each) for each in checker.violations(reader, patterns=patterns)]
    assert sorted(with_patterns) == sorted(without_patterns)


@pytest.mark.parametrize(
    "change",
    [
        *(
            _task(f"{name} = coalesce({name}, 0) + 1", "done")
            for name in (
                "steps_open",
                "steps_running",
                "steps_failed",
                "steps_held",
                "places_taken",
                "event_seq",
                "next_wake_time",
                "deadline",
            )
        ),
        _task("ended_at = NULL", "done"),
        _task("error = NULL", "failed"),
        _task("workflow_name = 'done'", "failed"),
        *(
            _step(f"{name} = coalesce({name}, 0) + 1", "one")
            for name in ("attempt", "deps_remaining", "deps_failed", "wake_at", "held", "placed")
        ),
        *(
            _step(f"{name} = coalesce({name}, 0) + 1", "many")
            for name in ("claim_token", "items_done", "items_placed", "items_ended", "items_failed")
        ),
        *(_step(f"{name} = 'x'", "one") for name in ("name", "kind")),
        _step("status = 'failed'", "one"),
        _step("parallel_count = 2", "many"),
        _event("attempt = 2", "step.claimed", "one"),
        _event("type = 'step.failed'", "step.succeeded", "one"),
        _event("seq = 100", "step.succeeded", "two"),
    ],
)
def test_a_pattern_covers_every_checked_column(
    change: str, sound: Path, tmp_path: Path, patterns: checker.Patterns
) -> None:
    """A difference in any column that the checks read makes another pattern."""
    path = _damaged(sound, tmp_path, change)
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        without_patterns = sorted(map(str, checker.violations(reader)))
        with_patterns = sorted(map(str, checker.violations(reader, patterns=patterns)))
    assert with_patterns == without_patterns
    assert without_patterns != []


def test_since_leaves_out_tasks_that_ended_earlier(sound: Path, tmp_path: Path) -> None:
    """Tasks that have not ended are read whatever their age."""
    path = _damaged(sound, tmp_path, "UPDATE tasks SET ended_at = 5 WHERE workflow_name = 'done'")
    raw = driver().module.connect(str(path), isolation_level=None)
    raw.execute("UPDATE steps SET attempt = 7 WHERE name IN ('one', 'ask', 'broken')")
    raw.close()
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        assert audit_reads.task_count(reader, since=6) == 7
        for since, steps in ((None, ["ask", "broken", "one"]), (6, ["ask", "broken"])):
            found = checker.violations(reader, since=since)
            assert sorted({str(violation.step) for violation in found}) == steps


def test_a_wide_task_is_read_once_and_whole(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a page of its own, however small the pages are."""
    with Database(f"sqlite:///{sound}").connect("reader") as reader:
        whole = [
            (task.task.id, task.step_rows, task.event_rows) for task in audit_reads.collect(reader)
        ]
        for name, value in (("EVENTS_AT_ONCE", 1), ("TASKS_AT_ONCE", 3)):
            monkeypatch.setattr(audit_reads, name, value)
            for since in (None, 0):
                assert whole == [
                    (task.task.id, task.step_rows, task.event_rows)
                    for task in audit_reads.collect(reader, since)
                ]


PROMISES: dict[int, list[str]] = {
    2: ["never woken", "waits on nothing", "stuck"],
    3: ["claimed after the end", "running after the end", "woken after the end"],
    4: ["claimed before its parents", "deps_remaining", "due too soon"],
    5: ["claimed after success", "succeeded twice", "repeated", "made twice", "retried twice"],
    6: [
        "events missing",
        "status without an event",
        "step's status without an event",
        "attempt without an event",
    ],
    7: [
        "token without a claim",
        "impossible event",
        "claimed in a later commit",
        "commit after its death",
    ],
    8: ["tried too often", "acted too often"],
    9: ["window", "too many at once", "asked beyond the limit", "used more than recorded"],
    10: ["no intent", "result before its intent", "success out of nothing", "repeated blindly"],
    11: ["answer of another person", "answer without a person", "another request than was shown"],
    12: ["delivered twice"],
    15: ["no owner", "no claim_turn", "claim kept", "no token"],
    16: ["isolated without running", "isolated together"],
}
"""The damage that breaks each promise; the tests below break 1, 13 and 14."""


def test_every_promise_has_damage_that_breaks_it() -> None:
    """For each of the sixteen promises some damage shows that its breach is found."""
    assert PROMISES.keys() | {1, 13, 14} == set(range(1, 17))
    assert {name for names in PROMISES.values() for name in names} <= DAMAGE.keys()


ONLY_FOUND_BY: dict[int, list[str]] = {
    2: ["never woken"],
    3: ["woken after the end", "due after the end"],
    4: ["claimed a moment too soon", "deps_failed"],
    5: ["succeeded twice", "retried twice"],
    6: ["step's status without an event", "attempt without an event"],
    7: ["token without a claim", "claimed in a later commit", "commit after its death"],
    8: ["acted too often"],
    9: ["one item too many", "asked beyond the limit", "used more than recorded"],
    10: ["result recorded before its intent"],
    11: ["answer of another person", "answer without a person", "another request than was shown"],
    12: ["delivered twice"],
    15: ["no owner", "no claim_turn"],
    16: ["isolated without running"],
}
"""Damage that only the check of that promise finds; the tests below cover 1, 13 and 14."""


@pytest.mark.parametrize("promise", ONLY_FOUND_BY, ids=str)
def test_every_check_is_the_only_one_to_find_its_damage(
    promise: int, sound: Path, tmp_path: Path
) -> None:
    """Without the check of this promise its breach would go unnoticed."""
    for number, name in enumerate(ONLY_FOUND_BY[promise]):
        directory = tmp_path / str(number)
        directory.mkdir()
        found = _found_in(name, sound, directory)
        assert found
        assert all(DAMAGE[name][1] in violation for violation in found), found


def test_every_promise_has_damage_that_only_its_check_finds() -> None:
    """The tests below cover promises 1, 13 and 14."""
    assert ONLY_FOUND_BY.keys() | {1, 13, 14} == set(range(1, 17))


def _call_of(path: Path) -> str:
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        ((key,),) = reader.query("SELECT idempotency_key FROM steps WHERE name = 'two'")
    return str(key)


def _damaged(sound: Path, tmp_path: Path, statement: str, *values: object) -> Path:
    path = tmp_path / "agent.db"
    with Database(f"sqlite:///{sound}").connect("reader") as reader:
        reader.copy_to(path)  # type: ignore[attr-defined]
    raw = driver().module.connect(str(path), isolation_level=None)
    assert raw.execute(statement, values).rowcount > 0
    raw.close()
    return path


def _held_against(path: Path, outside: ExternalWitness) -> list[str]:
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        return checker.check(reader, outside=outside)


def test_an_external_witness_confirms_a_sound_database(sound: Path) -> None:
    """Every effect that happened has its intent, and every acknowledged task exists."""
    with Database(f"sqlite:///{sound}").connect("reader") as reader:
        task_ids = [row[0] for row in reader.query("SELECT id FROM tasks")]
    assert _held_against(sound, ExternalWitness({_call_of(sound): 1}, task_ids)) == []


def test_a_contradicting_external_witness_is_reported(sound: Path, tmp_path: Path) -> None:
    """Effects that happened twice, never, without an intent or despite a failure; lost tasks."""
    key = _call_of(sound)
    assert any(
        "happened 2 times" in each for each in _held_against(sound, ExternalWitness({key: 2}))
    )
    assert any("and never happened" in each for each in _held_against(sound, ExternalWitness({})))
    stray = _held_against(sound, ExternalWitness({key: 1, "another": 1}))
    assert stray == ["an effect happened under another, and its intent is not recorded"]
    gone = _held_against(sound, ExternalWitness({key: 1}, ["gone"]))
    assert gone == ["task gone: it was acknowledged, and does not exist"]
    path = _damaged(sound, tmp_path, "UPDATE idempotency_outcomes SET status = 'failed'")
    found = _held_against(path, ExternalWitness({key: 1}))
    assert any("recorded as failed in attempt 1, and happened" in each for each in found)


def test_a_stored_secret_is_found(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets that a definition references are searched for in all tables."""
    monkeypatch.setenv("CHECKED_TOKEN", "open sesame and more")
    config = {"get": "https://example.com", "headers": {"X-Token": "env:CHECKED_TOKEN"}}
    graph = Graph(name="told", steps=[Step(name="get", kind="http", config=config)])
    path = _damaged(
        sound,
        tmp_path,
        "INSERT INTO workflows (name, version, hash, graph, created_at) VALUES ('told', 1, '', ?, 0)",
        json.dumps(graph.model_dump()),
    )
    assert _violations(path) == []
    text = "UPDATE steps SET output = ? WHERE name = 'one'"
    later = tmp_path / "later"
    later.mkdir()
    path = _damaged(path, later, text, '"it said: open sesame and more"')
    assert _violations(path) == [
        "the secret env:CHECKED_TOKEN is written in 1 rows of steps, column output"
    ]


def test_a_configured_secret_is_found_in_every_encoding(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration's secrets count too: in base64, and percent-encoded."""
    monkeypatch.setenv("CHECKED_TOKEN", "open sesame/and more")
    bootstrap.redact_configured_secrets(
        Settings(models={"m": ModelSettings(provider="openai", key="env:CHECKED_TOKEN")})
    )
    assert _violations(sound) == []
    encoded = base64.b64encode(b"user:open sesame/and more:x").decode()
    for number, text in enumerate([encoded, "open+sesame%2fand+more", "open%20sesame/and%20more"]):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = _damaged(
            sound, directory, "UPDATE steps SET output = ? WHERE name = 'one'", f'"it said: {text}"'
        )
        assert _violations(path) == [
            "the secret env:CHECKED_TOKEN is written in 1 rows of steps, column output"
        ]


def test_a_process_that_outlives_its_step_is_found(sound: Path, tmp_path: Path) -> None:
    """Some time after a step has ended, its process must be gone."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        path = _damaged(
            sound,
            tmp_path,
            "UPDATE steps SET process_id = ?, process_started = ?, ended_at = 1 WHERE name = 'one'",
            process.pid,
            start_time(process.pid),
        )
        (found,) = _violations(path)
        assert f"step one has ended, and its process {process.pid} still runs" in found
    finally:
        process.kill()
        process.wait()
    assert _violations(path) == []


def test_the_check_reports_its_progress(sound: Path) -> None:
    """The progress callback is called after each task."""
    progress: list[tuple[int, str]] = []
    with Database(f"sqlite:///{sound}").connect("reader") as reader:
        found = checker.violations(reader, progress=lambda *seen: progress.append(seen))
        assert list(found) == []
        ids = [task_id for (task_id,) in reader.query("SELECT id FROM tasks ORDER BY id")]
    assert progress == list(enumerate(ids, 1))
    assert len(progress) == 8


def test_a_violation_names_its_task_and_step(sound: Path, tmp_path: Path) -> None:
    """Programs can read the ids without parsing the sentence."""
    path = _damaged(sound, tmp_path, "UPDATE steps SET attempt = 2 WHERE name = 'one'")
    with Database(f"sqlite:///{path}").connect("reader") as reader:
        (violation,) = checker.violations(reader)
        ((task_id,),) = reader.query("SELECT id FROM tasks WHERE workflow_name = 'done'")
    assert (violation.task_id, violation.step) == (task_id, "one")
