"""When a step is tried again: exponential delay, capped, with full jitter."""

from agent.workflows.graph import RetryPolicy


def delay_seconds(
    policy: RetryPolicy, attempt: int, fraction: float, asked_seconds: float | None = None
) -> float:
    """Return how long to wait after a failed attempt.

    `fraction` in [0, 1) spreads the retries of many steps over the whole delay. What a remote
    asked for (`Retry-After`) is a lower bound: trying sooner would only be refused again.
    """
    try:
        ceiling = policy.delay_seconds * policy.factor ** (attempt - 1)
    except OverflowError:
        ceiling = policy.max_delay_seconds
    ceiling = min(ceiling, policy.max_delay_seconds)
    delay = ceiling * fraction if policy.jitter else ceiling
    return max(delay, asked_seconds or 0.0)
