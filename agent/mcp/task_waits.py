"""The tools that may wait for a task, and the questions to the client's user while they do.

A call waits for a bounded time and then returns what the task needs or that it goes on; the task itself is
not affected. Where the task asks a person, the caller may answer, and the client can ask its user, the
question goes there (elicitation): as a request to the client, or, in the protocol of 2026, as a result of
the type `input_required` after which the client repeats its call with the answers.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.core.escape import harmless
from agent.mcp import questions
from agent.mcp.api_calls import Api, ApiRequest
from agent.mcp.route_tools import check_arguments

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp_types import CallToolRequestParams, InputRequiredResult

Document = dict[str, Any]

MAX_WAIT_SECONDS: Final = 300
DEFAULT_WAIT_SECONDS: Final = 30
_PROGRESS_SECONDS: Final = 5.0
_SHORTEST_POLL_SECONDS: Final = 1.0
_API: Final = "/api/v1"

WAIT_SECONDS: Final = {
    "type": "number",
    "minimum": 0,
    "maximum": MAX_WAIT_SECONDS,
    "default": 0,
    "description": "Seconds to wait for the task; 0 returns at once, and wait_for_task waits later.",
}
START_SCHEMA: Final[Document] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        "input": {"type": "object", "description": "The workflow's inputs."},
        "priority": {"enum": ["high", "normal", "low", None]},
        "idempotency_key": {
            "type": ["string", "null"],
            "pattern": "^[!-~]{1,255}$",
            "description": "Repeating a call under its key starts no second task.",
        },
        "wait_seconds": WAIT_SECONDS,
    },
    "required": ["name"],
    "additionalProperties": False,
}
WAIT_SCHEMA: Final[Document] = {
    "type": "object",
    "properties": {
        "task_id": {"type": "string", "minLength": 1, "maxLength": 100},
        "wait_seconds": {**WAIT_SECONDS, "default": DEFAULT_WAIT_SECONDS},
        "until": {
            "enum": ["attention", "end"],
            "default": "attention",
            "description": "Wait until it has ended; with `attention` also until it needs someone.",
        },
    },
    "required": ["task_id"],
    "additionalProperties": False,
}


class TaskCall:
    """One call of a tool that starts a task, or waits for one."""

    def __init__(
        self, api: Api, context: "ServerRequestContext[Any]", params: "CallToolRequestParams"
    ) -> None:
        self._api = api
        self._context = context
        self._params = params

    async def start(
        self, workflow: str, arguments: Mapping[str, Any], wait_seconds: float
    ) -> "Document | InputRequiredResult":
        """Start a task of a workflow and wait for it; a repeated call goes on with its task."""
        if self._params.request_state is not None:
            return await self._repeated(self._params.request_state, wait_seconds, "attention")
        key = arguments.get("idempotency_key")
        body = {name: arguments[name] for name in ("input", "priority") if name in arguments}
        created = await self._api.call(
            ApiRequest(
                "POST",
                questions.path(_API, "workflows", workflow, "tasks"),
                body=body,
                has_body=True,
                headers={} if key is None else {"Idempotency-Key": key},
            )
        )
        return await self._wait(created["id"], wait_seconds, "attention")

    async def wait(self, arguments: Mapping[str, Any]) -> "Document | InputRequiredResult":
        """Wait for a task."""
        check_arguments(arguments, WAIT_SCHEMA)
        seconds = arguments.get("wait_seconds", DEFAULT_WAIT_SECONDS)
        return await self._repeated(
            arguments["task_id"], seconds, arguments.get("until", "attention")
        )

    async def _repeated(
        self, task_id: str, seconds: float, until: str
    ) -> "Document | InputRequiredResult":
        """Record the answers that a repeated call carries, then wait for the task."""
        for approval_id, response in (self._params.input_responses or {}).items():
            await questions.record(self._api, approval_id, response)
        return await self._wait(task_id, seconds, until)

    async def _wait(
        self, task_id: str, seconds: float, until: str
    ) -> "Document | InputRequiredResult":
        loop = asyncio.get_running_loop()
        started = loop.time()
        give_up = started + seconds
        # This call does not repeat a question that the person has declined.
        answered = set(self._params.input_responses or ())
        while True:
            began = loop.time()
            result = await self._result(task_id, give_up - began, until)
            if not result["is_over"]:
                await self._context.session.report_progress(
                    loop.time() - started, seconds, _progress_text(result)
                )
            pending = [
                need["approval"]
                for need in result["needs"]
                if need["approval"] is not None and need["approval"] not in answered
            ]
            if pending and questions.can_ask(self._api, self._context):
                answered.update(pending)
                outcome = await questions.ask(self._api, self._context, pending, task_id)
                if outcome.required is not None:
                    return outcome.required
                if outcome.has_answers:
                    # The person's time does not count.
                    give_up = max(give_up, loop.time() + min(seconds, _PROGRESS_SECONDS))
                    continue
            is_done = result["is_over"] or (until == "attention" and result["needs"])
            if is_done or loop.time() >= give_up:
                return {**result, "message": self._message(result)}
            # The route answers at once where too many callers wait already.
            rest = _SHORTEST_POLL_SECONDS - (loop.time() - began)
            await asyncio.sleep(max(0.0, min(rest, give_up - loop.time())))

    def _message(self, result: Document) -> str:
        """Return in words how the task stands, for clients whose model reads text."""
        notice = None if result["is_over"] else self._api.notice()
        return harmless(f"{_message(result)}; {notice}" if notice else _message(result))

    async def _result(self, task_id: str, seconds: float, until: str) -> Document:
        wait = max(0.0, min(seconds, _PROGRESS_SECONDS))
        result: Document = await self._api.call(
            ApiRequest(
                "GET",
                questions.path(_API, "tasks", task_id, "result"),
                {"wait": wait, "until": until},
                wait_seconds=wait,
            )
        )
        return result


def _progress_text(result: Document) -> str:
    steps = {str(wait.get("step")) for wait in result["waiting_on"] or ()}
    return f"{result['activity']}: {', '.join(sorted(steps))}" if steps else result["activity"]


def _message(result: Document) -> str:
    task = f"task {result['id']} of {result['workflow']}"
    if result["is_over"]:
        return (
            f"{task} {result['status']}"
            if result["status"] != "canceled"
            else f"{task} was canceled"
        )
    needs = [_need(need) for need in result["needs"]]
    if needs:
        return f"{task} cannot go on by itself: {'; '.join(needs)}"
    return f"{task} is {result['activity']}; wait_for_task waits for it"


def _need(need: Document) -> str:
    match need["what"]:
        case "answer":
            return (
                f"a person must answer {need['message']!r} (approval {need['approval']}): in a channel, on"
                " the dashboard, by `agent approvals`, or by a tool where this client may answer"
            )
        case "signal":
            return f"step {need['step']} waits for the signal {need['signal']!r} (signal_task sends one)"
        case "resolve":
            return f"a person must resolve step {need['step']}: the result of its effect is unknown"
    return f"task {need['task']} is paused ({need['message']}); resume_task resumes it"
