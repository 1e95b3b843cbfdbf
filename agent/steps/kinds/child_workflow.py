"""The `workflow` kind: requests a child task, and ends as the child does."""

from typing import Final

from agent.core.waits import Child, ChildRequest
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
    waited = context.attempt_input.waited
    if waited is None or not isinstance(waited.on, Child):
        return Waiting(ChildRequest(config.name, config.with_))
    result = waited.result
    status, error = result.get("status"), result.get("error")
    if status == "succeeded" and error is None:
        return Succeeded(result.get("output"))
    reason = error.get("message") if isinstance(error, dict) else error
    text = (
        f"the child task {waited.on.task_id} ({config.name}) {_ENDED.get(str(status), 'is gone')}"
    )
    return Failed(StepError("child_failed", "child", f"{text}: {reason}" if reason else text))
