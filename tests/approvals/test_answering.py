"""Answers: only the first one counts, and only from allowed people."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent.approvals.answering import AnswerVerb, DecidedError, InvalidAnswerError
from agent.approvals.permission import NotAllowedError, Principal, check_answer
from agent.core.state_machine import APPROVAL, ApprovalStatus, ForbiddenMoveError, moved
from agent.tasks.errors import NotFoundError
from tests.support.approvals import (
    asked,
    asks,
    caller,
    everything,
    gated,
    one_step,
    pending,
    say,
    token,
)
from tests.support.engine import Engine, eventually, graph
from tests.support.step_functions import runs


@pytest.mark.parametrize("state", list(ApprovalStatus))
@pytest.mark.parametrize("event", list(APPROVAL))
def test_every_cell_of_the_machine(state: ApprovalStatus, event: str) -> None:
    """Every event ends a pending approval in the state it names; nothing leaves an end."""
    if state == ApprovalStatus.PENDING:
        assert moved(APPROVAL, event, state) == event.removeprefix("approval.")
        return
    with pytest.raises(ForbiddenMoveError):
        moved(APPROVAL, event, state)


def test_a_later_answer_gets_the_decision(engine: Engine) -> None:
    """The second answer changes nothing, and returns what was decided and by whom."""
    counted = token()
    task_id, approval = asked(engine, gated("pay", counted))
    say(engine, approval, "approve", by="ada")
    before = engine.wait(task_id, "succeeded")
    for decision in ("approve", "deny"):
        with pytest.raises(DecidedError, match=r"approved already by ada \(terminal\)"):
            say(engine, approval, decision, by="bob")
    assert engine.document(task_id) == before
    assert runs[counted] == [("pay", None, 1)]


def test_an_answer_to_a_missing_approval_is_refused(engine: Engine) -> None:
    """The message names the id."""
    with pytest.raises(NotFoundError, match="there is no approval"):
        say(engine, "0199-nothing", "approve")


@pytest.mark.parametrize(
    ("decision", "more", "problem"),
    [
        ("answer", {"value": "yes"}, "approve or deny it"),
        ("deny", {"edits": {"with": {}}}, "only an approval takes edits"),
        ("approve", {"value": 1}, "takes no value"),
        ("approve", {"comment": "\0"}, "the answer"),
        ("approve", {"comment": "x" * 10_001}, "longer than"),
        ("approve", {"edits": {"with.value": 1}}, "nothing may"),
    ],
)
def test_an_answer_that_does_not_fit_decides_nothing(
    engine: Engine, decision: AnswerVerb, more: dict[str, Any], problem: str
) -> None:
    """It is refused with the reason, and the question stands."""
    task_id, approval = asked(engine, gated("pay", token()))
    with pytest.raises(InvalidAnswerError, match=problem):
        say(engine, approval, decision, **more)
    assert [found["id"] for found in pending(engine, task_id)] == [approval["id"]]


def test_only_those_named_may_answer(engine: Engine) -> None:
    """The question's list of people and channels is checked before anything else."""
    task_id, approval = asked(engine, asks("ask", who=["terminal:ada", "telegram:77"]))
    assert approval["who"] == ["terminal:ada", "telegram:77"]
    for refused in (
        {"by": "bob"},
        {"by": "77", "channel": "telegram"},
        {"by": "78", "channel": "telegram", "is_paired": True},
        {"by": "ada", "channel": "api"},
        {"by": "ada", "channel": "pigeon"},
    ):
        with pytest.raises(NotAllowedError):
            say(engine, approval, "approve", **refused)
    assert len(pending(engine, task_id)) == 1
    say(engine, approval, "approve", by="77", channel="telegram", is_paired=True)
    engine.wait(task_id, "succeeded")


def test_permission_to_answer() -> None:
    """In a chat only paired people; the name of a channel allows everyone there."""
    check_answer(caller("ada", "terminal"), [])
    check_answer(caller("key 1", "api"), [])
    check_answer(caller("U1", "slack", is_paired=True), ["slack"])
    for who, principal in (
        ([], caller("77", "telegram")),
        (["telegram"], caller("77", "telegram")),
        (["api"], caller("ada", "terminal")),
        (["terminal:ada"], caller("ad", "terminal")),
        ([], Principal("api", "phone", frozenset({"read", "operate"}))),
    ):
        with pytest.raises(NotAllowedError):
            check_answer(principal, who)


@pytest.mark.parametrize("seed", [1, 2])
def test_many_answers_at_once_decide_each_question_once(engine: Engine, seed: int) -> None:
    """Many concurrent answers: exactly one counts."""
    definition, counted = one_step()
    task_ids = [engine.submit(definition) for _ in range(12)]
    eventually(lambda: len(pending(engine)) == len(task_ids))
    dice = random.Random(seed)
    plan = [
        (approval, dice.choice(["approve", "deny"]), f"p{person}")
        for approval in pending(engine)
        for person in range(4)
    ]
    dice.shuffle(plan)

    def answer(planned: tuple[dict[str, Any], AnswerVerb, str]) -> tuple[str, str, str] | None:
        approval, decision, by = planned
        try:
            return approval["id"], say(engine, approval, decision, by=by).status, by
        except DecidedError:
            return None

    with ThreadPoolExecutor(6) as people:
        counted_answers = [won for won in people.map(answer, plan) if won is not None]
    winners = {approval_id: (status, by) for approval_id, status, by in counted_answers}
    assert len(counted_answers) == len(winners) == len(task_ids)
    for task_id in task_ids:
        engine.wait(task_id, "succeeded", "failed")
        (decided,) = everything(engine, task_id)
        assert winners[decided["id"]] == (decided["status"], decided["decision"]["by"])
        is_approved = decided["status"] == "approved"
        assert engine.status(task_id) == ("succeeded" if is_approved else "failed")
        assert engine.types(task_id).count("approval.decided") == 1
    approved = Counter(status for status, _ in winners.values())["approved"]
    assert len(runs[counted]) == approved


def test_an_answer_wakes_the_worker_at_once(engine: Engine) -> None:
    """The answer's commit notifies it; no loop has to poll."""
    definition, _ = one_step()
    task_id = engine.submit(definition)
    eventually(lambda: len(pending(engine)) == 1)
    (approval,) = pending(engine)
    started = time.monotonic()
    say(engine, approval, "approve")
    engine.wait(task_id, "succeeded")
    assert time.monotonic() - started < 30, "the machine may be slow; it takes some milliseconds"


def test_an_answer_finds_its_step_after_a_restart(start: Any) -> None:
    """A question asked by one worker is answered while none runs, and taken up by the next."""
    first = start()
    counted = token()
    task_id, approval = asked(first, gated("pay", counted), gated("more", counted))
    eventually(lambda: len(pending(first, task_id)) == 2)
    first.stop()
    say(first, approval, "approve")
    second = start()
    (left,) = pending(second, task_id)
    say(second, left, "approve")
    assert second.wait(task_id, "succeeded")["output"] == {"pay": 12, "more": 12}
    assert len(runs[counted]) == 2


def test_a_new_task_asks_again(engine: Engine) -> None:
    """An approval for one task does not hold for the task that retries it."""
    pay = gated("pay", token())
    task_id, approval = asked(engine, pay, name="again")
    say(engine, approval, "deny")
    engine.wait(task_id, "failed")
    retried = engine.operator.retry(task_id).task_id
    eventually(lambda: len(pending(engine, retried)) == 1)
    (question,) = pending(engine, retried)
    say(engine, question, "approve")
    engine.wait(retried, "succeeded")
    assert graph(pay).steps[0].approval is not None
