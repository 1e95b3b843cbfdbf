"""Serves the `ctx` of a function in another process, with the attempt's own context."""

import asyncio
from collections.abc import Awaitable, Callable

from agent.steps.attempt.containment import RelayedError
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.recorded_calls.replay import BAD_RESPONSE
from agent.steps.executors import messages
from agent.steps.executors.messages import Message
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Call, CallAnswer, EncodedResponse, Reconcile, Request
from agent.steps.types.errors import Applied
from agent.steps.types.outcome import Json, StepError
from agent.steps.types.state_values import Version
from agent.store.db.json_values import encode

Send = Callable[[Message], None]


class ContextServer:
    """Serves the context of one attempt to the process that runs its function."""

    def __init__(self, context: StepContext, send: Send) -> None:
        self._context = context
        self._send = send
        self._open_calls: dict[str, Call] = {}
        self._verdicts: dict[int, asyncio.Future[Message]] = {}
        self._answers: set[asyncio.Task[None]] = set()

    def facts(self) -> Message:
        """Return the facts of every function's context."""
        context = self._context
        return {
            "task_id": context.task_id,
            "workflow": context.workflow,
            "step_id": context.step_id,
            "step": context.step,
            "attempt": context.attempt,
            "max_attempts": context.max_attempts,
            "parallel_index": context.parallel_index,
            "parallel_count": context.parallel_count,
        }

    def take(self, message: Message) -> None:
        """Take a message of the process: a line for the log, a question, or a reconcile's verdict."""
        if "log" in message:
            self._context.log_text(message["log"], message["text"])
        elif "verdict" in message:
            future = self._verdicts.pop(message["verdict"], None)
            if future is not None and not future.done():
                future.set_result(message)
        else:
            task = asyncio.ensure_future(self._answer(message))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    def close(self, error: BaseException) -> None:
        """Record that the process has ended: calls that it had begun may have happened."""
        for task in self._answers:
            task.cancel()
        while self._open_calls:
            _, call = self._open_calls.popitem()
            # It raises `EndAttempt` for an effect; the decided outcome has the same content.
            try:
                self._context.calls.record_failure(call, error, has_begun=True)
            except BaseException as ended:
                if messages.describe(ended) is None:
                    raise

    async def _answer(self, message: Message) -> None:
        number = message.pop("ask")
        method: Callable[..., Awaitable[Json]] = getattr(self, f"_{message.pop('method')}")
        try:
            reply: Message = {"to": number, "value": await method(number, **message)}
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            described = messages.describe(error)
            if described is None and not isinstance(error, Exception):
                raise
            reply = {
                "to": number,
                "problem": described or {"type": "code", "message": str(error)},
            }
        self._send(reply)

    async def _fact(self, _: int, name: str) -> Json:
        return getattr(self._context, name)

    async def _save(self, _: int, value: Json) -> None:
        await self._context.save(value)

    async def _snapshot(self, _: int, value: Json, label: str | None) -> str:
        return await self._context.snapshot(value, label)

    async def _state(
        self, _: int, operation: str, arguments: list[Json], *, is_version: bool = False
    ) -> Json:
        if is_version:
            arguments[1] = Version(arguments[1])
        return await getattr(self._context.state, operation)(*arguments)

    async def _open(
        self,
        number: int,
        action: str,
        request: Json,
        *,
        effect: bool,
        on_unknown: str | None,
        timeout: float | None,
        has_reconcile: bool,
    ) -> Message:
        context = self._context
        opened = await context.calls.open(
            Request(
                action,
                request,
                context._policy(on_unknown, effect=effect, reconcile=has_reconcile),
                context._call_seconds(timeout),
                is_bounded=timeout is not None,
                is_effect=effect,
                reconcile=self._reconcile(number) if has_reconcile else None,
            )
        )
        if isinstance(opened, CallAnswer):
            return {"answer": opened.response}
        try:
            context.calls.check_may_begin(opened)
        except BaseException as error:
            context.calls.record_failure(opened, error, has_begun=False)
            raise
        self._open_calls[opened.call_id] = opened
        names = ("number", "action", "call_id", "idempotency_key", "remote_key", "send_by")
        call = {name: getattr(opened, name) for name in names}
        return {"call": {**call, "is_effect": effect}}

    def _reconcile(self, number: int) -> Reconcile:
        """Return a function that asks the process to run its own check."""

        async def check(call: RecordedCall) -> Applied | bool | None:
            future = asyncio.get_running_loop().create_future()
            self._verdicts[number] = future
            names = ("call_id", "number", "attempt", "action", "idempotency_key", "remote_key")
            self._send({"to": number, "reconcile": {name: getattr(call, name) for name in names}})
            verdict: Message = await future
            if "problem" in verdict:
                raise raised(verdict["problem"])
            if verdict["applied"] is True and "response" in verdict:
                return Applied(verdict["response"])
            applied: bool | None = verdict["applied"]
            return applied

        return check

    async def _succeeded(
        self, _: int, call_id: str, response: Json = None, bad_response: str | None = None
    ) -> Json:
        calls = self._context.calls
        call = self._open_calls.pop(call_id)
        if bad_response is not None:
            error = calls.results.redacted(StepError(BAD_RESPONSE, "code", bad_response))
            return calls.record_success(call, error)
        redacted = self._context.secrets.redact_value(response)
        text = encode(redacted, f"the response of {call.action}")
        return calls.record_success(call, EncodedResponse(redacted, text))

    async def _failed(self, _: int, call_id: str, problem: Message) -> None:
        call = self._open_calls.pop(call_id)
        self._context.calls.record_failure(call, raised(problem), has_begun=True)


def raised(problem: Message) -> Exception:
    """Return an exception of the process's code as the engine classifies it."""
    known = messages.known_problem(problem)
    return known or RelayedError(problem.get("message", "it ended"), problem.get("traceback", ""))
