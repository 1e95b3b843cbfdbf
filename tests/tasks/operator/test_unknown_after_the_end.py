"""Effects of tasks that have ended whose result was never recorded: shown, counted, and resolved."""

from collections import Counter
from typing import Any

import pytest

from agent.approvals.answering import Verdict
from agent.steps.types.outcome import Failed, Retry, StepError, Succeeded
from agent.tasks.commit.batch import Batch
from agent.tasks.errors import RefusedError
from agent.tasks.read_models import step_attempts, task_documents
from tests.support.approvals import resolve
from tests.support.engine import Hand, graph, settle_of, step
from tests.support.interventions import intend

EFFECTS = graph(step("pay"), step("rest", after=["pay"]))


def _canceled(hand: Hand, on_unknown: str = "ask") -> str:
    """Cancel a task while one of its steps makes an effect."""
    task_id = hand.start(EFFECTS)
    intend(hand, hand.claimed("pay", task_id), on_unknown)
    hand.operator.cancel(task_id)
    return task_id


def _task(hand: Hand, task_id: str) -> dict[str, Any]:
    with hand.database.connect("reader") as connection:
        return task_documents.task_document(connection, task_id)


def _step(hand: Hand, task_id: str) -> dict[str, Any]:
    with hand.database.connect("reader") as connection:
        return step_attempts.step_document(connection, task_id, "pay")


def test_a_cancel_says_that_an_effect_may_have_happened(hand: Hand) -> None:
    """Its answer, the task, the step and an event say so; the event is what metrics count."""
    task_id = hand.start(EFFECTS)
    intend(hand, hand.claimed("pay", task_id))
    message = hand.operator.cancel(task_id).message
    assert message == "canceled; what these steps were doing may have happened: pay"
    assert Counter(hand.types(task_id))["tool_call.unknown"] == 1
    (effect,) = _task(hand, task_id)["unknown_effects"]
    assert (effect["step"], effect["action"]) == ("pay", "pay#1")
    shown = _step(hand, task_id)
    assert shown["unknown_effects"] == [effect]
    assert [attempt["status"] for attempt in shown["attempts"]] == ["canceled"]


@pytest.mark.parametrize("on_unknown", ["retry", None])
def test_a_cancel_reports_only_effects_that_matter(hand: Hand, on_unknown: str | None) -> None:
    """Calls that are safe to repeat, and steps without calls, are not reported."""
    task_id = hand.start(EFFECTS)
    if on_unknown is not None:
        intend(hand, hand.claimed("pay", task_id), on_unknown)
    assert hand.operator.cancel(task_id).message == "canceled"
    assert "tool_call.unknown" not in hand.types(task_id)
    assert _task(hand, task_id)["unknown_effects"] == []


def test_an_abandoned_attempt_is_recorded_once(hand: Hand) -> None:
    """The event `step.abandoned` comes with the late outcome, and not with the cancel too."""
    task_id = hand.start(EFFECTS)
    late = settle_of(hand.claimed("pay", task_id), Succeeded(1))
    hand.operator.cancel(task_id)
    hand.commit(Batch(completions=[late]))
    assert Counter(hand.types(task_id))["step.abandoned"] == 1


@pytest.mark.parametrize(("verdict", "status"), [("done", "succeeded"), ("retry", "failed")])
def test_the_effect_of_a_canceled_task_is_resolved(
    hand: Hand, verdict: Verdict, status: str
) -> None:
    """The ledger has the verdict and the event its author; the task stays canceled, and a retry knows."""
    task_id = _canceled(hand)
    output = {"paid": 5} if verdict == "done" else None
    result = resolve(hand.database, task_id, "pay", verdict, output, by="ada")
    assert result.message.startswith("recorded: pay#1 of step 'pay'")
    assert hand.status(task_id) == "canceled"
    assert hand.rows("SELECT status FROM idempotency_outcomes") == [(status,)]
    (data,) = [
        data for kind, _, _, data in hand.events(task_id) if kind == "tool_call.resolved" and data
    ]
    assert (data["status"], data["by"]) == (status, "terminal:ada")
    assert _task(hand, task_id)["unknown_effects"] == []
    with pytest.raises(RefusedError, match="no unknown effect"):
        resolve(hand.database, task_id, "pay", "done")
    again = hand.operator.retry(task_id).task_id
    hand.commit()
    calls = hand.claimed("pay", again).calls
    assert [call.response for call in calls] == ([output] if verdict == "done" else [])


def test_a_verdict_after_the_end_says_whether_it_happened(hand: Hand) -> None:
    """There is nothing to give up; and while the effect may be under way, it is too early to say."""
    task_id = _canceled(hand)
    with pytest.raises(RefusedError, match="whether it happened"):
        resolve(hand.database, task_id, "pay", "fail")
    with hand.database.connect("writer") as connection:
        connection.execute("UPDATE tool_calls SET expires_at = expires_at + 60000000")
    with pytest.raises(RefusedError, match="may still be under way; try again in"):
        resolve(hand.database, task_id, "pay", "done")


def test_a_retried_task_leaves_its_unknown_effects_to_the_retry(hand: Hand) -> None:
    """The retry asks, so the earlier task takes no verdict."""
    task_id = _canceled(hand)
    again = hand.operator.retry(task_id).task_id
    with pytest.raises(RefusedError, match=f"retried as {again}"):
        resolve(hand.database, task_id, "pay", "done")
    assert _task(hand, task_id)["unknown_effects"] == []


def test_a_failed_task_shows_what_may_have_happened(hand: Hand) -> None:
    """A step that was stopped by the failure of another may have acted."""
    task_id = hand.start(graph(step("pay"), step("breaks")))
    intend(hand, hand.claimed("pay", task_id))
    error = StepError("broken", "user", "it broke")
    hand.settle({"breaks": Failed(error)}, task_id)
    lost = StepError("interrupted", "unknown", "stopped")
    hand.settle({"pay": Retry(lost, is_unknown=True)}, task_id)
    assert hand.status(task_id) == "failed"
    assert [effect["step"] for effect in _task(hand, task_id)["unknown_effects"]] == ["pay"]
    resolve(hand.database, task_id, "pay", "done")
    assert hand.status(task_id) == "failed"
