"""Questions of tools to people while a model uses them: the step parks, and the answer goes to the tool.

An MCP server may ask for input in the middle of a call (elicitation). The question is recorded as the answer
of that round; the next round repeats the call with the person's answers. A model never sees the question.
"""

from typing import Final
from urllib.parse import urlsplit

from agent.core.state_machine import ApprovalStatus
from agent.models.protocol import clean
from agent.steps.attempt import approval_gate
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import AgentConfig
from agent.steps.types.call_records import RecordedApproval
from agent.steps.types.outcome import Json, Question, Waiting

DECLINE: Final = "decline"
_OPENED: Final = "opened"
_MAX_MESSAGE: Final = 4000


def asked_by(response: Json) -> dict[str, Json] | None:
    """Return the question in a recorded answer of a tool; None if it is a plain answer."""
    asks = response.get("asks") if isinstance(response, dict) else None
    return asks if isinstance(asks, dict) else None


class Person:
    """The person whom a tool asks, by the rules of the step."""

    def __init__(
        self, tool: str, body: dict[str, Json], config: AgentConfig, context: StepContext
    ) -> None:
        self._tool = tool
        self._body = body
        self._config = config
        self._context = context

    def answers(self, asks: dict[str, Json], *, may_ask: bool) -> dict[str, Json]:
        """Return the person's answers by their keys; ask for the first that is missing.

        To ask ends the attempt: the step is parked, and its next attempt comes here again.
        """
        answers = {}
        for key, request in sorted(asks.items()):
            shown = {**self._body, "asks": request}
            approval = approval_gate.find_approval(
                self._context.attempt_input, shown, ApprovalStatus.ANSWERED
            )
            if approval is not None:
                answers[key] = self._answer(request, approval)
            elif may_ask:
                question = self._question(request, shown)
                self._context.calls.end_attempt(Waiting(question, None, self._context.checkpoint))
        return answers

    def _answer(self, request: dict[str, Json], approval: RecordedApproval) -> Json:
        if approval.value == DECLINE:
            return {"action": DECLINE}
        if "url" in request:
            return {"action": "accept"}
        return {"action": "accept", "content": approval.value}

    def _question(self, request: dict[str, Json], shown: dict[str, Json]) -> Question:
        message = clean(str(request["message"]))[:_MAX_MESSAGE]
        text = f"The tool {self._tool} of step {self._context.step} asks: {message}"
        choices, schema = None, None
        if "url" in request:
            text += f"\nIt wants you to open {request['url']}"
            choices = [_OPENED, DECLINE]
        else:
            schema = {"anyOf": [request["schema"], {"const": DECLINE}]}
        return Question(
            kind="input",
            message=text,
            request=shown,
            choices=choices,
            schema=schema,
            who=self._config.who or None,
            expires_seconds=self._config.expires,
        )


def is_web_address(url: str) -> bool:
    """Whether a person can be asked to open an address."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)
