"""The argument of a handler: the step's input, and its calls to the agent."""

import asyncio
from http import HTTPStatus
from typing import Any, Final

from agent.core.ids import new_id
from agent.queue.errors import HandlerEnd, QueueError
from agent.queue.lease import Lease, storable

_NOTHING: Final = object()


class _Facts:
    """The properties of a claimed step that need no request."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        document = lease.document
        self.input: Any = document["input"]
        """The step's `with`, rendered."""
        self.key: str | None = document["idempotency_key"]
        """Of an effect, for remote systems that the handler calls: the same after a lost result, so that
        they do nothing twice."""
        self.queue: str = document["queue"]
        self.attempt: int = document["attempt"]
        self.max_attempts: int | None = document["max_attempts"]
        self.task_id: str = document["task"]
        self.workflow: str = document["workflow"]
        self.step: str = document["step"]
        self.parallel_index: int | None = document["parallel_index"]
        self.checkpoint_value: Any = document["checkpoint"]
        """The last checkpoint of an earlier attempt; None if there is none."""
        self.answer: dict[str, Any] | None = document["answer"]
        """The answer to the question that an earlier claim asked: question, status, value, by, comment."""
        self.document: dict[str, Any] = document
        """The claim as the agent sent it."""

    @property
    def is_stopping(self) -> bool:
        """Whether this worker shuts down and waits for the handler."""
        return self._lease.is_stopping

    @property
    def cancelled(self) -> bool:
        """Whether the result is not wanted any more: the step was cancelled, or the lease was lost."""
        return self._lease.end_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why it is not wanted."""
        return self._lease.end_reason

    @property
    def paused(self) -> bool:
        """Whether the task is paused: the next checkpoint ends the handler and gives the step back."""
        return self._lease.is_paused

    @property
    def newer_snapshot(self) -> str | None:
        """The id of a context snapshot that others appended since this handler last looked or appended."""
        return self._lease.newer_snapshot

    def log(self, text: str, stream: str = "log") -> None:
        """Append a text to the step's log; it is sent within a second. Streams: log, stdout, stderr."""
        self._lease.log(storable(text if text.endswith("\n") else f"{text}\n"), stream)


class Work(_Facts):
    """A claimed step, for a handler that is an ordinary function."""

    def checkpoint(self, value: Any) -> None:
        """Record a value that the next attempt gets, if there is one.

        This is where a handler may be stopped: after the value is recorded it does not return if the
        task is paused or this worker shuts down.
        """
        self._lease.call("checkpoint", {"value": value})
        self.checkpoint_value = value
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """End the handler if the step is cancelled or paused, or if this worker shuts down."""
        if self.cancelled or self.paused or self.is_stopping:
            raise HandlerEnd

    def wait(self, seconds: float) -> bool:
        """Sleep; return True at once when the handler should end."""
        return self._lease.ended.wait(seconds)

    def artifact(self, name: str, value: Any) -> dict[str, Any]:
        """Store a large value and return its reference: hash, size and name."""
        return self._lease.call("artifact", {"name": name, "value": value})

    def snapshot(self, value: Any, label: str | None = None) -> str:
        """Append a context snapshot to the task, once, and return its id."""
        # Names this call: if its answer is lost, the repetition appends nothing.
        named = {"value": value, "label": label, "client_token": new_id()}
        answer = self._lease.call("snapshot", named)
        self._lease.knows_snapshot(str(answer["snapshot"]))
        return str(answer["snapshot"])

    def snapshots(self, after: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Return context snapshots of the task, the oldest first; `after` is the id of one.

        Each is a dict with `id`, `value`, `label`, `parent`, `step`, `by` and `created_at`.
        """
        page = self._lease.read("snapshots", cursor=after, limit=limit)
        found: list[dict[str, Any]] = page["snapshots"]
        return found

    def latest_snapshot(self, label: str | None = None) -> dict[str, Any] | None:
        """Return the newest context snapshot of the task, or the newest with a label; None if there is none."""
        try:
            newest = self._lease.read("snapshots/latest", label=label)
        except QueueError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        if label is None:
            self._lease.knows_snapshot(newest["id"])
        return newest

    def ask(
        self,
        question: str,
        *,
        choices: list[str] | None = None,
        schema: dict[str, Any] | None = None,
        who: list[str] | None = None,
        expires_seconds: float | None = None,
        checkpoint: Any = _NOTHING,
    ) -> Any:
        """Ask a person and return the answer's value.

        The first time this does not return: the step is parked, and a later claim calls the handler
        again, with the answer. Then the same question returns it. A claim carries the last answer
        only: a handler with several questions keeps the earlier answers in its checkpoint.
        """
        details = {"choices": choices, "schema": schema, "who": who, "expires": expires_seconds}
        return self._park("ask", {"question": question, **details}, question, checkpoint)

    def block(self, reason: str, *, checkpoint: Any = _NOTHING) -> Any:
        """Park the step until an operator resumes it; return the value that was given then.

        As with `ask`, only the later claim's call returns.
        """
        return self._park("block", {"reason": reason}, f"blocked: {reason}", checkpoint)

    def _park(self, verb: str, document: dict[str, Any], question: str, checkpoint: Any) -> Any:
        # Work that an operator resumed carries a value and no question.
        if self.answer is not None and self.answer["question"] in (question, None):
            return self.answer["value"]
        if checkpoint is not _NOTHING:
            document["checkpoint"] = checkpoint
        raise Parked(verb, document)


class Parked(HandlerEnd):
    """The handler has asked something; the worker sends the question when the handler has ended."""

    def __init__(self, verb: str, document: dict[str, Any]) -> None:
        super().__init__(verb)
        self.verb = verb
        self.document = document


class AsyncWork(_Facts):
    """A claimed step, for a handler that is a coroutine function.

    The handler's task is cancelled when the step is, and when this worker does not wait any longer.
    """

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self._work = Work(lease)

    async def checkpoint(self, value: Any) -> None:
        """Record a value, as `Work.checkpoint`."""
        await asyncio.to_thread(self._work.checkpoint, value)
        self.checkpoint_value = value

    def stop_if_asked(self) -> None:
        """End the handler, as `Work.stop_if_asked`."""
        self._work.stop_if_asked()

    async def artifact(self, name: str, value: Any) -> dict[str, Any]:
        """Store a large value, as `Work.artifact`."""
        return await asyncio.to_thread(self._work.artifact, name, value)

    async def snapshot(self, value: Any, label: str | None = None) -> str:
        """Append a context snapshot, as `Work.snapshot`."""
        return await asyncio.to_thread(self._work.snapshot, value, label)

    async def snapshots(self, after: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Return context snapshots of the task, as `Work.snapshots`."""
        return await asyncio.to_thread(self._work.snapshots, after, limit)

    async def latest_snapshot(self, label: str | None = None) -> dict[str, Any] | None:
        """Return the newest context snapshot, as `Work.latest_snapshot`."""
        return await asyncio.to_thread(self._work.latest_snapshot, label)

    async def ask(
        self,
        question: str,
        *,
        choices: list[str] | None = None,
        schema: dict[str, Any] | None = None,
        who: list[str] | None = None,
        expires_seconds: float | None = None,
        checkpoint: Any = _NOTHING,
    ) -> Any:
        """Ask a person, as `Work.ask`."""
        return self._work.ask(
            question,
            choices=choices,
            schema=schema,
            who=who,
            expires_seconds=expires_seconds,
            checkpoint=checkpoint,
        )

    async def block(self, reason: str, *, checkpoint: Any = _NOTHING) -> Any:
        """Park the step, as `Work.block`."""
        return self._work.block(reason, checkpoint=checkpoint)
