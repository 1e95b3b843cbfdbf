"""Step functions for the tests of traces."""

from typing import Any

import structlog

from agent.steps.attempt.context import StepContext


async def log_keys() -> dict[str, Any]:
    """Return what every line of this attempt's log contains."""
    return dict(structlog.contextvars.get_contextvars())


async def fail_once(ctx: StepContext) -> int:
    """Fail at the first attempt."""
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return ctx.attempt
