"""The `agent` kind: a model pursues a goal, turn by turn, with the tools of the step.

Each turn and each use of a tool is a journaled call whose request does not grow with the
conversation. A later attempt runs the same loop and gets its answers from the record.
"""

from collections.abc import Iterator
from typing import Final

from agent.core.ids import request_hash
from agent.models.protocol import Message, ModelRequest, Tool
from agent.steps.agent.conversation import OpenConversation, open_conversation
from agent.steps.agent.tool_snapshot import take_snapshots
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
"""Tool uses in one turn."""


async def ready(config: AgentConfig, context: StepContext) -> None:
    """Load the SDKs of the model's provider and of MCP, before the step's time begins."""
    await model_calls.load(context, config.model)
    if any(tool.mcp is not None for tool in config.tools.values()):
        await load_sdk()
    for values in _mcp_values(config, context):
        await context.secrets.prefetch(values, frozenset(references(values)))


async def run(config: AgentConfig, context: StepContext) -> Outcome:
    """Ask for turns until the model is done or a limit is reached."""
    sessions = Sessions(context)
    try:
        return await _AgentLoop(config, context).run(sessions)
    finally:
        await sessions.aclose()


class _AgentLoop:
    """The conversation of one attempt."""

    def __init__(self, config: AgentConfig, context: StepContext) -> None:
        self._config = config
        self._context = context
        self._model = model_calls.model_named(context, config.model)
        self._max_tokens = model_calls.answer_tokens(context, self._model, config.max_tokens)
        self._messages: list[Message] = []
        self._repeats = _RepeatDetector(config.max_repeats)

    async def run(self, sessions: Sessions) -> Outcome:
        config = self._config
        _hide_secrets(config, self._context)
        conversation = await open_conversation(config, self._context, self._model)
        self._messages = [*conversation.messages] if conversation is not None else []
        self._messages.append(Message("user", str(config.goal)))
        toolbox = await self._open_toolbox(sessions)
        user = ToolUser(config, self._context, toolbox)
        turn, turns_left = 0, config.max_turns
        while turns_left > 0:
            turn += 1
            answer = await self._ask(turn, toolbox.descriptions)
            error = model_calls.failure_of(answer, self._model, self._max_tokens)
            error = error or _too_many_uses(answer)
            if not answer.is_inherited:
                turns_left -= 1
                error = error or self._repeats.check(answer)
                if error is not None:
                    return Failed(error)
            elif error is not None:
                # It ended the task that this one is a retry of, which has turns of its own.
                continue
            self._messages.append(answer.message())
            if answer.tool_uses:
                for index, use in enumerate(answer.tool_uses):
                    self._messages.append(await user.use(turn, index, use))
                continue
            output = model_calls.read_output(self._context, answer)
            if isinstance(output, ValidOutput):
                return self._succeeded(output.value, answer, conversation)
            text = f"That answer cannot be used: {output.error.message}"
            self._messages.append(Message("user", f"{text}\nGive the whole answer again."))
        text = f"the goal was not reached within max_turns = {config.max_turns}"
        return Failed(StepError("max_turns", "limit", text))

    def _succeeded(
        self, output: Json, answer: ModelAnswer, conversation: OpenConversation | None
    ) -> Succeeded:
        if conversation is None:
            return Succeeded(output)
        exchange = conversation.exchange(self._context, str(self._config.goal), answer.text)
        return Succeeded(output, exchange=exchange)

    async def _open_toolbox(self, sessions: Sessions) -> Toolbox:
        config, context = self._config, self._context
        snapshots = await take_snapshots(config, context, sessions)
        for tool in config.tools.values():
            if tool.allowed and tool.python is not None:
                await python.load(tool.python, context)
        return Toolbox(config, context, snapshots, sessions)

    async def _ask(self, turn: int, tools: tuple[Tool, ...]) -> ModelAnswer:
        """Ask the model for its next turn."""
        config, context = self._config, self._context
        stop_if_paused(context)
        request = ModelRequest(
            messages=tuple(self._messages),
            max_tokens=self._max_tokens,
            system=_system(config, context, has_tools=bool(tools)),
            effort=config.effort,
            temperature=config.temperature,
            tools=tools,
        )
        body = _body(turn, config, [tool.name for tool in tools])
        return await model_calls.ask(context, self._model, request, body, is_conversation=True)


def _hide_secrets(config: AgentConfig, context: StepContext) -> None:
    """Redact the secrets of all tools, wherever in the loop this attempt begins."""
    context.secrets.hide(context.attempt_input.step.config, context.secret_paths)
    for values in _mcp_values(config, context):
        context.secrets.hide(values, frozenset(references(values)))


def _mcp_values(config: AgentConfig, context: StepContext) -> Iterator[Json]:
    """Yield the environments and headers of this step's MCP servers, which may name secrets."""
    for tool in config.tools.values():
        server = context.services.mcp.get(tool.mcp.server) if tool.mcp is not None else None
        if server is not None:
            yield {"env": server.env, "headers": server.headers}


def _system(config: AgentConfig, context: StepContext, *, has_tools: bool) -> str | None:
    schema = context.attempt_input.step.output_schema
    parts = [config.system or ""]
    if has_tools:
        parts.append(INSTRUCTION)
    if model_output.wants_json(False, schema):
        parts.append(f"When you are done: {instruction(schema)}")
    return "\n\n".join(part for part in parts if part) or None


def _body(turn: int, config: AgentConfig, tools: list[str]) -> Json:
    """Return the recorded form of a request: the goal once, then only the number of the turn."""
    if turn > 1:
        return {"turn": turn}
    first: dict[str, Json] = {"turn": 1, "goal": config.goal, "tools": tools}
    return first if config.system is None else {**first, "system": config.system}


def _too_many_uses(answer: ModelAnswer) -> StepError | None:
    if len(answer.tool_uses) <= _MAX_USES:
        return None
    text = f"the model asked for {len(answer.tool_uses)} tools at once; at most {_MAX_USES} are allowed"
    return StepError("too_many_uses", "limit", text)


class _RepeatDetector:
    """Detects a model that requests the same tool uses in every turn."""

    def __init__(self, max_repeats: int) -> None:
        self._max_repeats = max_repeats
        self._last_hash = ""
        self._count = 0

    def check(self, answer: ModelAnswer) -> StepError | None:
        """Count a turn; return an error if it repeats the last ones too often."""
        uses = [[use.name, use.arguments] for use in answer.tool_uses]
        digest = request_hash(uses) if uses else ""
        self._count = self._count + 1 if digest and digest == self._last_hash else 1
        self._last_hash = digest
        if not digest or self._count <= self._max_repeats:
            return None
        names = ", ".join(use.name for use in answer.tool_uses)
        text = f"the model asked for the same {self._count} times in a row: {names}"
        return StepError("repeated_calls", "limit", text)
