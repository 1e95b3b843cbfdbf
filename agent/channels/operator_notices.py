"""Notices to one address of `operator` in [notify], through the senders that messages of steps use.

An address is a channel with a cursor of its own: one that cannot be reached holds up no other. An account
of a chat that is paired gets questions and notices there, with buttons, and not a second time from here.
"""

import asyncio
from typing import Final

from agent.approvals.permission import may_answer
from agent.channels.channel import DeliveryError, Notification
from agent.channels.chat import message_texts, pairing
from agent.channels.chat.chat import text_of_notice
from agent.channels.messages.messenger import ChannelMessenger
from agent.config.channels import NOTIFIED_EVENTS, NOTIFY_PREFIX, TEST_NOTICE
from agent.config.settings import Settings
from agent.core.ids import content_hash
from agent.steps.spec.message_config import parse_recipient
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.messages import MessagePart, Sending
from agent.store.channels import pairings
from agent.store.db.database import Database
from agent.tasks.read_models.task_documents import short_id

_MAX_LENGTH: Final = 3_000
"""Every channel takes this as one message."""
_MAX_REJECTIONS: Final = 5


class OperatorNotices:
    """Sends every notice to one address, as plain text."""

    events = NOTIFIED_EVENTS
    reports_ends = False

    def __init__(self, address: str, settings: Settings, database: Database) -> None:
        self.name = f"{NOTIFY_PREFIX}{address}"
        self._recipient = parse_recipient(address)
        self._is_chat = self._recipient.channel in settings.channels.turned_on
        self._database = database
        self._messenger = ChannelMessenger(settings, database)

    async def deliver(self, notification: Notification) -> None:
        """Send a notice; a question that is no longer open is not sent."""
        approval = notification.approval
        if approval is not None and approval["status"] != "pending":
            return
        if await asyncio.to_thread(self._has_it, notification):
            return
        if (text := _text(notification)) is not None:
            await self._send(text, notification)

    async def update(self, notification: Notification) -> None:
        """Send the decision on a question: a message that was sent cannot be changed here."""
        approval = notification.approval
        if approval is None or approval["status"] == "pending":
            return
        if await asyncio.to_thread(self._has_it, notification):
            return
        await self._send(message_texts.closed_question(approval, _MAX_LENGTH), notification)

    async def _send(self, text: str, notification: Notification) -> None:
        key = content_hash(f"{notification.id} {self.name}")
        part = MessagePart(text, is_markdown=False)
        task_id = None if notification.task is None else str(notification.task["id"])
        try:
            await self._messenger.send(Sending(self._recipient, part, key, task_id))
        except UnknownOutcomeError as error:
            # A notice twice is better than none.
            raise DeliveryError(str(error)) from None
        except DefiniteFailure as error:
            # A setting or a certificate may be mended; what the other side refuses stays refused.
            is_rejected = not error.may_retry and error.error.kind == "remote"
            raise DeliveryError(
                str(error),
                retry_after_seconds=error.delay_seconds,
                max_attempts=_MAX_REJECTIONS if is_rejected else None,
            ) from None

    async def receive(self) -> bool:
        """Return False: nothing is received here."""
        return False

    async def close(self) -> None:
        """Close the connections."""
        await self._messenger.aclose()

    def _has_it(self, notification: Notification) -> bool:
        """Whether the address is a paired account, whose chat has sent it this already."""
        if not self._is_chat or notification.event == TEST_NOTICE:
            return False
        with self._database.connect("reader") as connection:
            account = pairings.find(connection, self._recipient.channel, self._recipient.id)
        if account is None or account.paired_at is None:
            return False
        approval = notification.approval
        return approval is None or may_answer(pairing.principal(account), approval["who"])


def _text(notification: Notification) -> str | None:
    approval = notification.approval
    if notification.event == TEST_NOTICE:
        return "This is a test: notices of the agent reach you here."
    if approval is not None:
        prefix = "Reminder: " if notification.event == "approval.reminded" else ""
        answer = f"\n\nanswer it: `agent approvals {short_id(approval['id'])}`, or in the dashboard"
        question, _ = message_texts.question(approval, _MAX_LENGTH - len(answer), prefix)
        return question + answer
    if (text := text_of_notice(notification)) is not None:
        return text
    if notification.task is None:
        return None
    name = short_id(notification.task["id"])
    return f"{message_texts.failed_task(notification.task)}\nsee `agent show {name}`"
