"""The `workflow` kind: requests a child task, and ends as the child does."""

from typing import Final

from agent.steps.attempt.context import StepContext
from agent.steps.spec.configs import WorkflowConfig
from agent.steps.types.outcome import Failed, Outcome, StepError, Succeeded, Waiting

_ENDED: Final = {
    "succeeded": "has no output",
    "failed": "failed",
    "canceled": "was canceled",
}


async def run(config: WorkflowConfig, context: StepContext) -> Outcome:
    """Request the child, or end as it ended."""
    waited = context.claimed.waited
    if waited is None or "child" not in waited:
        return Waiting({"child": {"workflow": config.name, "input": config.with_}})
    status, error = waited.get("status"), waited.get("error")
    if status == "succeeded" and error is None:
        return Succeeded(waited.get("output"))
    reason = error.get("message") if isinstance(error, dict) else error
    text = f"the child task {waited['child']} ({config.name}) {_ENDED.get(str(status), 'is gone')}"
    return Failed(StepError("child_failed", "child", f"{text}: {reason}" if reason else text))
