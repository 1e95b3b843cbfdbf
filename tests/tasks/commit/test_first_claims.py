"""`now` is recorded with the first claim of a step: every attempt sees the same, retries too."""

from agent.core.waits import UnknownCall
from agent.steps.types.outcome import Succeeded, Waiting
from agent.workflows.graph import Fanout
from tests.support.engine import RETRY, Hand, graph, step
from tests.support.interventions import intend


def test_all_attempts_of_a_step_see_the_first_claim(hand: Hand) -> None:
    """A retry an hour later has the same `now`; a step that does not read it has none."""
    hand.start(graph(step("a", reads_now=True), step("b")))
    first = hand.claimed("a").now
    assert first is not None
    assert hand.claimed("b").now is None
    hand.skip(3600)
    hand.settle({"a": RETRY})
    hand.commit()
    assert hand.claimed("a").attempt == 2
    assert hand.claimed("a").now == first


def test_a_retried_task_keeps_it_for_calls_on_record(hand: Hand) -> None:
    """An unknown call is compared with what the step would send now: the time must be the same."""
    task_id = hand.start(graph(step("pay", reads_now=True)))
    first = hand.claimed("pay").now
    hand.settle({"pay": Waiting(UnknownCall(intend(hand, hand.claimed("pay"))))})
    hand.operator.cancel(task_id)
    hand.skip(3600)
    second = hand.operator.retry(task_id).task_id
    hand.commit()
    assert hand.claimed("pay", second).now == first
    hand.operator.cancel(second)
    hand.skip(3600)
    third = hand.operator.retry(second).task_id
    hand.commit()
    assert hand.claimed("pay", third).now == first


def test_a_retried_task_without_calls_reads_the_time_again(hand: Hand) -> None:
    """Nothing was sent: the retry is a new try at a new time."""
    task_id = hand.start(graph(step("a", reads_now=True)))
    first = hand.claimed("a").now
    hand.fail("a")
    hand.skip(3600)
    again = hand.operator.retry(task_id).task_id
    hand.commit()
    later = hand.claimed("a", again).now
    assert first is not None and later is not None and later > first


def test_items_have_their_own_first_claim(hand: Hand) -> None:
    """Each item is a step of its own."""
    hand.start(graph(step("g", reads_now=True, fanout=Fanout(items=[1, 2], concurrency=1))))
    hand.settle({"g": Succeeded(items=[1, 2])})
    first = hand.claimed("g[0]").now
    hand.skip(60)
    hand.succeed("g[0]")
    second = hand.claimed("g[1]").now
    assert first is not None and second is not None and second > first
