"""Where in a chat a task was started is known to it, and to every task that comes from it."""

from agent.core.chat_origin import ChatOrigin, read_origin, with_origin
from agent.store.engine import workflow_versions
from agent.tasks import checker
from agent.tasks.operator.operator import Operator
from agent.workflows.compile.compiler import compile_text
from tests.support.engine import Engine, eventually, graph, step

ORIGIN = ChatOrigin("slack", "U1", "D1:1.5")


def _origins(engine: Engine) -> list[str | None]:
    return [row[0] for row in engine.rows("SELECT chat_origin FROM tasks ORDER BY id")]


def test_children_retries_and_forks_inherit_it(engine: Engine) -> None:
    """A child, a retry, the child of a retry and a fork have the origin of the first task."""
    child = compile_text(b"name: inner\nsteps:\n  a: {wait: 1ms}\n", "inner.yaml")
    outer = compile_text(
        b"name: outer\nsteps:\n  sub: {workflow: inner}\n"
        b"  say:\n    depends_on: [sub]\n    retry: {max_attempts: 1}\n"
        b"    python: {call: 'tests.support.step_functions:missing'}\n"
        b"output: '{{ trigger.conversation }}'\n",
        "outer.yaml",
    )
    with engine.database.connect("writer") as tx, tx.transaction():
        workflow_versions.register(tx, child.name, child.hash, child.text, None, None, 1)
    task = engine.run(outer, "failed", chat_origin=ORIGIN.dump())
    operator = Operator(engine.database, engine.database.clock)
    operator.retry(task["id"])
    eventually(lambda: len(_origins(engine)) == 3)
    operator.fork(task["id"], "sub", {})
    eventually(lambda: len(_origins(engine)) == 5)
    assert {read_origin(text) for text in _origins(engine)} == {ORIGIN}
    assert engine.document(task["id"])["chat_origin"] == ORIGIN.document()
    with engine.database.connect("reader") as connection:
        assert checker.check(connection) == []


def test_other_tasks_have_none(engine: Engine) -> None:
    """A task that no chat started has no origin, and its trigger is as it was."""
    task = engine.run(graph(step("one")), "succeeded", trigger={"kind": "manual"})
    assert _origins(engine) == [None]
    assert engine.document(task["id"])["chat_origin"] is None


def test_a_lost_origin_is_a_violation(engine: Engine) -> None:
    """The checker finds a retry that does not know where its first task was started."""
    task = engine.run(
        compile_text(
            b"name: sad\nsteps:\n  a:\n    retry: {max_attempts: 1}\n"
            b"    python: {call: 'tests.support.step_functions:missing'}\n",
            "sad.yaml",
        ),
        "failed",
        chat_origin=ORIGIN.dump(),
    )
    Operator(engine.database, engine.database.clock).retry(task["id"])
    with engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tasks SET chat_origin = NULL WHERE retry_of IS NOT NULL")
    with engine.database.connect("reader") as connection:
        found = checker.check(connection)
    assert any("it was not started where" in sentence for sentence in found)
    with engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tasks SET chat_origin = NULL")


def test_templates_see_it_as_part_of_the_trigger() -> None:
    """The trigger of a task with an origin has it, and the name of the conversation."""
    seen = with_origin({"kind": "chat"}, ORIGIN)
    assert seen == {
        "kind": "chat",
        "origin": {"channel": "slack", "recipient": "U1", "thread": "D1:1.5"},
        "conversation": "slack:D1:1.5",
    }
    assert ChatOrigin("telegram", "123").conversation == "telegram:123"
    assert with_origin({"kind": "api"}, None) == {"kind": "api"}
