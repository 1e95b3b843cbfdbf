"""The `ctx` of a step's code: its identity, its input, and the calls that act on the outside world."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Final

from agent.steps.attempt import config_record
from agent.steps.attempt.cancel_scope import complete
from agent.steps.attempt.recorded_calls.call_functions import as_coroutine
from agent.steps.attempt.recorded_calls.calls import Calls, Prepare
from agent.steps.attempt.secrets import Secrets, ValuePath
from agent.steps.attempt.services import Services
from agent.steps.attempt.state_access import StateAccess
from agent.steps.types.attempt_input import AttemptInput, RevokedError, Signals
from agent.steps.types.call_records import Spend
from agent.steps.types.call_types import Call, CallAnswer, MeasuredResponse, Reconcile, Request
from agent.steps.types.outcome import Json, Paused
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import encode

Perform = Callable[[Call], Awaitable[Json | MeasuredResponse]]


LOG_ENDS: Final = "\n[the log ends here: it reached its limit]"


class ContextFacts:
    """The facts of an attempt, the same for coroutines and for functions in threads."""

    def __init__(
        self,
        attempt_input: AttemptInput,
        signals: Signals,
        services: Services,
        secrets: Secrets,
        calls: Calls,
    ) -> None:
        self.attempt_input = attempt_input
        self.signals = signals
        self.services = services
        self.secrets = secrets
        self.calls = calls
        self.secret_paths: frozenset[ValuePath] = frozenset()
        """The paths in the step's configuration that name secrets."""
        self.is_interrupted: Callable[[], bool] = bool
        """Whether the time limit or the engine has interrupted the attempt."""
        self.note_outlived: Callable[[StepContext], None] = lambda _: None
        """Called when the attempt is over, and a thread of its own still runs."""
        self.command_limits: dict[str, int] = {}
        """The limits of the step's commands, by name: `memory`, `cpu_seconds`, `files`."""
        self.runs_elsewhere = False
        """Whether a job runs the attempt's code."""
        self._call: Call | None = None
        self._logged_bytes = 0
        self._log_lock = threading.Lock()

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.attempt_input.task.id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self.attempt_input.task.workflow

    @property
    def step_id(self) -> str:
        """The step's id."""
        return self.attempt_input.step_id

    @property
    def step(self) -> str:
        """The step's name."""
        return self.attempt_input.step.name

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.attempt_input.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts the step has."""
        return self.attempt_input.max_attempts

    @property
    def parallel_index(self) -> int | None:
        """The index of this item in its group, from 0; None outside of a group."""
        return self.attempt_input.parallel_index

    @property
    def parallel_count(self) -> int | None:
        """The number of items in the group; None outside of a group."""
        return self.attempt_input.parallel_count

    @property
    def item(self) -> Json:
        """The value of this item; None outside of a group."""
        return self.attempt_input.item

    @property
    def input(self) -> dict[str, Json]:
        """The task's input."""
        return self.attempt_input.task.input

    @property
    def trigger(self) -> Json:
        """The trigger of the task."""
        return self.attempt_input.task.trigger

    @property
    def outputs(self) -> dict[str, Json]:
        """The outputs of the steps that this one depends on, by name."""
        return {name: step.output for name, step in self.attempt_input.upstream.items()}

    @property
    def checkpoint(self) -> Json:
        """The value that was saved last, by this attempt or an earlier one."""
        return self.calls.checkpoint

    @property
    def should_stop(self) -> bool:
        """Whether the attempt should stop now, or is over already."""
        return self.signals.is_stopping or self.calls.is_revoked

    @property
    def should_pause(self) -> bool:
        """Whether the task is being paused; the next `save` ends the attempt."""
        return self.signals.is_pausing

    @property
    def remote_key(self) -> str:
        """The key to give a remote as `Idempotency-Key`, inside the function of a call."""
        if self._call is None:
            raise RuntimeError("remote_key is only known inside the function of a call")
        return self._call.remote_key

    def log_text(self, stream: str, text: str) -> None:
        """Write to the step's log, without secrets and within the attempt's limit.

        Any thread may call this.
        """
        with self._log_lock:
            left_bytes = self.services.limits.log_bytes - self._logged_bytes
            if left_bytes <= 0 or not text:
                return
            text = self._redact_beginning(text, left_bytes).replace("\0", "\ufffd")
            text = text.encode("utf-8", "replace").decode("utf-8")
            self._logged_bytes += len(text)
            if len(text) > left_bytes:
                text = text[:left_bytes] + LOG_ENDS
            self.services.journal.log(self.attempt_input, stream, text)

    def note_executor(self, document: dict[str, Json]) -> None:
        """Record for people which executor runs the attempt, and where."""
        config_record.record_executor(self.attempt_input, self.services, document)

    def _redact_beginning(self, text: str, length: int) -> str:
        """Redact only the part of a text that is logged, so that a long text costs no more."""
        longest = self.secrets.longest
        beginning = text[: length + longest + 1]
        if len(beginning) == len(text):
            return self.secrets.redact(text)
        # A secret may be cut in two at the end, so that much is left out.
        redacted = self.secrets.redact(beginning)
        return redacted[: len(redacted) - longest] if longest else redacted

    def _policy(self, on_unknown: str | None, *, effect: bool, reconcile: object) -> str:
        """Return the policy for an unknown call: of the call, of the step, or the default."""
        if on_unknown is not None:
            return on_unknown
        if self.attempt_input.step.on_unknown is not None:
            return self.attempt_input.step.on_unknown
        if not effect:
            return "retry"
        return "reconcile" if reconcile else "ask"

    def _call_seconds(self, timeout: float | None) -> float:
        """Return the own time of a call. Where its worker falls silent, a rescue makes it longer."""
        step = self.attempt_input.step
        return timeout or step.timeout_seconds or self.services.limits.call_seconds


class StepContext(ContextFacts):
    """The context of a step that runs on the event loop."""

    @cached_property
    def state(self) -> StateAccess:
        """The values that outlive the task: `get`, `set`, `compare_and_set`, `delete`."""
        return StateAccess(self)

    def log(self, text: str) -> None:
        """Write a line to the step's log."""
        self.log_text("log", text)

    async def save(self, value: Json) -> None:
        """Make a checkpoint durable. The attempt ends here if the task is being paused."""
        if self.calls.is_revoked:
            raise RevokedError("this attempt is over")
        if is_small(value):
            value = self._redact_checkpoint(value)
        else:
            value = await asyncio.to_thread(self._redact_checkpoint, value)
        try:
            await self.services.journal.checkpoint(self.attempt_input, value)
        except RevokedError:
            self.calls.is_revoked = True
            raise
        self.calls.checkpoint = value
        if self.should_pause:
            self.calls.end_attempt(Paused(value))

    def _redact_checkpoint(self, value: Json) -> Json:
        """Return a checkpoint as it is stored; raise `NotPlainJsonError` if it cannot be."""
        value = self.secrets.redact_value(value)
        encode(value, "checkpoint")
        return value

    async def snapshot(self, value: Json, label: str | None = None) -> str:
        """Append a value to the context of the task, once for this use; return the snapshot's id."""
        value = self.secrets.redact_value(value)
        label = None if label is None else self.secrets.redact(label)
        text = encode(value, "the snapshot")
        body = {"label": label, "value": value}
        request = Request("snapshot", body, "ask", timeout_seconds=0)
        answer = await self.calls.operate(request, SnapshotOperation(text, label))
        return str(answer["snapshot"])

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
        """Act on the outside world at most once, or return the response of an earlier attempt.

        `function` may take the call, whose `remote_key` is for the remote. `DefiniteFailure` from it
        means that nothing happened. After any other exception the outcome is unknown, and
        `on_unknown` decides what the next attempt does: `retry`, `reconcile`, `ask` or `fail`.
        `reconcile` may take the call too, and returns `Applied`, False or None.
        With `effect=False` the call may be repeated; it is recorded so that a later attempt
        gets the same response.
        """
        check = None if reconcile is None else as_coroutine(f"reconcile of {action}", reconcile)
        perform = as_coroutine(f"the function of {action}", function)
        answer = await self.perform(
            Request(
                action,
                request,
                self._policy(on_unknown, effect=effect, reconcile=reconcile),
                self._call_seconds(timeout),
                is_bounded=timeout is not None,
                is_effect=effect,
                reconcile=check,
            ),
            perform,
        )
        return answer.response

    async def perform(
        self, request: Request, perform: Perform, prepare: Prepare | None = None
    ) -> CallAnswer:
        """Make a journaled call; return its response with the key of its row in the ledger."""
        call = await self.calls.open(request, prepare)
        if isinstance(call, CallAnswer):
            return call
        self._call = call
        has_begun = False
        try:
            self.calls.check_may_begin(call)
            has_begun = True
            async with asyncio.timeout(request.timeout_seconds if request.is_bounded else None):
                response = await perform(call)
        except BaseException as error:
            self.calls.record_failure(call, error, has_begun=has_begun)
            raise
        spend: Spend | None = None
        if isinstance(response, MeasuredResponse):
            response, spend = response.response, response.spend
        cancellation: asyncio.CancelledError | None = None
        if is_small(response):
            encoded = self.calls.results.encode_response(call, response)
        else:
            # The call has happened: its response is recorded even if the attempt is cancelled now.
            thread = asyncio.to_thread(self.calls.results.encode_response, call, response)
            encoded, cancellation = await complete(asyncio.ensure_future(thread))
        value = self.calls.record_success(call, encoded, spend)
        if cancellation is not None:
            raise cancellation
        return CallAnswer(value, call.idempotency_key)

    def request(
        self,
        action: str,
        body: Json,
        *,
        on_unknown: str,
        timeout: float | None = None,
        reconcile: Reconcile | None = None,
    ) -> Request:
        """Return the request whose answer is the step's outcome.

        The step's own `on_unknown` has precedence over the kind's.
        """
        return Request(
            action,
            body,
            self.attempt_input.step.on_unknown or on_unknown,
            self._call_seconds(timeout),
            is_bounded=timeout is not None,
            settles_step=True,
            reconcile=reconcile,
        )
