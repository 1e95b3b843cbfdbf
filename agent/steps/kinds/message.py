"""The `message` kind: a text to people, with files.

Each part of a text and each file is one call with an intent, for each recipient: a part on record as
sent is never sent again, and one that may have been sent is sent again (`on_unknown: retry`), since a
message that arrives twice is better than none. A recipient that does not get it fails the step; of
`operator` one recipient is enough. A channel that cannot be reached is tried again, without a slot,
until `deliver_within` is over.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.steps.attempt.context import StepContext
from agent.steps.kinds import attachments
from agent.steps.spec.message_config import OPERATOR, ORIGIN, MessageConfig, parse_recipient
from agent.steps.types.attachment import Attachment
from agent.steps.types.call_types import Call, Request
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.messages import MessagePart, Messenger, Recipient, Sending
from agent.steps.types.outcome import Failed, Json, Outcome, Retry, StepError, Succeeded

_SEND_SECONDS: Final = 30.0
_UPLOAD_SECONDS: Final = 120.0
_MAX_LISTED: Final = 5
_LONG_TEXT: Final = 4000
"""A longer text is parsed in a thread: it must not block the event loop."""


@dataclass(slots=True)
class Delivery:
    """The delivery of a message to one recipient."""

    recipient: Recipient
    message_ids: list[str] = field(default_factory=list)
    failure: DefiniteFailure | None = None

    def document(self) -> dict[str, Json]:
        """Return it as a part of the step's output."""
        document: dict[str, Json] = {
            "channel": self.recipient.channel,
            "recipient": self.recipient.id,
            "message_id": self.message_ids[0] if self.message_ids else None,
        }
        if len(self.message_ids) > 1:
            document["message_ids"] = self.message_ids
        if self.failure is not None:
            document["error"] = self.failure.error.message
        return document


@dataclass(slots=True)
class Address:
    """One entry of `to`: one recipient, or those of `operator`; one of these is enough."""

    name: str
    deliveries: list[Delivery]

    @property
    def is_reached(self) -> bool:
        """Whether the message has arrived where this entry says."""
        reached = [delivery.failure is None for delivery in self.deliveries]
        return any(reached) if self.name == OPERATOR else all(reached)


async def run(config: MessageConfig, context: StepContext) -> Outcome:
    """Send the message to everyone it is for."""
    messenger = context.services.messenger
    if messenger is None:
        raise _refused("no_messenger", "this process cannot send messages")
    addresses = await _addresses(config, context, messenger)
    limits = context.services.limits
    files = await asyncio.to_thread(
        attachments.load, config.attach, limits.attach_from, limits.private_files
    )
    sender = _Sender(config, context, messenger, files)
    for delivery in _deliveries(addresses):
        await sender.deliver(delivery)
    return _outcome(addresses, sender.is_over)


class _Sender:
    """Sends one message to one recipient after the other."""

    def __init__(
        self,
        config: MessageConfig,
        context: StepContext,
        messenger: Messenger,
        files: list[Attachment],
    ) -> None:
        self._config = config
        self._context = context
        self._messenger = messenger
        self._files = files

    def is_over(self, delay_seconds: float) -> bool:
        """Whether a retry after this delay would come after `deliver_within`."""
        now = self._context.services.clock.now()
        return now + int(delay_seconds * SECOND) >= self._deadline(now)

    async def deliver(self, delivery: Delivery) -> None:
        """Send all parts to one recipient; the first one that fails ends it."""
        try:
            for part in await self._parts(delivery.recipient.channel):
                delivery.message_ids.append(await self._send(delivery.recipient, part))
        except DefiniteFailure as error:
            delivery.failure = error

    async def _parts(self, channel: str) -> list[MessagePart]:
        config = self._config
        split = partial(self._messenger.split, channel, config.text, is_markdown=not config.plain)
        is_long = len(config.text) > _LONG_TEXT
        texts, rest = await asyncio.to_thread(split) if is_long else split()
        parts = [MessagePart(text, not config.plain) for text in texts]
        files = list(self._files)
        if rest is not None:
            files.insert(0, Attachment("message.md", rest.encode("utf-8", "replace")))
        return parts + [MessagePart("", attachment=file) for file in files]

    async def _send(self, recipient: Recipient, part: MessagePart) -> str:
        """Send one part as a call; return the channel's id of the message."""
        body: dict[str, Json] = {"to": str(recipient)}
        if recipient.thread is not None:
            body["thread"] = recipient.thread
        if part.attachment is None:
            body["text"] = part.text
        else:
            body["attach"] = attachments.summary(part.attachment)
        seconds = _SEND_SECONDS if part.attachment is None else _UPLOAD_SECONDS
        step = self._context.attempt_input.step
        request = Request(
            f"message.{recipient.channel}",
            body,
            step.on_unknown or "retry",
            seconds,
            is_bounded=True,
        )
        self._refuse_after_deadline()
        answer = await self._context.perform(request, partial(self._perform, recipient, part))
        return str((answer.response or {}).get("message_id"))

    async def _perform(self, recipient: Recipient, part: MessagePart, call: Call) -> Json:
        sending = Sending(recipient, part, call.remote_key, self._context.task_id)
        return {"message_id": await self._messenger.send(sending)}

    def _refuse_after_deadline(self) -> None:
        """Stop where the last try of the next call was made after `deliver_within`, and is unknown.

        A definite failure ends the step by itself. One try is made in any case, also when the machine
        slept through the whole time.
        """
        number = self._context.calls.number + 1
        past = [call for call in self._context.attempt_input.calls if call.number == number]
        if any(call.status == CallStatus.SUCCEEDED for call in past):
            return
        tries = [call for call in past if call.status == CallStatus.UNKNOWN and call.attempt > 0]
        if tries and max(call.expires_at for call in tries) > self._deadline(0):
            raise _refused(
                "undelivered",
                f"no answer within {self._config.deliver_within:g} s, and whether the message"
                " arrived is unknown",
            )

    def _deadline(self, now: int) -> int:
        """Return until when it is tried again, counted from the first call of this task."""
        window = self._context.services.limits.send_window_seconds
        begun = [
            call.expires_at - int((window + _SEND_SECONDS) * SECOND)
            for call in self._context.attempt_input.calls
            if call.attempt > 0 and call.action.startswith("message.")
        ]
        return min(begun, default=now) + int(self._config.deliver_within * SECOND)


async def _addresses(
    config: MessageConfig, context: StepContext, messenger: Messenger
) -> list[Address]:
    """Return whom the message is for; a recipient that is named twice gets it once."""
    origin = context.attempt_input.task.chat_origin
    known: dict[Recipient, Delivery] = {}
    addresses = []
    for name in config.to or [OPERATOR if origin is None else ORIGIN]:
        if name == OPERATOR:
            recipients = [
                parse_recipient(operator) for operator in await _operators(context, messenger)
            ]
        else:
            recipients = [_recipient(name, config, context)]
        deliveries = [known.setdefault(recipient, Delivery(recipient)) for recipient in recipients]
        addresses.append(Address(name, deliveries))
    return addresses


def _recipient(name: str, config: MessageConfig, context: StepContext) -> Recipient:
    if name == ORIGIN:
        origin = context.attempt_input.task.chat_origin
        if origin is None:
            raise _refused(
                "no_origin",
                "the task was not started in a chat, so it has no origin: send it to operator, or to"
                " a recipient such as telegram:ID",
            )
        return Recipient(origin.channel, origin.recipient, config.thread or origin.thread)
    try:
        recipient = parse_recipient(name)
    except ValueError as error:
        raise _refused("bad_recipient", str(error)) from None
    if recipient.channel == "apprise" and name not in _written(context):
        # The result of a template is data, and data must not be able to name a secret.
        raise _refused("bad_recipient", f"{name} must be written in the definition itself")
    return replace(recipient, thread=config.thread)


def _written(context: StepContext) -> list[Json]:
    """Return the recipients as the definition has them."""
    written = context.attempt_input.step.config.get("to")
    return written if isinstance(written, list) else [written]


async def _operators(context: StepContext, messenger: Messenger) -> list[str]:
    """Return whom `operator` stands for; every attempt sees the same, though people are paired."""

    async def read() -> list[str]:
        names = await messenger.operators()
        if not names:
            raise _refused(
                "no_recipient",
                "there is no recipient: `operator` means paired chat accounts (write to the bot, then"
                " `agent pair CODE`) or what operator in [notify] of the configuration names",
            )
        return names

    names: list[str] = await context.call("message.operators", None, read, effect=False)
    return names


def _deliveries(addresses: list[Address]) -> list[Delivery]:
    """Return the deliveries of all addresses, each once: two addresses may name the same person."""
    return list(
        {
            id(delivery): delivery for address in addresses for delivery in address.deliveries
        }.values()
    )


def _outcome(addresses: list[Address], is_over: Callable[[float], bool]) -> Outcome:
    """Succeed if the message has arrived wherever `to` says; otherwise retry or fail."""
    missed = [address for address in addresses if not address.is_reached]
    deliveries = _deliveries(addresses)
    if not missed:
        return Succeeded({"deliveries": [delivery.document() for delivery in deliveries]})
    failures = {
        str(delivery.recipient): delivery.failure
        for address in missed
        for delivery in address.deliveries
        if delivery.failure is not None
    }
    retryable = [failure for failure in failures.values() if failure.may_retry]
    delay = max((failure.delay_seconds or 0.0 for failure in retryable), default=0.0)
    first = next(iter(retryable or failures.values())).error
    error = StepError(first.code, first.kind, _failure_text(failures, deliveries))
    if retryable and not is_over(delay):
        return Retry(error, delay or None)
    return Failed(replace(error, code="undelivered" if retryable else first.code))


def _failure_text(failures: dict[str, DefiniteFailure], deliveries: list[Delivery]) -> str:
    """Say who did not get the message and why, and who did."""
    listed = [f"{name}: {failure.error.message}" for name, failure in failures.items()]
    text = "the message was not delivered to " + "; ".join(listed[:_MAX_LISTED])
    if len(listed) > _MAX_LISTED:
        text += f"; and {len(listed) - _MAX_LISTED} more"
    reached = [str(delivery.recipient) for delivery in deliveries if delivery.failure is None]
    if reached:
        text += f" (it was delivered to {', '.join(reached[:_MAX_LISTED])})"
    return text


def _refused(code: str, message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code=code, kind="input", may_retry=False)
