"""Uses of the database's services by tools: in a thread, and again while the database cannot be used."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from agent.core.backoff import Backoff
from agent.steps.agent.tool import ToolRun
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.services import AgentStep
from agent.steps.types.call_types import Call
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.store.db.database import StoreError

Service = TypeVar("Service")

_FIRST_RETRY_SECONDS: Final = 0.1
_LONGEST_RETRY_SECONDS: Final = 5.0


class ServiceRun(ToolRun):
    """One use of a service.

    What it changes is recorded under the call's key, so that a use happens once however often it is
    requested: a call whose result was lost is made again, and finds what it did.
    """

    has_own_record = True

    def __init__(self, function: Callable[[AgentStep], Json], context: StepContext) -> None:
        self._function = function
        self._context = context

    async def perform(self, call: Call) -> Json:
        context = self._context
        by = AgentStep(context.attempt_input.task.id, context.step, call.remote_key)
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while True:
            try:
                return await context.services.threads.start(lambda: self._function(by))
            except StoreError as error:
                # The call's timeout ends this.
                if not error.fault.is_transient:
                    raise
                await asyncio.sleep(backoff.next_seconds())


def required(service: Service | None, tool: str) -> Service:
    """Return a service; a worker that was built without it cannot run the tool."""
    if service is None:
        text = f"this worker has no {tool}: it was not built with one"
        raise DefiniteFailure(text, code="no_service", kind="input", may_retry=False)
    return service
