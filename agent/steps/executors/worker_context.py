"""`ctx` of a function that runs in a process of the pool: every use is a message to the agent.

The agent answers with the attempt's own context, so a call waits here until its intent is durable. The
function of a call runs here; its result is recorded by the agent.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agent.core.clock import SECOND
from agent.steps.attempt import containment
from agent.steps.attempt.recorded_calls.call_functions import as_coroutine, bind_call
from agent.steps.executors import messages
from agent.steps.executors.messages import Message
from agent.steps.executors.worker_link import Link
from agent.steps.executors.worker_state import AsyncWorkerState, BlockingWorkerState
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.store.db.json_values import NotPlainJsonError, encode

_FACTS = (
    "task_id",
    "workflow",
    "step_id",
    "step",
    "attempt",
    "max_attempts",
    "parallel_index",
    "parallel_count",
)
"""The facts that come with the function; the others may be large, and are asked for."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call whose intent is durable. `remote_key` is for the remote's `Idempotency-Key`."""

    number: int
    action: str
    call_id: str
    idempotency_key: str
    remote_key: str
    send_by: int
    is_effect: bool


@dataclass(slots=True, eq=False)
class WorkerFacts:
    """What both forms of the context know and do."""

    link: Link
    facts: Message
    _known: dict[str, Json] = field(default_factory=dict)
    _call: RunningCall | None = None

    def __getattr__(self, name: str) -> Json:
        if name in _FACTS:
            return self.facts[name]
        if name in ("item", "input", "trigger", "outputs"):
            if name not in self._known:
                self._known[name] = self.link.ask("fact", name=name)
            return self._known[name]
        if name in ("checkpoint", "should_stop", "should_pause"):
            return self.link.ask("fact", name=name)
        raise AttributeError(f"the context of a step has no {name!r}")

    @property
    def remote_key(self) -> str:
        """The key to give a remote as `Idempotency-Key`, inside the function of a call."""
        if self._call is None:
            raise RuntimeError("remote_key is only known inside the function of a call")
        return self._call.remote_key

    def log(self, text: str) -> None:
        """Write a line to the step's log."""
        self.link.send({"log": "log", "text": str(text)})

    def begin(self, opened: Message) -> RunningCall:
        """Take a call whose intent is durable, unless it is too late to begin."""
        call = self._call = RunningCall(**opened)
        if call.is_effect and time.time() * SECOND > call.send_by:
            message = f"{call.action} was not sent: its intent took too long to record"
            raise DefiniteFailure(message, code="not_sent", kind="limit")
        return call

    def failed(self, opened: Message, error: BaseException) -> Message:
        """Return what the agent records of a call that raised."""
        described = messages.describe(error)
        text = containment.describe_exception(error)
        return {
            "call_id": opened["call_id"],
            "problem": described or {"type": "code", "message": text},
        }

    def succeeded(self, call: RunningCall, response: Json) -> Message:
        """Return what the agent records of a call's response."""
        try:
            encode(response, f"the response of {call.action}")
        except BaseException as error:
            text = containment.describe_exception(error)
            if isinstance(error, NotPlainJsonError):
                text = str(error)
            return {"call_id": call.call_id, "bad_response": text}
        return {"call_id": call.call_id, "response": response}


def _request(action: str, request: Json, **options: Any) -> Message:
    encode(request, f"the request of {action}")
    return {"action": action, "request": request, **options}


class BlockingWorkerContext(WorkerFacts):
    """The context of a function that is no coroutine function."""

    @property
    def state(self) -> BlockingWorkerState:
        """The values that outlive the task: `get`, `set`, `compare_and_set`, `delete`."""
        return BlockingWorkerState(self.link)

    def save(self, value: Json) -> None:
        """Make a checkpoint durable. The attempt ends here if the task is being paused."""
        encode(value, "checkpoint")
        self.link.ask("save", value=value)

    def snapshot(self, value: Json, label: str | None = None) -> str:
        """Append a value to the context of the task; return the snapshot's id."""
        encode(value, "the snapshot")
        return str(self.link.ask("snapshot", value=value, label=label))

    def call(
        self,
        action: str,
        request: Json,
        function: Callable[..., Any],
        *,
        effect: bool = True,
        on_unknown: str | None = None,
        timeout: float | None = None,
        reconcile: Callable[..., Any] | None = None,
    ) -> Json:
        """Act on the outside world at most once; see `StepContext.call`."""
        message = _request(
            action,
            request,
            effect=effect,
            on_unknown=on_unknown,
            timeout=timeout,
            has_reconcile=reconcile is not None,
        )
        check = None if reconcile is None else bind_call(reconcile)
        opened = self.link.ask("open", reconcile=check, **message)
        if "answer" in opened:
            return opened["answer"]
        try:
            call = self.begin(opened["call"])
            name = f"the function of {action}"
            response = containment.call(name, lambda: bind_call(function)(call))
        except BaseException as error:
            self.link.ask("failed", **self.failed(opened["call"], error))
            raise
        return self.link.ask("succeeded", **self.succeeded(call, response))


class AsyncWorkerContext(WorkerFacts):
    """The context of a coroutine function."""

    @property
    def state(self) -> AsyncWorkerState:
        """The values that outlive the task: `get`, `set`, `compare_and_set`, `delete`."""
        return AsyncWorkerState(self.link)

    async def save(self, value: Json) -> None:
        """Make a checkpoint durable. The attempt ends here if the task is being paused."""
        encode(value, "checkpoint")
        await asyncio.to_thread(lambda: self.link.ask("save", value=value))

    async def snapshot(self, value: Json, label: str | None = None) -> str:
        """Append a value to the context of the task; return the snapshot's id."""
        encode(value, "the snapshot")
        answer = await asyncio.to_thread(
            lambda: self.link.ask("snapshot", value=value, label=label)
        )
        return str(answer)

    async def call(
        self,
        action: str,
        request: Json,
        function: Callable[..., Any],
        *,
        effect: bool = True,
        on_unknown: str | None = None,
        timeout: float | None = None,
        reconcile: Callable[..., Any] | None = None,
    ) -> Json:
        """Act on the outside world at most once; see `StepContext.call`."""
        message = _request(
            action,
            request,
            effect=effect,
            on_unknown=on_unknown,
            timeout=timeout,
            has_reconcile=reconcile is not None,
        )
        check = None
        if reconcile is not None:
            check = _on_loop(as_coroutine(f"reconcile of {action}", reconcile))
        opened = await asyncio.to_thread(lambda: self.link.ask("open", reconcile=check, **message))
        if "answer" in opened:
            return opened["answer"]
        perform = as_coroutine(f"the function of {action}", function)
        try:
            call = self.begin(opened["call"])
            async with asyncio.timeout(timeout):
                response = await perform(call)
        except BaseException as error:
            failed = self.failed(opened["call"], error)
            await asyncio.shield(asyncio.to_thread(lambda: self.link.ask("failed", **failed)))
            raise
        succeeded = self.succeeded(call, response)
        return await asyncio.to_thread(lambda: self.link.ask("succeeded", **succeeded))


def _on_loop(check: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
    """Return a function that a thread calls to run a coroutine function on the step's loop."""
    loop = asyncio.get_running_loop()

    async def awaited(call: Any) -> Any:
        return await check(call)

    return lambda call: asyncio.run_coroutine_threadsafe(awaited(call), loop).result()
