"""The `approval` kind: a step that asks a person, and succeeds when the answer is yes."""

from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt import approval_gate
from agent.steps.attempt.context import StepContext
from agent.steps.spec.questions import ApprovalConfig
from agent.steps.types.outcome import Outcome, Succeeded


async def run(config: ApprovalConfig, context: StepContext) -> Outcome:
    """Ask, or succeed with the approval. A denial has failed the step already."""
    request = {"kind": "approval", "message": config.message}
    approval = approval_gate.find_approval(context.attempt_input, request, ApprovalStatus.APPROVED)
    if approval is not None:
        return Succeeded(approval_gate.answer_output(approval))
    return approval_gate.ask("approval", config, request, context.checkpoint)
