"""Tasks in flight: created before an upgrade, and finished after it."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import agent.steps.spec.registry  # noqa: F401  (the real kinds)
from agent import recovery
from agent.approvals.answering import answer
from agent.approvals.permission import terminal_user
from agent.config.models import ModelSettings
from agent.models.registry import ModelRegistry, model_of
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch
from agent.tasks.errors import RefusedError
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph
from tests.support.engine import Engine, Hand, Reader, eventually, settle_of
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
}
"""One workflow for each thing that a task may be in the middle of, by name."""
ENDS = {
    name: "failed" if name == "broken" else "succeeded" for name in (*WORKFLOWS, trigger_story.NAME)
}
"""How the tasks of each must end."""
LATER = {
    "0001": {"thinking", trigger_story.NAME},
    **{f"000{number}": {trigger_story.NAME} for number in range(2, 7)},
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
    napping = engine.submit(_graph("napping"))
    engine.wait_step(napping, "one", "waiting")
    hand.start(_graph("running"))
    midway = hand.start(_graph("midway"))
    done = settle_of(hand.claimed("one", midway), Succeeded(2))
    hand.commit(Batch(completions=[done]), slots=0)


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
