"""The context of a step function that runs in a thread: the same methods, without `await`."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any, TypeVar

from agent.steps.attempt import containment
from agent.steps.attempt.context import ContextFacts, StepContext
from agent.steps.attempt.recorded_calls.call_functions import bind_call
from agent.steps.attempt.state_access import BlockingStateAccess
from agent.steps.types.attempt_input import RevokedError
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Call, CallAnswer, EncodedResponse, Reconcile, Request
from agent.steps.types.errors import Applied
from agent.steps.types.outcome import Json, StepError

T = TypeVar("T")


class BlockingContext(ContextFacts):
    """The context of a step that runs in a thread of its own.

    The event loop records what must be durable; the functions of calls run in the thread.
    """

    def __init__(self, context: StepContext) -> None:
        super().__init__(
            context.attempt_input, context.signals, context.services, context.secrets, context.calls
        )
        self._context = context
        self._call = context._call
        self._loop = asyncio.get_running_loop()

    @cached_property
    def state(self) -> BlockingStateAccess:
        """The values that outlive the task: `get`, `set`, `compare_and_set`, `delete`."""
        return BlockingStateAccess(self._context.state, self._wait_for)

    def log(self, text: str) -> None:
        """Write a line to the step's log."""
        self._context.log(text)

    def save(self, value: Json) -> None:
        """Make a checkpoint durable. The attempt ends here if the task is being paused."""
        self._wait_for(self._context.save(value))

    def snapshot(self, value: Json, label: str | None = None) -> str:
        """Append a value to the context of the task, once for this use; return the snapshot's id."""
        return self._wait_for(self._context.snapshot(value, label))

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
        """Act on the outside world at most once; see `StepContext.call`.

        A function in a thread cannot be interrupted: `timeout` only says when a lost effect is over.
        """
        check = None if reconcile is None else self._in_thread(action, reconcile)
        call_request = Request(
            action,
            request,
            self._policy(on_unknown, effect=effect, reconcile=reconcile),
            self._call_seconds(timeout),
            is_bounded=timeout is not None,
            is_effect=effect,
            reconcile=check,
        )
        opened = self._wait_for(self.calls.open(call_request))
        if isinstance(opened, CallAnswer):
            return opened.response
        self._call = opened
        has_begun = False
        try:
            self.calls.check_may_begin(opened)
            has_begun = True
            response = containment.call(
                f"the function of {action}", lambda: bind_call(function)(opened)
            )
        except BaseException as error:
            self._wait_for(self._record_failure(opened, error, has_begun))
            raise
        encoded = self.calls.results.encode_response(opened, response)
        return self._wait_for(self._record_success(opened, encoded))

    async def _record_success(self, call: Call, response: EncodedResponse | StepError) -> Json:
        return self.calls.record_success(call, response)

    async def _record_failure(self, call: Call, error: BaseException, has_begun: bool) -> None:
        self.calls.record_failure(call, error, has_begun=has_begun)

    def _in_thread(self, action: str, reconcile: Callable[..., Any]) -> Reconcile:
        """Return a coroutine function that runs a reconcile function in a thread of its own."""

        async def check(call: RecordedCall) -> Applied | bool | None:
            verdict: Applied | bool | None = await self.services.threads.start(
                lambda: containment.call(
                    f"reconcile of {action}", lambda: bind_call(reconcile)(call)
                )
            )
            return verdict

        return check

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise RevokedError("the worker has ended") from None
        return future.result()
