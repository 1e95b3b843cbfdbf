"""The `agent` kind: a model pursues a goal, turn by turn, with the tools that it was given.

Each turn and each use of a tool is a journaled call whose request does not grow with the
conversation. A later attempt goes through the same loop and is answered from the record.
"""

from typing import Final

from agent.core.ids import request_hash
from agent.models.protocol import Message, ModelRequest
from agent.steps.agent.tool_snapshot import shown
from agent.steps.agent.toolbox import Toolbox
from agent.steps.agent.tools.mcp_sessions import Sessions, load_sdk
from agent.steps.agent.use_tool import INSTRUCTION, ToolUser, stop_if_paused
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.secrets import references
from agent.steps.kinds import python
from agent.steps.kinds.llm import model_calls, model_output
from agent.steps.kinds.llm.llm import instruction
from agent.steps.kinds.llm.model_calls import ModelAnswer
from agent.steps.kinds.llm.model_output import ValidOutput
from agent.steps.spec.agent_config import AgentConfig
from agent.steps.types.outcome import Failed, Json, Outcome, StepError, Succeeded

_MAX_USES: Final = 50
"""Of tools in one turn."""


async def ready(config: AgentConfig, context: StepContext) -> None:
    """Load the SDKs of the model's provider and of MCP: that is no part of the step's time."""
    await model_calls.load(context, config.model)
    if any(tool.mcp is not None for tool in config.tools.values()):
        await load_sdk()


async def run(config: AgentConfig, context: StepContext) -> Outcome:
    """Go on until the model is done, or a limit says that it is enough."""
    sessions = Sessions(context)
    try:
        return await _loop(config, context, sessions)
    finally:
        await sessions.aclose()


async def _loop(config: AgentConfig, context: StepContext, sessions: Sessions) -> Outcome:
    model = model_calls.model_named(context, config.model)
    max_tokens = model_calls.answer_tokens(context, model, config.max_tokens)
    _hide_secrets(config, context)
    found = await shown(config, context, sessions)
    for tool in config.tools.values():
        if tool.allowed and tool.python is not None:
            await python.load(tool.python, context)
    toolbox = Toolbox(config, context, found, sessions)
    user = ToolUser(config, context, toolbox)
    tools = toolbox.described
    system = _system(config, context, has_tools=bool(tools))
    messages = [Message("user", str(config.goal))]
    repeats = _RepeatDetector(config.max_repeats)
    turn, turns_left = 0, config.max_turns
    while turns_left > 0:
        turn += 1
        stop_if_paused(context)
        request = ModelRequest(
            messages=tuple(messages),
            max_tokens=max_tokens,
            system=system,
            effort=config.effort,
            temperature=config.temperature,
            tools=tools,
        )
        body = _body(turn, config, [tool.name for tool in tools])
        said = await model_calls.ask(context, model, request, body, on_unknown="retry", leads=True)
        error = model_calls.failure_of(said, model, max_tokens) or _too_many(said)
        if not said.is_inherited:
            turns_left -= 1
            error = error or repeats.problem(said)
            if error is not None:
                return Failed(error)
        elif error is not None:
            # It ended the task that this one is a retry of, which has turns of its own.
            continue
        messages.append(said.message())
        if said.tool_uses:
            for place, use in enumerate(said.tool_uses):
                messages.append(await user.use(turn, place, use))
            continue
        answer = model_calls.read(context, said)
        if isinstance(answer, ValidOutput):
            return Succeeded(answer.value)
        text = f"That answer cannot be used: {answer.error.message}\nGive the whole answer again."
        messages.append(Message("user", text))
    text = f"the goal was not reached within max_turns = {config.max_turns}"
    return Failed(StepError("max_turns", "limit", text))


def _hide_secrets(config: AgentConfig, context: StepContext) -> None:
    """Let no tool write down another's secret, wherever in the loop this attempt begins."""
    context.secrets.hide(context.claimed.step.config, context.secret_places)
    for tool in config.tools.values():
        server = context.services.mcp.get(tool.mcp.server) if tool.mcp is not None else None
        if server is not None:
            values = {"env": server.env, "headers": server.headers}
            context.secrets.hide(values, frozenset(references(values)))


def _system(config: AgentConfig, context: StepContext, *, has_tools: bool) -> str | None:
    schema = context.claimed.step.output_schema
    parts = [config.system or ""]
    if has_tools:
        parts.append(INSTRUCTION)
    if model_output.wants_json(False, schema):
        parts.append(f"When you are done: {instruction(schema)}")
    return "\n\n".join(part for part in parts if part) or None


def _body(turn: int, config: AgentConfig, tools: list[str]) -> Json:
    """Return what is on record of a question: the goal once, then no more than its number."""
    if turn > 1:
        return {"turn": turn}
    first: dict[str, Json] = {"turn": 1, "goal": config.goal, "tools": tools}
    return first if config.system is None else {**first, "system": config.system}


def _too_many(said: ModelAnswer) -> StepError | None:
    if len(said.tool_uses) <= _MAX_USES:
        return None
    text = f"the model asked for {len(said.tool_uses)} tools at once, of {_MAX_USES}"
    return StepError("too_many_uses", "limit", text)


class _RepeatDetector:
    """Notices a model that asks for the very same again and again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last = ""
        self._count = 0

    def problem(self, said: ModelAnswer) -> StepError | None:
        """Count a turn, and say whether that was one too many."""
        wished = [[use.name, use.arguments] for use in said.tool_uses]
        digest = request_hash(wished) if wished else ""
        self._count = self._count + 1 if digest and digest == self._last else 1
        self._last = digest
        if not digest or self._count <= self._most:
            return None
        names = ", ".join(use.name for use in said.tool_uses)
        text = f"the model asked for the very same {self._count} times in a row: {names}"
        return StepError("repeated_calls", "limit", text)
