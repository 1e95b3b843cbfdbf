"""Step functions behind gates."""

from typing import Any

from agent.steps.attempt.context import StepContext
from tests.support.step_functions import runs


async def resumable(ctx: StepContext, token: str, attempt: int) -> Any:
    """Save, and fail once; then say what was saved. The request is another in each attempt."""
    runs[token].append((attempt, ctx.checkpoint))
    if ctx.attempt == 1:
        await ctx.save({"done": 3})
        raise ValueError("half way")
    return ctx.checkpoint


async def spend(token: str, amount: int) -> str:
    """Count what was spent, as a tool of an agent."""
    runs[token].append(amount)
    return f"spent {amount}"
