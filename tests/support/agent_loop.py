"""Steps of the kind `agent` whose model follows a script, and what their tools answered."""

import json
from typing import Any

from agent.core.ids import request_hash
from agent.core.state_machine import ApprovalStatus
from agent.models.registry import ModelRegistry
from agent.steps.types.call_records import RecordedApproval
from agent.steps.types.outcome import Failed, Outcome, Question, Waiting
from tests.support.attempt import Trial


def uses(*tool_uses: tuple[str, Any]) -> dict[str, Any]:
    """Return a turn of the script that asks for tools."""
    return {"tool_uses": [{"name": name, "arguments": arguments} for name, arguments in tool_uses]}


def trial(script: list[Any], tools: dict[str, Any], **options: Any) -> Trial:
    """Return a trial of an `agent` step whose model follows a script."""
    goal = f"do it\n```echo\n{json.dumps(script)}\n```"
    config = {"goal": goal, "model": "echo", "tools": tools, **options.pop("config", {})}
    made = Trial("agent", config, **options)
    made.services.models = ModelRegistry(default="echo")
    return made


def answers(made: Trial) -> list[Any]:
    """Return the responses of the tools, in order."""
    results = {result.call_id: result.response for result in made.journal.results}
    return [
        results.get(intent.call_id)
        for _, intent in made.journal.intents
        if intent.action.startswith("tool")
    ]


def failed(outcome: Outcome) -> str:
    """Return the code of a failure."""
    assert isinstance(outcome, Failed), outcome
    return outcome.error.code


def approved(made: Trial, status: ApprovalStatus, outcome: Outcome) -> None:
    """Answer the question that an attempt ended with."""
    assert isinstance(outcome, Waiting), outcome
    assert isinstance(outcome.on, Question)
    digest = request_hash(outcome.on.request)
    made.claim.setdefault("approvals", []).append(
        RecordedApproval(
            f"a{len(made.claim.get('approvals', []))}",
            "tool",
            status,
            digest,
            digest if status == ApprovalStatus.APPROVED else None,
            "ada",
            "terminal",
            "not today",
            None,
            None,
        )
    )
