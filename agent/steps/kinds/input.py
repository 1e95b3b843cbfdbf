"""The `input` kind: a step that asks a person for a value."""

from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt import approval_gate
from agent.steps.attempt.context import StepContext
from agent.steps.spec.questions import InputConfig
from agent.steps.types.outcome import Outcome, Succeeded


async def run(config: InputConfig, context: StepContext) -> Outcome:
    """Ask, or succeed with the answer, which was checked when it came."""
    request = {
        "kind": "input",
        "message": config.message,
        "choices": config.choices,
        "schema": config.schema_,
    }
    approval = approval_gate.find_approval(context.attempt_input, request, ApprovalStatus.ANSWERED)
    if approval is not None:
        return Succeeded(approval_gate.answer_output(approval))
    return approval_gate.ask("input", config, request, context.checkpoint)
