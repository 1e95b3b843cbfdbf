"""The `input` kind: a step that asks a person for a value."""

from agent.core.state_machine import ApprovalStatus
from agent.steps import gate
from agent.steps.asking import InputConfig
from agent.steps.context import StepContext
from agent.steps.outcome import Outcome, Succeeded


async def run(config: InputConfig, context: StepContext) -> Outcome:
    """Ask, or take the answer, which was checked when it was given."""
    request = {
        "kind": "input",
        "message": config.message,
        "choices": config.choices,
        "schema": config.schema_,
    }
    found = gate.find(context.claimed, request, ApprovalStatus.ANSWERED)
    if found is not None:
        return Succeeded(gate.answered(found))
    return gate.ask("input", config, request, context.checkpoint)
