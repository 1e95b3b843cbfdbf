"""Tasks in flight: created before an upgrade, and finished after it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

from agent import recovery
from agent.approvals.answering import answer
from agent.approvals.permission import terminal_user
from agent.config.models import ModelSettings
from agent.models.registry import ModelRegistry, model_of
from agent.steps.types.outcome import Succeeded
from agent.store.artifacts import artifact_rows
from agent.store.channels import answer_tokens, cursors, pairings, terminal_messages
from agent.store.db.database import Database
from agent.store.engine import snapshot_rows, workers
from agent.store.idempotency_keys import KeyedRequest, claim
from agent.store.read import conversation_views, views
from agent.tasks.commit.batch import Batch
from agent.tasks.errors import RefusedError
from agent.tasks.operator.state_commands import set_value
from agent.tasks.operator.work_commands import append_snapshot
from agent.tasks.read_models import state_documents
from agent.tasks.rules.external_work.work_parts import LeaseCall, WorkClaim
from agent.tool_services.memories import Memories, search
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph
from tests.support.conversations import said_before
from tests.support.engine import PATIENCE_SECONDS, Engine, Hand, Reader, eventually, settle_of
from tests.support.work_bench import call_of
from tests.upgrade import trigger_story

_MEAN = 'python: {call: "statistics:mean", with: {data: [1, 2, 3]}}'
WORKFLOWS = {
    "done": f"steps: {{one: {{{_MEAN}}}}}",
    "broken": 'steps: {one: {retry: {max_attempts: 1}, shell: {argv: ["false"]}}}',
    "asking": f"steps: {{one: {{approval: {{message: Now?}}, {_MEAN}}}}}",
    "paused": f"steps: {{one: {{approval: {{message: Now?}}, {_MEAN}}}}}",
    "parent": f"steps: {{one: {{workflow: {{name: asking}}}}, two: {{depends_on: [one], {_MEAN}}}}}",
    "napping": f"steps: {{one: {{wait: 5s}}, two: {{depends_on: [one], {_MEAN}}}}}",
    "many": f"steps: {{one: {{parallel: 4, concurrency: 2, approval: {{message: Now?}}, {_MEAN}}}}}",
    "listening": "steps: {one: {wait: {signal: go}}}",
    "unknown": 'steps: {one: {http: {post: "http://127.0.0.1:PORT/once"}}}',
    "running": f"steps: {{one: {{{_MEAN}}}, two: {{depends_on: [one], {_MEAN}}}}}",
    "midway": f"steps: {{one: {{{_MEAN}}}, two: {{depends_on: [one], {_MEAN}}}}}",
    "thinking": "steps: {one: {llm: {model: slow, prompt: Hello, max_tokens: 100}}}",
    "keeping": """steps:
  one:
    shell:
      argv: [sh, -c, "echo a line of the log >&2; printf %0100000d 0"]
      effect: none
    set_state: {runs: "{{ state.runs | default(0) + 1 }}"}""",
    "offered": "steps: {one: {worker: {queue: desk, with: {page: 3}}}}",
    "leased": "steps: {one: {worker: {queue: leases, effect: once, lease: 1h}}}",
}
"""One workflow for each thing that a task may be in the middle of, by name."""
ENDS = {
    name: "failed" if name == "broken" else "succeeded" for name in (*WORKFLOWS, trigger_story.NAME)
}
"""How the tasks of each must end."""
RICH = "0011"
"""The first revision whose frozen databases have rows in every table."""
_SINCE_RICH = {"keeping", "offered", "leased"}
LATER = {
    "0001": {"thinking", trigger_story.NAME, *_SINCE_RICH},
    **{f"000{number}": {trigger_story.NAME, *_SINCE_RICH} for number in range(2, 7)},
    **dict.fromkeys(("0007", "0008", "0010"), _SINCE_RICH),
}
"""Which of them the frozen databases of a revision do not have."""


def _graph(name: str, port: int = 0) -> Graph:
    text = WORKFLOWS[name].replace("PORT", str(port))
    return compile_text(f"name: {name}\n{text}\n", f"{name}.yaml")


@contextlib.contextmanager
def in_flight(database: Database) -> Iterator[None]:
    """Bring tasks into every state in which a process may leave them."""
    hand = Hand(database)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        engine = Engine(
            database,
            allow_private=("127.0.0.1",),
            shutdown_seconds=0.1,
            models=_models(provider="openai", base_url=f"http://127.0.0.1:{port}/v1"),
        )
        try:
            _begin(engine, hand, port)
            yield
        finally:
            hand.close()
            engine.stop()
            engine.close()


def _models(**settings: Any) -> ModelRegistry:
    return ModelRegistry({"slow": model_of("slow", ModelSettings(**settings))})


def _begin(engine: Engine, hand: Hand, port: int) -> None:
    for name in ("done", "broken"):
        engine.run(_graph(name))
    for name in ("asking", "parent", "many", "listening", "paused"):
        engine.submit(_graph(name))
    # The asking one, the parent's child, the paused one, and two of the four items.
    eventually(lambda: len(_questions(engine)) == 5)
    ((paused,),) = engine.rows("SELECT id FROM tasks WHERE workflow_name = 'paused'")
    engine.operator.pause(paused)
    ((item,),) = engine.rows(
        "SELECT a.id FROM approvals AS a JOIN steps AS s ON s.id = a.step_id"
        " WHERE s.parallel_index = 0"
    )
    answer(engine.database, item, "approve", principal=terminal_user("ada"))
    eventually(lambda: len(_questions(engine)) == 5, "the third item asks")
    for name in ("unknown", "thinking"):
        _wait_for_intent(engine, engine.submit(_graph(name, port)))
    trigger_story.begin(engine.database.url)
    _begin_work(engine)
    _fill_other_tables(engine)
    napping = engine.submit(_graph("napping"))
    engine.wait_step(napping, "one", "waiting")
    hand.start(_graph("running"))
    midway = hand.start(_graph("midway"))
    done = settle_of(hand.claimed("one", midway), Succeeded(2))
    hand.commit(Batch(completions=[done]), slots=0)


def _begin_work(engine: Engine) -> None:
    """Leave work in a queue, and work that an external worker has begun."""
    engine.submit(_graph("offered"))
    leased = engine.submit(_graph("leased"))
    eventually(lambda: engine.rows("SELECT 1 FROM work WHERE queue = 'leases'"))
    _work(engine, WorkClaim(frozenset({"leases"}), "desk:1", must_start=True))
    append_snapshot(engine.operator, leased, {"page": 1}, label="read", client_token="first")


def _work(engine: Engine, part: WorkClaim | LeaseCall) -> Any:
    workers = engine.worker.external_workers
    call = workers.claim(part, 0) if isinstance(part, WorkClaim) else workers.call(part)
    return asyncio.run_coroutine_threadsafe(call, engine.loop).result(PATIENCE_SECONDS)


def _fill_other_tables(engine: Engine) -> None:
    """Record what tasks share and what people are shown: each table gets a row."""
    database, now = engine.database, engine.clock.now()
    keeping = engine.run(_graph("keeping"), "succeeded")["id"]
    ((listening,),) = engine.rows("SELECT id FROM tasks WHERE workflow_name = 'listening'")
    engine.operator.signal(listening, "early", {"kept": "until a step takes it"})
    set_value(database, engine.clock, ("shared", "rate"), 7)
    Memories(database, engine.clock).remember(
        "notes", "the printer is on floor 2", written_by="ada"
    )
    said_before(database, "terminal:ada", ("hello", "good morning"))
    claim(database, [KeyedRequest("once", "a-hash")], now)
    question = _questions(engine)[0][0]
    with database.connect("writer") as tx, tx.transaction():
        cursors.start(tx, "telegram", now)
        cursors.record_message(tx, "telegram", "42", question, "1001", now)
        later = now + 10**15
        answer_tokens.add(
            tx,
            "a-token",
            channel="telegram",
            identity="42",
            approval_id=question,
            said="approve",
            expires_at=later,
        )
        pairings.offer(tx, "telegram", "42", "Ada", "a-code", later, now)
        terminal_messages.add(
            tx,
            "a-message",
            recipient="ada",
            text="it is done",
            attachments=None,
            task_id=keeping,
            now=now,
        )


def check_other_tables(database: Database) -> None:
    """Check that what was recorded before an upgrade is found after it."""
    with database.connect("reader") as reader:
        ((keeping,),) = reader.query("SELECT id FROM tasks WHERE workflow_name = 'keeping'")
        ((leased,),) = reader.query("SELECT id FROM tasks WHERE workflow_name = 'leased'")
        ((output,),) = reader.query("SELECT output FROM steps WHERE task_id = :id", id=keeping)
        assert "0" * 100_000 in json.dumps(artifact_rows.load(reader, output))
        assert "a line of the log" in views.logs(reader, keeping, None, None, 0, 9)[0][5]
        for scope, name, value in (("workflow:keeping", "runs", 1), ("shared", "rate", 7)):
            assert state_documents.value_document(reader, (scope, name))["value"] == value
        found = snapshot_rows.latest(reader, leased, "read")
        assert found is not None and found.value == '{"page":1}'
        entries = conversation_views.entries(reader, "terminal:ada", 0, 9)
        assert [entry.content for entry in entries] == ["hello", "good morning"]
        (memory,) = search(reader, "notes", "printer", 9)
        assert memory["text"] == "the printer is on floor 2"
        assert cursors.cursor(reader, "telegram") is not None
        token = answer_tokens.find(reader, "a-token")
        assert token is not None
        assert cursors.messages_of(reader, "telegram", token.approval_id)
        (message,) = terminal_messages.unread(reader, "ada")
        assert message.text == "it is done"
    now = database.clock.now()
    assert claim(database, [KeyedRequest("once", "another")], now) == [("once", "a-hash")]
    with database.connect("writer") as tx, tx.transaction():
        assert pairings.confirm(tx, "a-code", ["approve"], now) is not None


def _do_work(engine: Engine) -> None:
    """Complete what an external worker has begun, and what still waits in its queue."""
    leases = [row[0] for row in engine.rows("SELECT lease_id FROM work WHERE lease_id IS NOT NULL")]
    claimed = _work(engine, WorkClaim(frozenset({"desk"}), "desk:2", must_start=True))
    leases += [each.row.lease_id for each in claimed.leased]
    for lease_id in leases:
        assert not _work(engine, call_of(lease_id, "complete", text="1", output=1)).lost


def _wait_for_intent(engine: Engine, task_id: str) -> None:
    eventually(lambda: "tool_call.intended" in engine.types(task_id))


def finish(database: Database) -> None:
    """Declare old workers dead, run what they left, and answer every question."""
    with database.connect("writer") as connection:
        for worker_id, commit, *_ in workers.live_workers(connection):
            with connection.transaction():
                workers.declare_dead(connection, worker_id, commit, database.clock.now())
    recovery.recover(database, database.clock)
    engine = Engine(database, models=_models(provider="echo"))
    try:
        ((paused,),) = engine.rows("SELECT id FROM tasks WHERE workflow_name = 'paused'")
        engine.operator.resume(paused)
        if engine.rows("SELECT 1 FROM tasks WHERE workflow_name = 'offered'"):
            _do_work(engine)
        eventually(lambda: _is_over(engine), lambda: _questions(engine))
        if engine.rows("SELECT 1 FROM triggers"):
            trigger_story.go_on(database)
            eventually(lambda: _is_over(engine), lambda: _questions(engine))
    finally:
        engine.stop()
        engine.close()


def _is_over(engine: Engine) -> bool:
    signalled = f"('listening', '{trigger_story.NAME}')"
    for (task_id,) in engine.rows(
        f"SELECT id FROM tasks WHERE ended_at IS NULL AND workflow_name IN {signalled}"
    ):
        with contextlib.suppress(RefusedError):  # it has ended meanwhile
            engine.operator.signal(task_id, "go")
    for approval_id, kind, *_ in _questions(engine):
        if kind == "unknown":
            answer(
                engine.database, approval_id, "answer", principal=terminal_user("ada"), value="done"
            )
        else:
            answer(engine.database, approval_id, "approve", principal=terminal_user("ada"))
    return not engine.rows("SELECT 1 FROM tasks WHERE ended_at IS NULL")


def _questions(reader: Reader) -> list[tuple[str, ...]]:
    return reader.rows("SELECT id, kind FROM approvals WHERE status = 'pending' ORDER BY id")
