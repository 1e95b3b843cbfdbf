"""The `input` kind: a step that asks a person for a value."""

from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt import approval_gate
from agent.steps.attempt.context import StepContext
from agent.steps.spec.questions import InputConfig
from agent.steps.types.outcome import Outcome, Succeeded


async def run(config: InputConfig, context: StepContext) -> Outcome:
    """Ask, or take the answer, which was checked when it was given."""
    request = {
        "kind": "input",
        "message": config.message,
        "choices": config.choices,
        "schema": config.schema_,
    }
    found = approval_gate.find(context.claimed, request, ApprovalStatus.ANSWERED)
    if found is not None:
        return Succeeded(approval_gate.answered(found))
    return approval_gate.ask("input", config, request, context.checkpoint)
