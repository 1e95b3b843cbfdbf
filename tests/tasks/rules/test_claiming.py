"""Claiming: slots, priorities, fairness, and steps that run isolated."""

import threading
from typing import Any

import pytest

from agent.steps.attempt.attempt_limits import attempts_exhausted_error
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from agent.store.engine import begin_tx
from agent.tasks.commit import known_tasks
from agent.tasks.commit.batch import Batch
from agent.tasks.operator.operator import Operator
from agent.tasks.rules import creation, row_writer
from agent.tasks.rules.creation import Submission
from agent.workflows.graph import Fanout, Graph, RetryPolicy
from tests.support.engine import Engine, Hand, Start, eventually, graph, step
from tests.support.interventions import lose
from tests.support.step_functions import Gate


def named(name: str, *, steps: int = 1, **options: Any) -> Graph:
    """Return a workflow whose steps are named after it."""
    return graph(*[step(f"{name}{number}") for number in range(steps)], name=name, **options)


def test_a_worker_never_runs_more_than_its_slots(start: Start) -> None:
    """With two slots and five tasks, two attempts run; the others follow as slots get free."""
    engine = start(slots=2)
    gate = Gate()
    tasks = [engine.submit(graph(step("a", "gated", given={"gate": gate.name}))) for _ in range(5)]
    eventually(lambda: gate.entered == 2)
    claimed = "SELECT count(*) FROM steps WHERE status = 'running'"
    assert engine.rows(claimed) == [(2,)]
    gate.open()
    for task_id in tasks:
        engine.wait(task_id, "succeeded")
    order = engine.rows("SELECT type FROM events WHERE type LIKE 'step.%' ORDER BY id")
    running = most = 0
    for (kind,) in order:
        running += {"step.claimed": 1, "step.succeeded": -1}[kind]
        most = max(most, running)
    assert most == 2


def test_slots_are_counted_across_commits(hand: Hand) -> None:
    """A commit claims what its free slots allow, whatever is due."""
    hand.slots = 3
    hand.submit(*[named(f"t{number}") for number in range(5)])
    assert len(hand.names()) == 3
    hand.commit()
    assert len(hand.names()) == 3
    hand.succeed(*hand.names())
    assert len(hand.names()) == 2


def test_claims_beyond_the_cache_size(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claimed attempt has its inputs, however many tasks have been loaded."""
    monkeypatch.setattr(known_tasks, "_MOST_TASKS", 2)
    hand.submit(*[named(f"t{number}", steps=2) for number in range(5)], slots=0)
    hand.commit()
    assert len(hand.names()) == 10
    hand.succeed(*hand.names())
    assert hand.rows("SELECT DISTINCT status FROM tasks") == [("succeeded",)]


def test_a_higher_priority_goes_first(hand: Hand) -> None:
    """High before normal before low, whichever was submitted first."""
    for priority in ("low", "normal", "high"):
        hand.submit(named(priority), slots=0, priority=priority)
    order = []
    hand.slots = 1
    hand.commit()
    while hand.names():
        order += hand.names()
        hand.succeed(*hand.names())
    assert order == ["high0", "normal0", "low0"]


def test_a_workflows_priority_is_the_default(hand: Hand) -> None:
    """It holds where the submission names none."""
    hand.submit(named("plain"), slots=0)
    hand.submit(named("urgent", priority="high"), slots=0)
    hand.slots = 1
    hand.commit()
    assert hand.names() == ["urgent0"]


def test_low_priority_is_never_starved(hand: Hand) -> None:
    """A low task that has waited long goes before high ones that keep coming."""
    hand.submit(named("low"), slots=0, priority="low")
    hand.slots = 1
    rounds = 0
    while "low0" not in hand.names():
        hand.skip(2)
        hand.submit(named("high"), slots=0, priority="high")
        hand.submit(named("high"), slots=0, priority="high")
        if hand.names():
            hand.succeed(*hand.names())
        else:
            hand.commit()
        rounds += 1
        assert rounds < 20, "it is served after some seconds, not some day"


def test_a_wide_task_does_not_hold_every_slot(hand: Hand) -> None:
    """A narrow task that comes after a wide one gets its step into the next commit."""
    hand.submit(named("wide", steps=40), slots=0)
    hand.slots = 4
    hand.commit()
    assert len(hand.names()) == 4
    narrow = graph(step("n0"), step("n1", after=["n0"]), step("n2", after=["n1"]), name="narrow")
    (task_id,) = hand.submit(narrow)
    for number in range(3):
        done = [name for name in hand.names() if name.startswith("wide")]
        hand.succeed(*done)
        assert f"n{number}" in hand.names(), "it has one of the four slots in every commit"
        hand.succeed(f"n{number}", task_id=task_id)
    assert hand.status(task_id) == "succeeded"


def test_wide_tasks_share_the_slots(hand: Hand) -> None:
    """Each of three wide tasks gets its share."""
    hand.submit(*[named(letter, steps=10) for letter in "abc"], slots=0)
    hand.slots = 6
    hand.commit()
    assert sorted(name[0] for name in hand.names()) == ["a", "a", "b", "b", "c", "c"]


def test_a_step_that_crashed_its_worker_runs_isolated(checked: Database) -> None:
    """It waits until nothing else runs, and nothing is claimed before it has begun."""
    victim, survivor = Hand(checked), Hand(checked)
    poison = victim.start(graph(step("poison"), name="poisonous"))
    survivor.start(graph(step("beside"), name="innocent"))
    lose(victim)
    assert "step.lost" in victim.types(poison)
    survivor.commit()
    late = survivor.start(graph(step("late"), name="late"))
    assert survivor.names() == ["beside"]
    survivor.succeed("beside")
    assert survivor.names() == ["poison"]
    assert survivor.claimed("poison").attempt == 2
    survivor.succeed("poison")
    survivor.commit()
    assert survivor.names() == ["late"]
    survivor.succeed("late")
    assert survivor.status(late) == "succeeded"
    victim.close()
    survivor.close()


def test_a_step_in_another_process_is_not_isolated_after_a_crash(checked: Database) -> None:
    """It cannot have taken its worker down: its next attempt runs beside others."""
    victim, survivor = Hand(checked), Hand(checked)
    contained = graph(step("away", executor={"name": "process"}), name="contained")
    victim.start(contained)
    survivor.start(graph(step("beside"), name="innocent"))
    lose(victim)
    survivor.commit()
    assert sorted(survivor.names()) == ["away", "beside"]
    assert survivor.claimed("away").attempt == 2
    survivor.succeed("away", "beside")
    victim.close()
    survivor.close()


def test_nothing_starts_beside_an_isolated_step(start: Start, checked: Database) -> None:
    """While it runs, due work waits; afterwards everything goes on."""
    gate = Gate()
    victim = Hand(checked)
    poison = victim.start(graph(step("p", "gated", given={"gate": gate.name}), name="poisonous"))
    lose(victim)
    victim.close()
    engine = start()
    eventually(lambda: gate.entered == 1)
    others = [engine.submit(graph(step("a"))) for _ in range(3)]
    assert {engine.status(task_id) for task_id in others} == {"running"}
    gate.open()
    engine.wait(poison, "succeeded")
    for task_id in others:
        engine.wait(task_id, "succeeded")
    order = engine.rows(
        "SELECT task_id, type FROM events WHERE type IN ('step.claimed', 'step.succeeded')"
        " AND attempt IS NOT NULL ORDER BY id"
    )
    begun = max(number for number, row in enumerate(order) if row == (poison, "step.claimed"))
    assert order[begun + 1] == (poison, "step.succeeded")


def test_one_task_per_dedupe_key(hand: Hand) -> None:
    """In one commit, in a later one, and from another process: the same key is the same task."""
    twice = [Submission(graph=named("a"), dedupe_key="k") for _ in range(2)]
    created = hand.commit(Batch(submissions=twice)).result.created
    (task_id,) = set(created.values())
    assert hand.committer.session.tx_number == 1, "the commit had to be split"
    assert hand.submit(named("a"), dedupe_key="k") == [task_id]
    again = hand.operator.submit(Submission(graph=named("b"), dedupe_key="k"))
    assert again == task_id
    assert hand.submit(named("a"), dedupe_key="other") != [task_id]
    assert hand.rows("SELECT count(*) FROM tasks") == [(2,)]


def test_two_processes_submit_under_one_dedupe_key(postgres_database: Database) -> None:
    """Both get the same task."""
    key = "only-once"
    operator = Operator(postgres_database, postgres_database.clock)
    answers: list[str] = []
    submission = Submission(graph=named("a"), dedupe_key=key)
    slower = Submission(graph=named("a"), dedupe_key=key)
    thread = threading.Thread(target=lambda: answers.append(operator.submit(slower)))
    with (
        postgres_database.connect("reader") as reader,
        postgres_database.connect("writer") as tx,
        tx.transaction(),
    ):
        now = postgres_database.clock.now()
        locked = creation.create(tx, submission, creation.register(tx, submission, now), now)
        row_writer.write(tx, [locked], locked.now)
        tx.query("SELECT 1")
        thread.start()
        eventually(
            lambda: reader.query(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            ),
            "the other one waits",
        )
    thread.join(60)
    assert answers == [submission.task_id]


def test_an_outcome_whose_task_is_unlocked_during_the_commit(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A due task that was locked when its outcome arrived is not loaded in part."""
    hand = Hand(postgres_database, slots=1)
    task_id = hand.start(graph(step("a"), step("b")))
    assert hand.names() == ["a"]
    holder = postgres_database.connect("writer")
    holder._begin()
    holder.query("SELECT id FROM tasks FOR NO KEY UPDATE")
    begin = begin_tx.begin

    def begin_and_free(*arguments: Any, **options: Any) -> begin_tx.TxStart:
        opened = begin(*arguments, **options)
        holder._rollback()
        return opened

    monkeypatch.setattr(begin_tx, "begin", begin_and_free)
    result = hand.succeed("a").result
    monkeypatch.undo()
    hand.commit(Batch(completions=result.carried_completions))
    assert hand.names() == ["b"]
    hand.succeed("b")
    assert hand.status(task_id) == "succeeded"
    holder.close()
    hand.close()


def test_a_submission_under_a_taken_key_returns_the_existing_task(engine: Engine) -> None:
    """Within one process too."""
    first = engine.submit(graph(step("a")), dedupe_key="k")
    assert engine.submit(graph(step("a")), dedupe_key="k") == first
    engine.wait(first, "succeeded")
    assert engine.submit(graph(step("a")), dedupe_key="k") == first, "also when it has ended"


def test_isolated_steps_run_one_after_another(start: Start, checked: Database) -> None:
    """After a crash lost six items, none of them runs beside another."""
    gate = Gate()
    items = step("p", "gated", given={"gate": gate.name}, fanout=Fanout(count=6))
    victim = Hand(checked)
    task_id = victim.start(graph(items, name="poisonous"))
    victim.settle({"p": Succeeded(items=list(range(6)))})
    assert len(victim.names()) == 6
    lose(victim)
    victim.close()
    engine = start()
    eventually(lambda: gate.entered == 1)
    gate.open()
    engine.wait(task_id, "succeeded")
    events = engine.rows(
        "SELECT type, step_id FROM events WHERE type IN ('step.claimed', 'step.succeeded')"
        " AND attempt = 2 AND id > (SELECT max(id) FROM events WHERE type = 'step.lost') ORDER BY id"
    )
    assert len(events) == 12
    for claimed, succeeded in zip(events[::2], events[1::2], strict=True):
        assert (claimed[0], succeeded[0]) == ("step.claimed", "step.succeeded")
        assert claimed[1] == succeeded[1]


def test_a_crash_of_an_isolated_step_is_attributed_to_it(checked: Database) -> None:
    """Beside other steps its attempt is only lost; isolated, the error names it as the cause."""
    first, second, third = Hand(checked), Hand(checked), Hand(checked)
    policy = RetryPolicy(max_attempts=2, delay_seconds=0, jitter=False)
    task_id = first.start(graph(step("poison", retry=policy), name="poisonous"))
    other_id = first.start(graph(step("beside", retry=policy), name="innocent"))
    lose(first)
    lost = {"code": "lost", "class": "crash", "message": "its worker died", "attempt": 1}
    assert first.steps(task_id)["poison"]["error"] == lost
    assert first.steps(other_id)["beside"]["error"] == lost
    second.commit()
    assert second.names() == ["poison"]
    lose(second)
    error = second.steps(task_id)["poison"]["error"]
    assert error["code"] == "process_died"
    assert error["message"].startswith("the process died while this step ran isolated")
    assert second.steps(other_id)["beside"]["error"] == lost
    third.commit()
    claimed = third.claimed("beside") if "beside" in third.names() else third.claimed("poison")
    last = claimed if claimed.step.name == "poison" else None
    if last is None:
        third.succeed("beside")
        last = third.claimed("poison")
    message = attempts_exhausted_error(last).message
    assert message.startswith("attempts exhausted: all 2 were used; the process died while this")
    for hand in (first, second, third):
        hand.close()


def test_others_beside_an_isolated_step_leave_the_cause_open(checked: Database) -> None:
    """Once its isolation has timed out others run beside it, and any of them may be the cause."""
    first, second = Hand(checked), Hand(checked)
    task_id = first.start(graph(step("poison"), name="poisonous"))
    lose(first)
    second.commit()
    assert second.names() == ["poison"]
    second.start(graph(step("beside"), name="innocent"))
    assert second.names() == ["beside", "poison"]
    lose(second)
    assert second.steps(task_id)["poison"]["error"]["code"] == "lost"
    first.close()
    second.close()
