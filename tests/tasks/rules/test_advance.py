"""How a task advances through its graph: order, fan-in, limits, conditions, failures."""

import pytest

from agent.steps.types.outcome import Returned, Succeeded
from agent.workflows.graph import RetryPolicy
from tests.support.engine import (
    FAILURE,
    RETRY,
    Engine,
    Hand,
    eventually,
    graph,
    most_at_once,
    other,
    step,
)
from tests.support.interventions import intend
from tests.support.step_functions import Gate, runs


def test_a_diamond_runs_in_order(engine: Engine) -> None:
    """A runs, then B and C in parallel, then D once both have ended, with both outputs."""
    gate = Gate()
    diamond = graph(
        step("a", "echo", given={"value": 1}),
        step("b", "gated", after=["a"], given={"gate": gate.name, "value": 2}),
        step("c", "gated", after=["a"], given={"gate": gate.name, "value": 3}),
        step(
            "d",
            "echo",
            after=["b", "c"],
            given={"value": ["{{ steps.b.output }}", "{{ steps.c.output }}"]},
        ),
    )
    task_id = engine.submit(diamond)
    eventually(lambda: gate.entered == 2, "b and c run side by side")
    assert engine.statuses(task_id) == {
        "a": "succeeded",
        "b": "running",
        "c": "running",
        "d": "pending",
    }
    gate.open()
    done = engine.wait(task_id, "succeeded", "failed")
    assert done["output"] == {"d": [2, 3]}
    assert [found["attempt"] for found in done["steps"]] == [1, 1, 1, 1]
    types = engine.types(task_id)
    assert types[:2] == ["task.created", "task.started"] and types[-1] == "task.succeeded"
    assert types.count("step.claimed") == types.count("step.succeeded") == 4


def test_a_chain_runs_in_order_with_one_claim_each(engine: Engine) -> None:
    """Each step of a chain starts after the one before it, and sees its output."""
    chain = [step("s0", "echo", given={"value": 1})]
    for number in range(1, 6):
        given = {"value": f"{{{{ steps.s{number - 1}.output + 1 }}}}"}
        chain.append(step(f"s{number}", "echo", after=[f"s{number - 1}"], given=given))
    done = engine.run(graph(*chain))
    assert done["output"] == {"s5": 6}
    claims = [name for kind, name, _, _ in engine.events(done["id"]) if kind == "step.claimed"]
    assert claims == [f"s{number}" for number in range(6)]


def test_parents_that_end_in_one_commit_are_each_counted_once(hand: Hand) -> None:
    """A step with forty parents, all ending in one transaction, is released exactly once."""
    parents = [step(f"p{number}") for number in range(40)]
    names = [parent.name for parent in parents]
    task_id = hand.start(graph(*parents, step("last", after=names), step("after", after=["last"])))
    assert hand.names() == sorted(names)
    hand.succeed(*names)
    assert hand.names() == ["last"]
    assert hand.rows(
        "SELECT deps_remaining, claim_token FROM steps WHERE task_id = :id AND name = 'last'",
        id=task_id,
    ) == [(0, 1)]
    hand.succeed("last")
    hand.succeed("after")
    assert hand.status(task_id) == "succeeded"


def test_parents_that_end_in_different_commits_release_once(hand: Hand) -> None:
    """The step is released by its last parent, and not before."""
    hand.start(graph(step("a"), step("b"), step("c"), step("last", after=["a", "b", "c"])))
    hand.succeed("a")
    hand.succeed("b")
    assert hand.names() == ["c"]
    hand.succeed("c")
    assert hand.names() == ["last"]


def test_max_parallel_holds_at_every_instant(engine: Engine) -> None:
    """Of twenty independent steps never more than three are claimed at once; all of them run."""
    steps = [step(f"s{number}") for number in range(20)]
    done = engine.run(graph(*steps, max_parallel=3))
    assert done["status"] == "succeeded"
    assert most_at_once(engine.events(done["id"]), lambda _: True) == 3


def test_a_free_slot_goes_to_the_next_step_in_order(hand: Hand) -> None:
    """Steps that the concurrency limit holds back follow in the graph's order, one per end."""
    hand.start(graph(*[step(f"s{number}") for number in range(6)], max_parallel=2))
    assert hand.names() == ["s0", "s1"]
    hand.succeed("s1")
    assert hand.names() == ["s0", "s2"]
    hand.succeed("s0", "s2")
    assert hand.names() == ["s3", "s4"]


def test_a_step_between_two_attempts_keeps_its_slot(hand: Hand) -> None:
    """It still counts against the task's concurrency limit."""
    hand.start(graph(step("a"), step("b"), max_parallel=1))
    hand.settle({"a": RETRY})
    assert hand.names() == ["a"]
    hand.succeed("a")
    assert hand.names() == ["b"]


@pytest.mark.parametrize("attempts", [1, 3])
def test_an_error_says_that_all_attempts_were_used(hand: Hand, attempts: int) -> None:
    """With their number, in the step's error and in the task's; one attempt is not worth the words."""
    retry = RetryPolicy(max_attempts=attempts, delay_seconds=0, jitter=False)
    task_id = hand.start(graph(step("a", retry=retry)))
    for _ in range(attempts):
        hand.settle({"a": RETRY})
    document = hand.document(task_id)
    used = "attempts exhausted: all 3 were used; " if attempts == 3 else ""
    assert document["steps"][0]["error"]["message"] == f"{used}it does not work"
    assert document["error"]["message"] == f"{used}it does not work"


def test_a_false_condition_skips_the_step_and_its_dependents_run(engine: Engine) -> None:
    """`if` skips one step; those after it run and see null, also behind a second `if`."""
    done = engine.run(
        graph(
            step("a", "echo", given={"value": 1}),
            step("b", after=["a"], condition="steps.a.output > 1"),
            step("c", after=["b"], condition="steps.b.status == 'succeeded'"),
            step("d", "echo", after=["c"], given={"value": "{{ steps.c.output }}"}),
        )
    )
    assert done["status"] == "succeeded"
    assert engine.statuses(done["id"]) == {
        "a": "succeeded",
        "b": "skipped",
        "c": "skipped",
        "d": "succeeded",
    }
    assert engine.steps(done["id"])["b"]["skip_reason"] == "if"
    assert done["output"] == {"d": None}


def test_run_on_depends_on_the_steps_own_dependencies(hand: Hand) -> None:
    """After success `failure` is skipped, `always` runs; after failure it is the other way round."""
    good = graph(
        step("a"),
        step("yes", after=["a"]),
        step("no", after=["a"], run_on="failure"),
        step("both", after=["a"], run_on="always"),
        step("after_no", after=["no"]),
    )
    task_id = hand.start(good)
    hand.succeed("a")
    assert hand.names() == ["after_no", "both", "yes"]
    hand.succeed("after_no", "both", "yes")
    assert hand.status(task_id) == "succeeded"
    bad_id = hand.start(good)
    hand.fail("a")
    assert hand.names() == ["both", "no"]
    hand.succeed("both", "no")
    assert hand.status(bad_id) == "failed"
    assert hand.statuses(bad_id) == {
        "a": "failed",
        "yes": "skipped",
        "no": "succeeded",
        "both": "succeeded",
        "after_no": "skipped",
    }


def test_a_failure_skips_downstream_steps_and_independent_branches_finish(hand: Hand) -> None:
    """With fail_fast off, only steps that need the failed one are skipped; then the task fails."""
    task_id = hand.start(
        graph(
            step("bad"),
            step("after_bad", after=["bad"]),
            step("after_that", after=["after_bad"]),
            step("good"),
            step("after_good", after=["good"]),
            fail_fast=False,
        )
    )
    hand.fail("bad")
    assert hand.names() == ["good"]
    hand.succeed("good")
    assert hand.names() == ["after_good"]
    assert hand.status(task_id) == "running"
    hand.succeed("after_good")
    document = hand.document(task_id)
    assert document["status"] == "failed"
    assert document["error"]["step"] == "bad" and document["error"]["code"] == "no"
    assert {found["name"]: found["skip_reason"] for found in document["steps"]} == {
        "bad": None,
        "after_bad": "upstream_failed",
        "after_that": "upstream_failed",
        "good": None,
        "after_good": None,
    }


def test_fail_fast_skips_the_rest_and_awaits_running_steps(hand: Hand) -> None:
    """Unstarted steps are skipped at once; clean-up runs only when all attempts have ended."""
    task_id = hand.start(
        graph(
            step("bad"),
            step("flying"),
            step("later", after=["flying"]),
            step("sweep", after=["bad"], run_on="always"),
        )
    )
    result = hand.fail("bad").result
    assert [stopped for stopped, _ in result.stops] == [hand.claimed("flying").step_id]
    assert hand.statuses(task_id) == {
        "bad": "failed",
        "flying": "running",
        "later": "skipped",
        "sweep": "pending",
    }
    hand.settle({"flying": Returned("stopped")})
    assert hand.names() == ["sweep"]
    hand.succeed("sweep")
    assert hand.status(task_id) == "failed"
    assert hand.steps(task_id)["flying"]["skip_reason"] == "fail_fast"


def test_a_workflows_output_can_name_its_task(engine: Engine) -> None:
    """Everything of the task that the language lets `output:` name is available."""
    wanted = {
        "task": "{{ task.id }} {{ task.workflow }} {{ task.version }}",
        "rest": ["{{ inputs.n }}", "{{ trigger }}", "{{ steps.a.status }}"],
    }
    done = engine.run(graph(step("a"), output=wanted), given={"n": 5}, trigger={"kind": "test"})
    assert done["output"] == {
        "task": f"{done['id']} tested 1",
        "rest": [5, {"kind": "test"}, "succeeded"],
    }


def test_a_step_that_succeeds_after_a_failure_keeps_its_output(hand: Hand) -> None:
    """A running step that succeeds before it could stop is recorded as succeeded."""
    task_id = hand.start(graph(step("bad"), step("flying"), step("later", after=["flying"])))
    hand.fail("bad")
    hand.settle({"flying": Succeeded({"done": True})})
    assert hand.status(task_id) == "failed"
    assert hand.steps(task_id)["flying"]["output"] == {"done": True}
    assert hand.statuses(task_id)["later"] == "skipped"


def test_fail_fast_stops_attempts_in_flight_then_cleans_up(engine: Engine) -> None:
    """A running attempt is interrupted by another step's failure, and clean-up follows it."""
    gate, hold = Gate(), Gate()
    task_id = engine.submit(
        graph(
            step("bad", "fail_while_shut", after=["ready"], given={"gate": gate.name}),
            step("ready", "echo"),
            step("flying", "heeding", given={"gate": hold.name}),
            step("sweep", "record", after=["flying"], run_on="always", given={"token": hold.name}),
        )
    )
    done = engine.wait(task_id, "failed")
    assert runs[hold.name][0] == "stopped", "the attempt heeded the stop before clean-up ran"
    assert done["error"]["step"] == "bad"
    assert engine.statuses(task_id)["sweep"] == "succeeded"


def test_a_failing_clean_up_does_not_hide_the_first_error(hand: Hand) -> None:
    """The task's error is that of the first failed step; the clean-up's is recorded beside it."""
    task_id = hand.start(graph(step("bad"), step("sweep", after=["bad"], run_on="failure")))
    hand.fail("bad")
    hand.fail("sweep")
    document = hand.document(task_id)
    assert document["status"] == "failed" and document["error"]["step"] == "bad"
    assert hand.steps(task_id)["sweep"]["error"]["code"] == "no"


def test_two_failures_in_one_commit_fail_the_task_once(hand: Hand) -> None:
    """Both steps fail, the first one settled gives the task's error, and the task ends once."""
    task_id = hand.start(graph(step("a"), step("b"), step("c", after=["a", "b"])))
    hand.fail("a", "b")
    document = hand.document(task_id)
    assert document["status"] == "failed" and document["error"]["step"] == "a"
    assert hand.types(task_id).count("task.failed") == 1


def test_waiting_steps_are_skipped_by_a_failure(engine: Engine) -> None:
    """A step that waits for a signal does not keep a failed task alive."""
    gate = Gate()
    task_id = engine.submit(
        graph(
            step("bad", "gated_failure", given={"gate": gate.name}),
            other("wait", "wait", config={"signal": "go"}),
        )
    )
    engine.wait_step(task_id, "wait", "waiting")
    gate.open()
    engine.wait(task_id, "failed")
    assert engine.statuses(task_id) == {"bad": "failed", "wait": "skipped"}


def test_a_task_past_its_deadline_cleans_up_and_fails(engine: Engine) -> None:
    """It stops running steps, skips the rest, cleans up, and names the deadline in its error."""
    gate = Gate()
    task_id = engine.submit(
        graph(
            step("flying", "gated", given={"gate": gate.name}),
            other("wait", "wait", config={"signal": "never"}),
            step("later", after=["flying"]),
            step("sweep", "record", after=["flying"], run_on="always", given={"token": gate.name}),
            timeout_seconds=1000.0,
        )
    )
    engine.wait_step(task_id, "wait", "waiting")
    eventually(lambda: gate.entered == 1)
    engine.skip(2000)
    done = engine.wait(task_id, "failed")
    assert done["error"]["code"] == "deadline_exceeded"
    assert engine.statuses(task_id) == {
        "flying": "skipped",
        "wait": "skipped",
        "later": "skipped",
        "sweep": "succeeded",
    }
    reasons = {step["name"]: step["skip_reason"] for step in done["steps"]}
    assert reasons == dict.fromkeys(("flying", "wait", "later"), "deadline") | {"sweep": None}


def test_an_attempt_that_hits_the_deadline_leaves_time_for_clean_up(engine: Engine) -> None:
    """The clean-up step runs whether the runner or the engine notices the deadline first."""
    gate = Gate()
    done = engine.run(
        graph(
            step("slow", "gated", given={"gate": gate.name}),
            step("sweep", "record", after=["slow"], run_on="always", given={"token": gate.name}),
            timeout_seconds=0.3,
        )
    )
    assert done["status"] == "failed" and done["error"]["class"] == "timeout"
    assert engine.statuses(done["id"])["sweep"] == "succeeded"


def test_no_effect_begins_in_a_task_that_is_failing(hand: Hand) -> None:
    """A running step may not act after another one has failed; clean-up may."""
    tidy = step("tidy", after=["bad"], run_on="always")
    hand.start(graph(step("bad"), step("pay"), tidy))
    hand.fail("bad")
    intend(hand, hand.claimed("pay"))
    assert hand.rows("SELECT 1 FROM tool_calls") == []
    hand.settle({"pay": Returned("revoked")})
    intend(hand, hand.claimed("tidy"))
    assert hand.rows("SELECT status FROM idempotency_outcomes") == [("unknown",)]
    hand.settle({"tidy": FAILURE})


def test_the_tasks_deadline_does_not_cut_clean_up_short(hand: Hand) -> None:
    """The deadline is for the task's work."""
    tidy = step("tidy", after=["bad"], run_on="always")
    task_id = hand.start(graph(step("bad"), tidy, timeout_seconds=5))
    assert hand.claimed("bad").task.deadline is not None
    hand.fail("bad")
    assert hand.claimed("tidy").task.deadline is None
    hand.skip(60)
    hand.commit()
    hand.succeed("tidy")
    assert hand.statuses(task_id) == {"bad": "failed", "tidy": "succeeded"}
