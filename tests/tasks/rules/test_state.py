"""`state`: values that outlive a task, written once and read as they were at the first claim."""

import json
from typing import Any
from uuid import uuid4

import pytest

from agent.core.state_names import KEPT_VERSIONS, MAX_CONFLICTS, MAX_VALUE_BYTES
from agent.store.db.database import Database
from agent.tasks.commit.batch import Batch
from agent.tasks.operator.state_commands import set_value
from agent.tasks.rules import state_writes
from agent.tasks.rules.state_writes import LockedState, Writer
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph
from tests.support import approvals, state_functions
from tests.support.engine import Engine, Hand, Start, eventually
from tests.support.interventions import lose
from tests.support.state_attempts import completion_of, recorded_call, settle_once
from tests.support.statements import record_statements
from tests.support.step_functions import Gate

MODULE = "tests.support.state_functions"


def workflow(steps: str, name: str = "tested", head: str = "") -> Graph:
    """Compile a workflow."""
    return compile_text(f"name: {name}\n{head}\nsteps:\n{steps}".replace("MODULE", MODULE))


def values(reader: Any, scope: str = "workflow:tested") -> dict[str, tuple[Any, int]]:
    """Return the values of a scope with their versions."""
    rows = reader.rows(
        "SELECT name, value, version FROM state_values WHERE scope = :scope", scope=scope
    )
    return {name: (json.loads(v) if v is not None else None, n) for name, v, n in rows}


COUNT = workflow(
    """
  count:
    python: {call: "MODULE:act", with: {token: count}}
    set_state: {counter: "{{ state.counter | default(0) + 1 }}"}
"""
)


def test_a_step_writes_its_output_and_the_next_task_reads_it(engine: Engine) -> None:
    """`set_state` sees the step's own output; a later task reads the value."""
    graph = workflow(
        """
  fetch:
    python: {call: "MODULE:look", with: {token: fetch, value: {price: 7, before: "{{ state.price | default('none') }}"}}}
    set_state: {price: "{{ output.price }}", seen: "{{ state.seen | default([]) + [output.price] }}"}
"""
    )
    first, second = engine.run(graph), engine.run(graph)
    assert first["steps"][0]["output"]["before"] == "none"
    assert second["steps"][0]["output"]["before"] == 7
    assert values(engine) == {"price": (7, 2), "seen": ([7, 7], 2)}
    changed = [data for kind, _, _, data in engine.events(second["id"]) if kind == "state.changed"]
    assert changed == [
        {
            "changes": [
                {"scope": "workflow:tested", "name": "price", "version": 2},
                {"scope": "workflow:tested", "name": "seen", "version": 2},
            ]
        }
    ]


def test_state_is_read_in_conditions_items_and_approvals(engine: Engine) -> None:
    """Every template of a step sees `state`."""
    engine.run(
        workflow(
            '  set:\n    python: {call: "MODULE:act", with: {token: x}}\n    set_state: {list: [1, 2], go: true, who: ann}\n'
        )
    )
    graph = workflow(
        """
  skipped:
    if: not state.go
    python: {call: "MODULE:act", with: {token: x}}
  each:
    foreach: state.list
    python: {call: "MODULE:look", with: {token: each, value: "{{ item }}{{ state.who }}"}}
  asked:
    approval: {message: "For {{ state.who }}?"}
"""
    )
    task_id = engine.submit(graph)
    asked = engine.wait_step(task_id, "asked", "waiting")
    steps = engine.steps(task_id)
    assert steps["skipped"]["status"] == "skipped"
    engine.wait_step(task_id, "each", "succeeded")
    assert engine.steps(task_id)["each"]["output"] == ["1ann", "2ann"]
    ((message,),) = engine.rows("SELECT message FROM approvals WHERE task_id = :id", id=task_id)
    assert message == "For ann?"
    assert asked["status"] == "waiting"
    engine.operator.cancel(task_id)


def test_a_missing_value_is_a_clear_error(engine: Engine) -> None:
    """A value that was never written fails the step, and the message says what to write."""
    done = engine.run(
        workflow(
            '  read:\n    python: {call: "MODULE:look", with: {token: x, value: "{{ state.missing }}"}}\n'
        )
    )
    assert done["status"] == "failed"
    assert "state.missing has no value yet" in done["error"]["message"]
    assert "default(" in done["error"]["message"]


def test_a_retry_sees_what_the_first_attempt_read(engine: Engine) -> None:
    """The value of the first claim holds for every later attempt, though it has changed since."""
    token = uuid4().hex
    engine.run(COUNT)
    graph = workflow(
        f"""
  look:
    python: {{call: "MODULE:look", with: {{token: {token}, value: "{{{{ state.counter }}}}", fail_times: 2}}}}
    retry: {{delay: 1s, jitter: false}}
"""
    )
    task_id = engine.submit(graph)
    for _ in range(2):
        engine.wait_step(task_id, "look", "pending")
        engine.run(COUNT)
        engine.skip(5)
    engine.wait(task_id, "succeeded")
    assert state_functions.seen[token] == [1, 1, 1]


def test_a_gate_asks_once_though_the_value_changes(engine: Engine) -> None:
    """An approval holds for the value that was read when the question was asked."""
    token = uuid4().hex
    engine.run(COUNT)
    graph = workflow(
        f"""
  pay:
    approval: {{message: "pay {{{{ state.counter }}}}?"}}
    python: {{call: "MODULE:look", with: {{token: {token}, value: "{{{{ state.counter }}}}"}}}}
"""
    )
    task_id = engine.submit(graph)
    engine.wait_step(task_id, "pay", "waiting")
    engine.run(COUNT)
    approvals.say(engine, approvals.question(engine, task_id), "approve")
    engine.wait(task_id, "succeeded")
    assert state_functions.seen[token] == [1]


def test_values_are_the_workflows_own_unless_it_shares_them(engine: Engine) -> None:
    """Names under `shared` are the same for every workflow that shares them; others are its own."""
    body = """
  set:
    python: {call: "MODULE:act", with: {token: x}}
    set_state: {rate: "{{ state.rate | default(0) + 1 }}", own: "{{ state.own | default(0) + 1 }}"}
"""
    for name in ("one", "two"):
        engine.run(workflow(body, name, "shared: [rate]"))
    assert values(engine, "shared") == {"rate": (2, 2)}
    assert values(engine, "workflow:one") == {"own": (1, 1)}
    assert values(engine, "workflow:two") == {"own": (1, 1)}


def test_many_steps_of_one_commit_each_count(hand: Hand) -> None:
    """Of the steps that write one name in one commit, each has its version, and the last one wins."""
    blind = workflow("""
  set:
    python: {call: "MODULE:act", with: {token: x}}
    set_state: {last: "{{ output }}"}
""")
    hand.submit(*[blind] * 5)
    attempts = [hand.running[key] for key in sorted(hand.running)]
    completions = [completion_of(claimed, f"task {n}") for n, claimed in enumerate(attempts)]
    _, conflicts = settle_once(hand, completions)
    assert conflicts == []
    assert values(hand) == {"last": ("task 4", 5)}
    history = hand.rows("SELECT version, value FROM state_history ORDER BY version")
    assert history == [(n + 1, f'"task {n}"') for n in range(5)]


def test_conflicts_of_one_commit_fit_into_the_next(hand: Hand) -> None:
    """Steps that read one version: one wins, and the next commit settles all the others."""
    hand.submit(*[COUNT] * 40)
    completions = [completion_of(claimed) for claimed in hand.running.values()]
    done, conflicts = settle_once(hand, completions)
    assert len(done.result.settled) == 1
    assert len(conflicts) == 39
    done, conflicts = settle_once(hand, conflicts)
    assert (len(done.result.settled), conflicts) == (39, [])
    assert values(hand) == {"counter": (40, 40)}


def test_a_conflict_renders_again_and_repeats_no_effect(engine: Engine) -> None:
    """Steps that read the same version all count, and each acts once."""
    token, gate = uuid4().hex, Gate()
    graph = workflow(f"""
  act:
    python: {{call: "MODULE:act_behind", with: {{token: {token}, gate: {gate.name}}}, effect: once}}
    set_state: {{counter: "{{{{ state.counter | default(0) + 1 }}}}"}}
""")
    tasks = [engine.submit(graph) for _ in range(30)]
    eventually(lambda: gate.entered >= 16)
    gate.open()
    for task_id in tasks:
        engine.wait(task_id, "succeeded")
    assert values(engine) == {"counter": (30, 30)}
    assert state_functions.effects[token] == 30


def test_nothing_starts_beside_an_isolated_step_in_a_conflict(checked: Database) -> None:
    """It is isolated on record until its outcome is: the next one waits for that commit."""
    first, second = Hand(checked), Hand(checked)
    first.submit(COUNT, COUNT)
    lose(first)
    second.skip(60)
    second.commit()
    (before,) = second.running.values()
    completion = completion_of(before)
    set_value(second.database, second.clock, ("workflow:tested", "counter"), 5)
    _, again = settle_once(second, [completion])
    assert list(second.running.values()) == [before]
    settle_once(second, again)
    (after,) = second.running.values()
    assert after.task.id != before.task.id
    for hand in (first, second):
        hand.close()


def test_a_step_gives_up_after_too_many_conflicts(hand: Hand) -> None:
    """A step whose values change again and again fails with `state_conflict`, and writes nothing."""
    (task_id,) = hand.submit(COUNT)
    completions = [completion_of(hand.claimed("count"))]
    for number in range(MAX_CONFLICTS + 1):
        set_value(hand.database, hand.clock, ("workflow:tested", "counter"), number)
        _, completions = settle_once(hand, completions)
    settle_once(hand, completions)
    assert hand.document(task_id)["error"]["code"] == "state_conflict"
    assert values(hand) == {"counter": (MAX_CONFLICTS, MAX_CONFLICTS + 1)}


def test_an_outcome_under_an_old_claim_writes_nothing(hand: Hand) -> None:
    """A worker that lost its claim changes no value."""
    (task_id,) = hand.submit(COUNT)
    completion = completion_of(hand.claimed("count"))
    hand.operator.cancel(task_id)
    done, conflicts = settle_once(hand, [completion])
    assert [is_held for _, is_held in done.result.settled] == [False]
    assert conflicts == []
    assert values(hand) == {}


def test_python_code_uses_state_and_a_retry_gets_the_recorded_answers(engine: Engine) -> None:
    """Each use of `ctx.state` is recorded: the second attempt sees the same and writes nothing."""
    token = uuid4().hex
    graph = workflow(
        f"""
  use:
    python: {{call: "MODULE:use_all", with: {{token: {token}, fail_times: 1}}}}
    retry: {{delay: 0s}}
"""
    )
    done = engine.run(graph)
    assert done["status"] == "succeeded"
    first, second = state_functions.seen[token]
    assert first == second
    assert first == {
        "before": "none",
        "set": 1,
        "after": {"n": 1},
        "wrong": False,
        "right": True,
        "fresh": True,
        "stale": False,
        "by_version": True,
        "gone": None,
    }
    assert values(engine) == {"note": ({"n": 3}, 3), "other": (None, 2)}


def test_functions_in_threads_use_state_without_await(engine: Engine) -> None:
    """A function in a thread has the same methods."""
    done = engine.run(
        workflow('  use:\n    python: {call: "MODULE:use_in_thread", with: {token: thread}}\n')
    )
    assert done["steps"][0]["output"] == {
        "set": 1,
        "swapped": True,
        "value": "again",
        "deleted": None,
    }


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Bad", 1, "bad_state"),
        ("get", 1, "bad_state"),
        ("big", "x" * MAX_VALUE_BYTES, "state_too_large"),
    ],
)
def test_bad_names_and_large_values_are_refused(
    engine: Engine, name: str, value: Any, code: str
) -> None:
    """A value that cannot be kept fails the step for good, and the message says why."""
    graph = workflow(
        '  use:\n    python: {call: "MODULE:set_named", with: {name: "{{ inputs.name }}", value: "{{ inputs.value }}"}}\n',
        head="inputs: {name: {type: string}, value: {}}",
    )
    done = engine.run(graph, given={"name": name, "value": value})
    assert done["error"]["code"] == code
    assert values(engine) == {}


def test_history_keeps_the_last_versions(engine: Engine) -> None:
    """The history of a value is bounded; its versions have no gap."""
    graph = workflow(
        f"""
  many:
    foreach: "{{{{ range({KEPT_VERSIONS + 20}) | list }}}}"
    concurrency: 4
    python: {{call: "MODULE:count_up"}}
"""
    )
    assert engine.run(graph)["status"] == "succeeded"
    ((lowest, highest, count),) = engine.rows(
        "SELECT min(version), max(version), count(*) FROM state_history"
    )
    assert (lowest, highest, count) == (21, KEPT_VERSIONS + 20, KEPT_VERSIONS)


def test_a_retried_task_keeps_what_was_written(start: Start) -> None:
    """A retry keeps succeeded steps without writing again; recorded uses of `ctx.state` hold."""
    engine = start()
    token = uuid4().hex
    graph = workflow(
        f"""
  kept:
    python: {{call: "MODULE:act", with: {{token: {token}}}}}
    set_state: {{counter: "{{{{ state.counter | default(0) + 1 }}}}"}}
  fails:
    depends_on: kept
    python: {{call: "MODULE:use_all", with: {{token: {token}, fail_times: 1}}}}
    retry: {{max_attempts: 1}}
"""
    )
    failed = engine.run(graph)
    assert failed["status"] == "failed"
    retried = engine.operator.retry(failed["id"]).task_id
    engine.wait(retried, "succeeded")
    assert values(engine)["counter"] == (1, 1)
    assert values(engine)["note"] == ({"n": 3}, 3)
    forked = engine.operator.fork(retried, "kept").task_id
    engine.wait(forked, "succeeded")
    assert values(engine)["counter"] == (2, 2)


def test_a_retried_step_with_calls_reads_what_it_had_read(start: Start) -> None:
    """A step that inherits calls inherits what it had read: its requests stay the same."""
    engine = start()
    token = uuid4().hex
    engine.run(COUNT)
    graph = workflow(
        f"""
  pay:
    python: {{call: "MODULE:pay_then_fail", with: {{token: {token}, amount: "{{{{ state.counter }}}}"}}}}
    retry: {{max_attempts: 1}}
"""
    )
    failed = engine.run(graph)
    assert failed["status"] == "failed"
    engine.run(COUNT)
    retried = engine.wait(engine.operator.retry(failed["id"]).task_id, "succeeded", "failed")
    assert retried["status"] == "succeeded", retried["error"]
    assert state_functions.effects[token] == 1
    assert retried["steps"][0]["output"] == 1


def test_the_value_of_a_secret_is_not_stored(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret is taken out of a value, and a reference stays plain text."""
    monkeypatch.setenv("STATE_SECRET", "sesame-open-9931")
    graph = workflow(
        """
  leak:
    shell: {argv: [sh, -c, 'printf %s "$TOKEN"'], env: {TOKEN: "env:STATE_SECRET"}}
    set_state: {leaked: "{{ output.stdout }}", reference: "env:STATE_SECRET"}
"""
    )
    assert engine.run(graph)["status"] == "succeeded"
    stored = values(engine)
    assert stored["reference"][0] == "env:STATE_SECRET"
    assert "sesame" not in json.dumps(stored)


def test_recovery_leaves_the_step_to_its_next_attempt(hand: Hand) -> None:
    """A recorded result alone does not settle a step with `set_state`: an attempt writes the value."""
    graph = workflow(
        """
  act:
    python: {call: "MODULE:act", with: {token: x}, effect: once}
    set_state: {last: "{{ output }}"}
"""
    )
    (task_id,) = hand.submit(graph)
    claimed = hand.claimed("act")
    intent = recorded_call(hand, claimed, "seven")
    lose(hand)
    hand.committer.enroll()
    assert hand.statuses(task_id) == {"act": "pending"}
    assert values(hand) == {}
    hand.running.clear()
    hand.skip(600)
    hand.commit()
    again = hand.claimed("act")
    assert [call.response for call in again.calls] == ["seven"]
    settle_once(hand, [completion_of(again, again.calls[0].response)])
    assert hand.statuses(task_id) == {"act": "succeeded"}
    assert values(hand) == {"last": ("seven", 1)}
    assert intent.idempotency_key == again.calls[0].idempotency_key


def test_a_commit_does_not_wait_for_a_name_that_another_transaction_holds(
    postgres_database: Database,
) -> None:
    """On PostgreSQL the outcome is carried to the next commit; the other write is not lost."""
    hand = Hand(postgres_database)
    hand.submit(COUNT)
    key = ("workflow:tested", "counter")
    with postgres_database.connect("writer") as other, other.transaction():
        state = LockedState(other, [key], hand.clock.now())
        state.write(key, "10", Writer("another process"))
        state.flush()
        done = hand.commit(Batch(completions=[completion_of(hand.claimed("count"))]))
        assert done.result.settled == []
    _, again = settle_once(hand, done.result.carried_completions)
    settle_once(hand, again)
    assert values(hand) == {"counter": (11, 2)}
    hand.close()


def test_a_scope_has_a_limited_number_of_values(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that would add one too many fails, and its message says what to do."""
    monkeypatch.setattr(state_writes, "MAX_NAMES", 2)
    steps = """
  a: {python: {call: "MODULE:set_named", with: {name: one, value: 1}}}
  b: {depends_on: a, python: {call: "MODULE:act", with: {token: x}}, set_state: {two: 2}}
  c: {depends_on: b, python: {call: "MODULE:set_named", with: {name: two, value: 3}}}
"""
    assert engine.run(workflow(steps))["status"] == "succeeded"
    for step in (
        '  d: {python: {call: "MODULE:set_named", with: {name: three, value: 1}}}\n',
        '  d: {python: {call: "MODULE:act", with: {token: x}}, set_state: {three: 1}}\n',
    ):
        failed = engine.run(workflow(step))
        assert failed["error"]["code"] == "state_full"
        assert "agent state delete" in failed["error"]["message"]
    assert values(engine) == {"one": (1, 1), "two": (3, 2)}


def test_steps_without_state_cost_no_statement(hand: Hand) -> None:
    """A task that does not use `state` sends no statement about it."""
    plain = workflow('  one: {python: {call: "MODULE:act", with: {token: x}}}\n')
    statements = record_statements(hand.committer.connection)
    hand.submit(plain)
    hand.succeed("one")
    assert any("UPDATE steps" in each for each in statements)
    assert [each for each in statements if "state" in each.replace("status", "")] == []
