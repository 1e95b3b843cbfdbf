"""The `approval` kind: a step that asks a person, and succeeds when the answer is yes."""

from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt import approval_gate
from agent.steps.attempt.context import StepContext
from agent.steps.spec.questions import ApprovalConfig
from agent.steps.types.outcome import Outcome, Succeeded


async def run(config: ApprovalConfig, context: StepContext) -> Outcome:
    """Ask, or take the answer; a denial has failed the step already."""
    request = {"kind": "approval", "message": config.message}
    found = approval_gate.find(context.claimed, request, ApprovalStatus.APPROVED)
    if found is not None:
        return Succeeded(approval_gate.answered(found))
    return approval_gate.ask("approval", config, request, context.checkpoint)
