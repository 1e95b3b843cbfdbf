"""A step's own checkpoint, after a question: what the engine saves around it stays the engine's."""

import json

import pytest

from agent.approvals import answering
from agent.approvals.permission import terminal_user
from agent.core.waits import Timer
from agent.steps.attempt.approval_gate import own_checkpoint
from agent.steps.types.outcome import Question, Waiting
from tests.support.engine import Hand, graph, step
from tests.support.work_bench import WorkBench, worker_step


def ask_and_approve(hand: Hand, name: str, saved: object) -> None:
    """Let a step ask with a checkpoint, and go on."""
    hand.settle({name: Waiting(Question("approval", "go on?", {}), None, saved)})
    ((approval_id,),) = hand.rows("SELECT id FROM approvals")
    person = terminal_user("tester")
    answering.answer(hand.database, approval_id, "approve", principal=person)
    hand.commit()


@pytest.mark.parametrize("saved", [None, {"page": 3}])
def test_work_has_the_checkpoint_of_its_step(hand: Hand, saved: object) -> None:
    """The worker that claims the work after the answer gets what was saved, and nothing else."""
    bench = WorkBench(hand)
    hand.start(graph(worker_step()))
    ask_and_approve(hand, "w", saved)
    bench.offer()
    (leased,) = bench.claim_all()
    assert json.loads(leased.checkpoint or "null") == saved


@pytest.mark.parametrize("saved", [None, {"page": 3}])
def test_a_wait_after_a_question_keeps_the_checkpoint(hand: Hand, saved: object) -> None:
    """The next attempt finds it as it was, although its last wait was no question."""
    hand.start(graph(step("a")))
    ask_and_approve(hand, "a", saved)
    soon = hand.clock.now()
    hand.settle({"a": Waiting(Timer(soon), soon)})
    hand.commit()
    assert own_checkpoint(hand.claimed("a")) == saved
