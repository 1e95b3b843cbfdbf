"""The `approval` kind: a step that asks a person, and succeeds when the answer is yes."""

from agent.core.state_machine import ApprovalStatus
from agent.steps import gate
from agent.steps.asking import ApprovalConfig
from agent.steps.context import StepContext
from agent.steps.outcome import Outcome, Succeeded


async def run(config: ApprovalConfig, context: StepContext) -> Outcome:
    """Ask, or take the answer; a denial has failed the step already."""
    request = {"kind": "approval", "message": config.message}
    found = gate.find(context.claimed, request, ApprovalStatus.APPROVED)
    if found is not None:
        return Succeeded(gate.answered(found))
    return gate.ask("approval", config, request, context.checkpoint)
