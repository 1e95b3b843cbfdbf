"""The context of a step function that runs in a thread: the same words, without `await`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agent.steps.attempt import containment
from agent.steps.attempt.calls import EncodedResponse
from agent.steps.attempt.context import ContextFacts, StepContext, bind_call
from agent.steps.types.attempt_input import RevokedError
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Call, CallAnswer, Reconcile
from agent.steps.types.errors import Applied
from agent.steps.types.outcome import Json

T = TypeVar("T")


class BlockingContext(ContextFacts):
    """The context of a step that runs in a thread of its own.

    What must be recorded is recorded on the event loop; the functions of calls run in the thread.
    """

    def __init__(self, context: StepContext) -> None:
        super().__init__(
            context.claimed, context.signals, context.services, context.secrets, context.calls
        )
        self._context = context
        self._call = context._call
        self._loop = asyncio.get_running_loop()

    def log(self, text: str) -> None:
        """Write a line to the step's log."""
        self._loop.call_soon_threadsafe(self._context.log, text)

    def save(self, value: Json) -> None:
        """Make a checkpoint durable; the attempt ends here if the task is paused."""
        self._wait_for(self._context.save(value))

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
        """Do something to the outside world at most once; see `StepContext.call`.

        A function in a thread cannot be interrupted: `timeout` only says when an effect that was
        lost must be over.
        """
        check = None if reconcile is None else self._in_thread(action, reconcile)
        asked = self._request(action, request, effect, on_unknown, timeout, check)
        opened = self._wait_for(self.calls.open(asked))
        if isinstance(opened, CallAnswer):
            return opened.response
        self._call = opened
        has_begun = False
        try:
            self.calls.begin(opened)
            has_begun = True
            response = containment.call(
                f"the function of {action}", lambda: bind_call(function)(opened)
            )
        except BaseException as problem:
            self._wait_for(self._fail(opened, problem, has_begun))
            raise
        encoded = self.calls.encoded(opened, response)
        return self._wait_for(self._succeed(opened, encoded))

    async def _succeed(self, call: Call, encoded: EncodedResponse) -> Json:
        return self.calls.succeed(call, encoded)

    async def _fail(self, call: Call, problem: BaseException, has_begun: bool) -> None:
        self.calls.fail(call, problem, has_begun=has_begun)

    def _in_thread(self, action: str, reconcile: Callable[..., Any]) -> Reconcile:
        """Let a reconcile function block: the loop asks for it while this thread waits."""

        async def check(call: RecordedCall) -> Applied | bool | None:
            found: Applied | bool | None = await self.services.threads.start(
                lambda: containment.call(
                    f"reconcile of {action}", lambda: bind_call(reconcile)(call)
                )
            )
            return found

        return check

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise RevokedError("the worker has gone") from None
        return future.result()
