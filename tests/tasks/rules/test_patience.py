"""A step that did not reach its remote is tried for longer, unless it says how often it is tried."""

import pytest

from agent.steps.types.outcome import Retry, StepError
from agent.tasks.rules.settlement import PATIENT_ATTEMPTS
from agent.workflows.graph import RetryPolicy
from tests.support.engine import Hand, find_violations, graph, step


def _failed_after(hand: Hand, error: StepError, policy: RetryPolicy) -> int:
    """Return after how many attempts with this error the step fails."""
    task_id = hand.start(graph(step("a", retry=policy)))
    for attempt in range(1, 100):
        hand.settle({"a": Retry(error)}, task_id)
        if hand.status(task_id) == "failed":
            return attempt
        hand.skip(policy.max_delay_seconds)
        hand.commit(must_query_due=True)
    raise AssertionError("it never fails")


@pytest.mark.parametrize(
    ("code", "policy", "attempts"),
    [
        ("refused", RetryPolicy(), PATIENT_ATTEMPTS),
        ("dns", RetryPolicy(), PATIENT_ATTEMPTS),
        # A response that broke may be repeated, and costs something each time.
        ("timeout", RetryPolicy(), 3),
        ("refused", RetryPolicy(max_attempts=2), 2),
        ("refused", RetryPolicy(max_attempts=1), 1),
        ("refused", RetryPolicy(delay_seconds=1), 3),
    ],
)
def test_attempts_of_a_remote_that_is_not_reached(
    hand: Hand, code: str, policy: RetryPolicy, attempts: int
) -> None:
    """By default as long as nothing was sent; as often as the step says, if it does."""
    error = StepError(code, "transport", "127.0.0.1:9 refused the connection")
    assert _failed_after(hand, error, policy) == attempts
    assert find_violations(hand.database) == []


def test_other_errors_use_the_default(hand: Hand) -> None:
    """A remote that answered is not tried for longer."""
    assert _failed_after(hand, StepError("status_500", "remote", "no"), RetryPolicy()) == 3
