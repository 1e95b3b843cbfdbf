"""What a step's code sees: who it is, what it works with, and how it acts on the world."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from agent.steps.attempt import containment
from agent.steps.attempt.calls import Calls
from agent.steps.attempt.secrets import Place, Secrets
from agent.steps.attempt.services import Services
from agent.steps.types.attempt_input import AttemptInput, RevokedError, Signals
from agent.steps.types.call_records import Spend
from agent.steps.types.call_types import (
    Call,
    CallAnswer,
    MeasuredResponse,
    Process,
    Reconcile,
    Request,
)
from agent.steps.types.outcome import Json, Paused
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import encode

Perform = Callable[[Call], Awaitable[Json | MeasuredResponse]]


class ContextFacts:
    """The facts of an attempt, the same for coroutines and for functions in threads."""

    def __init__(
        self,
        claimed: AttemptInput,
        signals: Signals,
        services: Services,
        secrets: Secrets,
        calls: Calls,
    ) -> None:
        self.claimed = claimed
        self.signals = signals
        self.services = services
        self.secrets = secrets
        self.calls = calls
        self.secret_places: frozenset[Place] = frozenset()
        """Where the definition names secrets."""
        self.is_interrupted: Callable[[], bool] = bool
        """Whether the attempt was told to end, by its time or by the engine."""
        self._call: Call | None = None
        self._logged_bytes = 0

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.claimed.task.id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self.claimed.task.workflow

    @property
    def step_id(self) -> str:
        """The step's id."""
        return self.claimed.step_id

    @property
    def step(self) -> str:
        """The step's name."""
        return self.claimed.step.name

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self.claimed.attempt

    @property
    def max_attempts(self) -> int:
        """How many tries there are at most."""
        return self.claimed.max_attempts

    @property
    def parallel_index(self) -> int | None:
        """Of an item of a group: its place, from 0."""
        return self.claimed.parallel_index

    @property
    def parallel_count(self) -> int | None:
        """Of an item of a group: how many there are."""
        return self.claimed.parallel_count

    @property
    def item(self) -> Json:
        """Of an item of a group: its value."""
        return self.claimed.item

    @property
    def input(self) -> dict[str, Json]:
        """The task's input."""
        return self.claimed.task.input

    @property
    def trigger(self) -> Json:
        """What started the task."""
        return self.claimed.task.trigger

    @property
    def outputs(self) -> dict[str, Json]:
        """The outputs of the steps that this one depends on, by name."""
        return {name: step.output for name, step in self.claimed.upstream.items()}

    @property
    def checkpoint(self) -> Json:
        """The value that was saved last, by this attempt or an earlier one."""
        return self.calls.checkpoint

    @property
    def should_stop(self) -> bool:
        """Whether the attempt is asked to stop now, or is over already."""
        return self.signals.is_stopping or self.calls.is_revoked

    @property
    def should_pause(self) -> bool:
        """Whether the attempt is asked to pause; the next `save` does."""
        return self.signals.is_pausing

    @property
    def remote_key(self) -> str:
        """The key to give a remote as `Idempotency-Key`, inside the function of a call."""
        if self._call is None:
            raise RuntimeError("remote_key is only known inside the function of a call")
        return self._call.remote_key

    def log_text(self, stream: str, text: str) -> None:
        """Write to the step's log, without secrets and within the attempt's bound."""
        left = self.services.limits.log_bytes - self._logged_bytes
        if left <= 0 or not text:
            return
        text = self._redacted(text, left).replace("\0", "\ufffd")
        text = text.encode("utf-8", "replace").decode("utf-8")
        self._logged_bytes += len(text)
        if len(text) > left:
            text = text[:left] + "\n[the log ends here: it reached its limit]"
        self.services.journal.log(self.claimed, stream, text)

    def _redacted(self, text: str, most: int) -> str:
        """Redact as much of a text as is logged: what is longer costs no more."""
        longest = self.secrets.longest
        cut = text[: most + longest + 1]
        if len(cut) == len(text):
            return self.secrets.redact(text)
        # A secret may be cut in two at the end: so much is left out.
        redacted = self.secrets.redact(cut)
        return redacted[: len(redacted) - longest] if longest else redacted

    def _request(
        self,
        action: str,
        request: Json,
        effect: bool,
        on_unknown: str | None,
        timeout: float | None,
        reconcile: Reconcile | None,
    ) -> Request:
        step = self.claimed.step
        if on_unknown is None:
            on_unknown = step.on_unknown
        if on_unknown is None:
            on_unknown = "retry" if not effect else "reconcile" if reconcile else "ask"
        seconds = timeout or step.timeout_seconds or self.services.limits.call_seconds
        return Request(
            action, request, on_unknown, seconds, timeout is not None, effect, reconcile=reconcile
        )


class StepContext(ContextFacts):
    """The context of a step that runs on the event loop."""

    def log(self, text: str) -> None:
        """Write a line to the step's log."""
        self.log_text("log", text)

    async def save(self, value: Json) -> None:
        """Make a checkpoint durable; the attempt ends here if the task is paused."""
        if self.calls.is_revoked:
            raise RevokedError("this attempt is over")
        if is_small(value):
            value = self._checkpointed(value)
        else:
            value = await asyncio.to_thread(self._checkpointed, value)
        try:
            await self.services.journal.checkpoint(self.claimed, value)
        except RevokedError:
            self.calls.is_revoked = True
            raise
        self.calls.checkpoint = value
        if self.should_pause:
            self.calls.end(Paused(value))

    def _checkpointed(self, value: Json) -> Json:
        """Return a checkpoint as it is kept; refuse one that cannot be."""
        value = self.secrets.redact_value(value)
        encode(value, "checkpoint")
        return value

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
        """Do something to the outside world at most once, or return what came of it earlier.

        `function` may take the call, whose `remote_key` is for the remote. If it raises
        `DefiniteFailure` it surely did nothing; after any other exception nobody knows, and
        `on_unknown` says what the next attempt does: `retry`, `reconcile`, `ask` or `fail`.
        `reconcile` may take the call too, and returns `Applied`, False or None.
        With `effect=False` the call may be repeated; it is recorded so that a later attempt
        works with the same answer.
        """
        check = None if reconcile is None else as_coroutine(f"reconcile of {action}", reconcile)
        asked = self._request(action, request, effect, on_unknown, timeout, check)
        perform = as_coroutine(f"the function of {action}", function)
        return (await self.perform(asked, perform)).response

    async def perform(
        self,
        request: Request,
        perform: Perform,
        prepare: Callable[[], Awaitable[Process | None]] | None = None,
    ) -> CallAnswer:
        """Make a journaled call, with the key of the row that holds its answer."""
        opened = await self.calls.open(request, prepare)
        if isinstance(opened, CallAnswer):
            return opened
        self._call = opened
        has_begun = False
        try:
            self.calls.begin(opened)
            has_begun = True
            async with asyncio.timeout(request.timeout_seconds if request.is_bounded else None):
                response = await perform(opened)
        except BaseException as problem:
            self.calls.fail(opened, problem, has_begun=has_begun)
            raise
        spend: Spend | None = None
        if isinstance(response, MeasuredResponse):
            response, spend = response.response, response.spend
        if is_small(response):
            encoded = self.calls.encoded(opened, response)
        else:
            work = asyncio.ensure_future(asyncio.to_thread(self.calls.encoded, opened, response))
            try:
                encoded = await asyncio.shield(work)
            except asyncio.CancelledError:
                # The answer is there: it is recorded, and the next attempt takes it from there.
                self.calls.succeed(opened, await work, spend)
                raise
        return CallAnswer(self.calls.succeed(opened, encoded, spend), opened.idempotency_key)

    def request(
        self,
        action: str,
        body: Json,
        *,
        on_unknown: str,
        timeout: float | None = None,
        reconcile: Reconcile | None = None,
    ) -> Request:
        """Put together the call whose answer is the step's outcome.

        The step's own `on_unknown` wins over the kind's.
        """
        policy = self.claimed.step.on_unknown or on_unknown
        asked = self._request(action, body, True, policy, timeout, reconcile)
        return replace(asked, settles_step=True)


def bind_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function that takes no argument be called with the call."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return lambda _: function()
    takes_call = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
        for parameter in parameters
    )
    return function if takes_call else lambda _: function()


def as_coroutine(name: str, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Let a function of a call, plain or not, be awaited; what it raises ends its attempt only."""

    async def awaited(call: Any) -> Any:
        result = bind_call(function)(call)
        return await result if inspect.isawaitable(result) else result

    return partial(containment.call_async, name, awaited)
