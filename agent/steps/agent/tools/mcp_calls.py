"""One call of a tool of an MCP server: its progress, its questions to a person, and its result.

A server that speaks the protocol of 2026 answers `input_required`; an earlier one asks in the middle of the
call. A question without an answer ends the call: the server gets the answer that the person has dismissed it. When the
person has answered, the tool is called again.
"""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.core.ids import request_hash
from agent.models.protocol import clean
from agent.models.response_parsing import to_plain_json
from agent.steps.agent.tool import ToolContent
from agent.steps.agent.tool_content import ContentKeeper
from agent.steps.agent.tool_questions import is_web_address
from agent.steps.attempt.context import StepContext
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ElicitResult, InputRequiredResult, InputResponses

PROGRESS: Final = "progress"
"""The stream of the step's log that has the progress of tools."""
_PROGRESS_SECONDS: Final = 1.0
_MAX_PROGRESS: Final = 300
_MAX_ROUNDS: Final = 10


class Elicitations:
    """The questions of one server to a person, while a call of its tools runs."""

    def __init__(self) -> None:
        self._answers: Mapping[str, Json] = {}
        self._asked: dict[str, Json] = {}
        self.problem: DefiniteFailure | None = None
        """Why no person can answer a question of this call."""

    def begin(self, answers: Mapping[str, Json]) -> None:
        """Begin a call, with the answers to the questions of its earlier rounds."""
        self._answers = answers
        self._asked, self.problem = {}, None

    @property
    def asked(self) -> dict[str, Json]:
        """Unanswered questions of this call; raise `DefiniteFailure` if no person can answer them."""
        if self.problem is not None:
            raise self.problem
        return self._asked

    async def __call__(self, context: Any, params: Any) -> "ElicitResult":
        """Answer a request of the server."""
        return self.answer(params)

    def answer(self, params: Any) -> "ElicitResult":
        """Return the person's answer to a question; without one, note it and say that it was dismissed."""
        from mcp_types import ElicitResult

        try:
            request = question_of(params)
        except DefiniteFailure as error:
            self.problem = error
            return ElicitResult(action="cancel")
        key = request_hash(request)
        if (answer := self._answers.get(key)) is not None:
            return ElicitResult.model_validate(answer)
        self._asked[key] = request
        return ElicitResult(action="cancel")


def question_of(params: Any) -> dict[str, Json]:
    """Return a request of a server as it is recorded; raise `DefiniteFailure` if no person can answer it."""
    message = clean(str(params.message))
    if params.mode == "url":
        if not is_web_address(params.url):
            raise _unanswerable("it wants a person to open something that is not a web address")
        return {"message": message, "url": clean(params.url)}
    # Imported here: the library behind it is slow to import.
    from agent.workflows.compile.output_schema import find_schema_problem, without_costly_patterns

    try:
        schema = to_plain_json(json.loads(json.dumps(params.requested_schema)))
    except (ValueError, RecursionError) as error:
        raise _unanswerable(str(error)) from None
    schema = without_costly_patterns(schema)
    fault = find_schema_problem(schema)
    if fault is not None:
        raise _unanswerable(fault[1])
    return {"message": message, "schema": schema}


def _unanswerable(reason: str) -> DefiniteFailure:
    text = f"the MCP server asks a question that no person can answer: {reason}"
    return DefiniteFailure(text, may_retry=False)


async def call_tool(
    client: "Client",
    elicitations: Elicitations,
    progress: "Progress",
    name: str,
    arguments: dict[str, Json],
    answers: Mapping[str, Json],
) -> ToolContent:
    """Call a tool; raise `DefiniteFailure` for an error that it answers.

    It starts from the beginning in every round: the state that a server gives out with its question is often worthless
    after its restart. It asks the same again, which is answered from `answers`.
    """
    from mcp_types import InputRequiredResult

    elicitations.begin(answers)
    responses: InputResponses | None = None
    state: str | None = None
    for _ in range(_MAX_ROUNDS):
        result = await client.session.call_tool(
            name,
            arguments,
            progress_callback=progress,
            input_responses=responses,
            request_state=state,
            allow_input_required=True,
        )
        if elicitations.problem is not None and not isinstance(result, InputRequiredResult):
            # The server has got the answer that its question was dismissed, and the tool may have acted.
            content = _content(result)
            return ToolContent(f"[{elicitations.problem}]\n{content.text}", content.parts)
        if isinstance(result, InputRequiredResult):
            responses, state = _responses(result, elicitations), result.request_state
        if elicitations.asked:
            return ToolContent("[a person is asked first]", [], elicitations.asked)
        if not isinstance(result, InputRequiredResult):
            return _content(result)
    raise DefiniteFailure("the MCP server asks again and again", may_retry=False)


def _content(result: "CallToolResult") -> ToolContent:
    keeper = ContentKeeper()
    text = _text(result, keeper)
    if result.is_error:
        raise DefiniteFailure(text, may_retry=False)
    return ToolContent(text, keeper.parts)


def _responses(result: "InputRequiredResult", elicitations: Elicitations) -> "InputResponses":
    """Return the known answers to the questions of a result."""
    from mcp_types import ElicitRequest

    responses: InputResponses = {}
    for key, request in (result.input_requests or {}).items():
        if not isinstance(request, ElicitRequest):
            text = "the MCP server asks for what this agent does not offer to it"
            raise DefiniteFailure(text, may_retry=False)
        responses[key] = elicitations.answer(request.params)
    return responses


def _text(result: Any, keeper: ContentKeeper) -> str:
    """Return a result as text; parts that are not text are kept and named."""
    parts = [_part(part, keeper) for part in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _part(part: Any, keeper: ContentKeeper) -> str:
    match part.type:
        case "text":
            return str(part.text)
        case "image" | "audio":
            return keeper.add(part.type, part.mime_type, part.data)
        case "resource" if hasattr(part.resource, "text"):
            return str(part.resource.text)
        case "resource":
            return keeper.add("resource", part.resource.mime_type, part.resource.blob)
        case "resource_link":
            return f"[a link to {part.uri}]"
    return f"[{part.type}: it cannot be shown as text]"


class Progress:
    """Writes a tool's progress to the step's log, at most once a second."""

    def __init__(self, context: StepContext, label: str) -> None:
        self._context = context
        self._label = label
        self._next_at = 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        is_last = total is not None and progress >= total
        if now < self._next_at and not is_last:
            return
        self._next_at = now + _PROGRESS_SECONDS
        count = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        text = f"{self._label}: {count} {clean(message or '')}".rstrip()
        self._context.log_text(PROGRESS, f"{text[:_MAX_PROGRESS]}\n")
