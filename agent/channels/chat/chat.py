"""The part of a chat channel that does not depend on the platform.

A platform posts messages, edits them, and reports which account wrote what.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Final

import structlog

from agent.approvals import approval_documents
from agent.approvals.permission import Principal, may_answer
from agent.channels.channel import DeliveryError, Notification, raise_most_retryable
from agent.channels.chat import (
    buttons,
    message_texts,
    pairing,
    task_ends,
    trigger_notices,
    upkeep_notices,
)
from agent.channels.chat.chat_error import ChatError
from agent.channels.chat.command_handler import CommandHandler, typed_value
from agent.config.channels import NOTIFIED_EVENTS, PAIRED
from agent.core.chat_origin import ChatOrigin
from agent.core.escape import harmless
from agent.steps.types.outcome import Json
from agent.store.channels import cursors as store
from agent.store.channels import pairings
from agent.store.channels.cursors import Message
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError, RefusedError

log = structlog.get_logger(__name__)

_MAX_OPEN: Final = 100


class Chat(ABC):
    """A chat whose paired accounts get questions, answer them and run commands."""

    name: str
    events = (*NOTIFIED_EVENTS, PAIRED)
    reports_ends = True

    def __init__(self, database: Database, handler: CommandHandler) -> None:
        self.database = database
        self.handler = handler
        self._delivered: tuple[str, set[str]] = ("", set())
        """The notification under delivery, and the recipients that have it."""
        self._posting = asyncio.Lock()
        """Held from the post of a question until its message is recorded."""

    @abstractmethod
    async def post(
        self,
        recipient: str,
        text: str,
        labelled: list[tuple[str, str]],
        thread: str | None = None,
    ) -> str:
        """Post a message with buttons (labels and tokens); return its id in the chat."""

    @abstractmethod
    async def edit(self, recipient: str, reference: str, text: str) -> None:
        """Replace the text of a message and remove its buttons."""

    @abstractmethod
    def max_length(self, text: str) -> int:
        """Return how many characters a message made of this text may have."""

    async def send(self, recipient: str, text: str, thread: str | None = None) -> None:
        """Send a text without buttons; an empty one is not sent."""
        if not text:
            return
        text = harmless(text)
        await self.post(recipient, message_texts.cut(text, self.max_length(text)), [], thread)

    async def deliver(self, notification: Notification) -> None:
        """Send a question, a failed task or a notice to the paired accounts it concerns."""
        approval = notification.approval
        is_reminder = notification.event == "approval.reminded"
        if approval is not None and approval["status"] != "pending":
            return
        if self._delivered[0] != notification.id:
            self._delivered = (notification.id, set())
        delivered = self._delivered[1]
        problems: list[DeliveryError] = []
        for recipient in await asyncio.to_thread(self._recipients, notification):
            if recipient in delivered:
                continue
            try:
                await self._deliver_to(recipient, notification, is_reminder=is_reminder)
                delivered.add(recipient)
            except ChatError as error:
                problems.append(error.as_delivery_error())
        raise_most_retryable(problems)

    async def update(self, notification: Notification) -> None:
        """Remove the buttons of a question and show what was decided."""
        approval = notification.approval
        if approval is None or approval["status"] == "pending":
            return
        problems: list[DeliveryError] = []
        for message in await asyncio.to_thread(self._messages, approval["id"]):
            if message.shown == approval["status"]:
                continue
            text = message_texts.closed_question(approval, self.max_length(_as_json(approval)))
            try:
                await self.edit(message.recipient, message.reference, text)
            except ChatError as error:
                if not error.is_message_gone:
                    problems.append(error.as_delivery_error())
                    continue
            await asyncio.to_thread(self._set_shown, message.recipient, approval)
        raise_most_retryable(problems)

    async def identify(self, identity: str) -> Principal:
        """Return the caller that an account is: without scopes unless it is paired."""
        return await asyncio.to_thread(pairing.identify, self.database, self.name, identity)

    async def send_pairing_code(self, identity: str, name: str) -> None:
        """Send a stranger a code that the owner can confirm on the command line."""
        code = await asyncio.to_thread(pairing.offer, self.database, self.name, identity, name)
        if code is not None:
            text = (
                "This account is not paired with the agent. To pair it, run this on the agent's"
                f" machine: agent pair {code}"
            )
            await self.send(identity, text)

    async def press_button(self, principal: Principal, token: str) -> str:
        """Give the answer that a button stands for, if it is this account's; return the reply."""
        if principal.is_stranger:
            return "This account is not paired with the agent."
        return await asyncio.to_thread(self._press_button, principal, token)

    async def handle_text(
        self,
        principal: Principal,
        text: str,
        reply_to: str | None,
        key: str,
        thread: str | None = None,
    ) -> str:
        """Run a command, or take a reply to a question as its answer; return the agent's reply.

        `key` identifies the message, `reply_to` the message that it replies to, and `thread` the
        thread that it was written in.
        """
        if reply_to is not None:
            # That message may be posted but not recorded yet.
            async with self._posting:
                pass
        return await asyncio.to_thread(self._handle_text, principal, text, reply_to, key, thread)

    async def _deliver_to(
        self, recipient: str, notification: Notification, *, is_reminder: bool
    ) -> None:
        if notification.approval is not None:
            await self._post_question(recipient, notification.approval, is_reminder=is_reminder)
        elif (text := text_of_notice(notification)) is not None:
            await self.send(recipient, text)
        elif notification.paired is not None:
            await self._welcome(recipient, notification.paired)
        elif notification.task is not None:
            await self._report_end(recipient, notification)

    async def _welcome(self, recipient: str, paired: dict[str, Json]) -> None:
        """Confirm a pairing, and show the open questions that the account may answer."""
        await self.send(recipient, message_texts.paired(paired["scopes"]))
        for approval in await asyncio.to_thread(self._open_questions, recipient):
            await self._post_question(recipient, approval, is_reminder=False)

    async def _report_end(self, recipient: str, notification: Notification) -> None:
        """Report the end of a task; to the person who started it, in the thread of the start."""
        task, origin = notification.task, notification.origin
        assert task is not None
        is_own = origin is not None and (origin.channel, origin.recipient) == (self.name, recipient)
        text = await asyncio.to_thread(self._end_text, notification.event, task, origin)
        if text is not None:
            await self.send(recipient, text, origin.thread if is_own and origin else None)

    async def _post_question(
        self, recipient: str, approval: dict[str, Json], *, is_reminder: bool
    ) -> None:
        prefix = "Reminder: " if is_reminder else ""
        max_length = self.max_length(_as_json(approval))
        text, is_complete = message_texts.question(approval, max_length, prefix)
        labelled: list[tuple[str, str]] = []
        if is_complete:
            # No buttons under a cut text: a person must not approve what they could not read.
            labelled = await asyncio.to_thread(
                buttons.create, self.database, approval, self.name, recipient
            )
        earlier = await asyncio.to_thread(self._messages, approval["id"])
        async with self._posting:
            reference = await self.post(recipient, text, labelled)
            await asyncio.to_thread(self._record, recipient, approval["id"], reference)
        for message in earlier:
            if message.recipient == recipient:
                await self._mark_superseded(message, approval)

    async def _mark_superseded(self, message: Message, approval: dict[str, Json]) -> None:
        """Remove the buttons of an earlier message: only the newest one keeps them."""
        text = harmless(f"{approval['message']}\n\nasked again below")
        try:
            await self.edit(
                message.recipient,
                message.reference,
                message_texts.cut(text, self.max_length(text)),
            )
        except ChatError as error:
            # Its buttons still work, or reply with the decision.
            log.warning("chat.refused", channel=self.name, error=str(error))

    # The methods below run in threads.

    def _press_button(self, principal: Principal, token: str) -> str:
        try:
            button = buttons.find(self.database, token, self.name, principal.identity)
        except (NotFoundError, RefusedError) as error:
            return str(error)
        return self.handler.answer(principal, button.approval_id, button.said)

    def _handle_text(
        self, principal: Principal, text: str, reply_to: str | None, key: str, thread: str | None
    ) -> str:
        if reply_to is not None and not text.startswith("/"):
            with self.database.connect("reader") as connection:
                approval_id = store.shown_as(connection, self.name, principal.identity, reply_to)
                document = approval_id and approval_documents.approval_document(
                    connection, approval_id
                )
            if approval_id and document:
                answer = {"decision": "answer", "value": typed_value(document, text)}
                return self.handler.answer(principal, approval_id, answer)
        return self.handler.reply(principal, text, f"{principal.identity}:{key}", thread)

    def _end_text(self, event: str, task: dict[str, Json], origin: ChatOrigin | None) -> str | None:
        """Return the text of a task's end; None for a success that the task has reported itself."""
        with self.database.connect("reader") as connection, connection.snapshot():
            return task_ends.text_of(connection, event, task, origin)

    def _open_questions(self, recipient: str) -> list[dict[str, Json]]:
        with self.database.connect("reader") as connection, connection.snapshot():
            account = pairings.find(connection, self.name, recipient)
            if account is None or account.paired_at is None:
                return []
            caller = pairing.principal(account)
            return [
                document
                for document in approval_documents.list_approvals(connection, limit=_MAX_OPEN)
                if may_answer(caller, document["who"])
                and recipient
                not in {
                    message.recipient
                    for message in store.messages_of(connection, self.name, document["id"])
                }
            ]

    def _recipients(self, notification: Notification) -> list[str]:
        """Return the accounts to notify: of an approval, those that may answer and lack it."""
        approval = notification.approval
        is_reminder = notification.event == "approval.reminded"
        with self.database.connect("reader") as connection:
            paired = pairings.listed(connection, self.name)
            if approval is None:
                accounts = [account.identity for account in paired]
                only = _only_recipient(self.name, notification)
                return (
                    accounts
                    if only is None
                    else [recipient for recipient in accounts if recipient == only]
                )
            allowed = [
                account.identity
                for account in paired
                if may_answer(pairing.principal(account), approval["who"])
            ]
            if is_reminder:
                return allowed
            messages = store.messages_of(connection, self.name, approval["id"])
        have_it = {message.recipient for message in messages}
        return [recipient for recipient in allowed if recipient not in have_it]

    def _messages(self, approval_id: str) -> list[Message]:
        with self.database.connect("reader") as connection:
            return store.messages_of(connection, self.name, approval_id)

    def _record(self, recipient: str, approval_id: str, reference: str) -> None:
        now = self.database.clock.now()
        with self.database.connect("writer") as tx, tx.transaction():
            store.record_message(tx, self.name, recipient, approval_id, reference, now)

    def _set_shown(self, recipient: str, approval: dict[str, Json]) -> None:
        with self.database.connect("writer") as tx, tx.transaction():
            store.set_shown(tx, self.name, recipient, approval["id"], approval["status"])


def text_of_notice(notification: Notification) -> str | None:
    """Return the text of a notice that is about no task; None for one about a task or a question."""
    event = notification.event
    if notification.outage is not None:
        return message_texts.outage(event, notification.outage)
    if notification.upkeep is not None:
        return upkeep_notices.text_of(event, notification.upkeep)
    if notification.trigger is not None:
        return trigger_notices.text_of(event, notification.trigger)
    return None


def _only_recipient(channel: str, notification: Notification) -> str | None:
    """Return the one account that a notification is for; None if it is for all."""
    if notification.paired is not None:
        is_here = notification.paired["channel"] == channel
        return str(notification.paired["identity"]) if is_here else ""
    if notification.event in ("task.succeeded", "task.canceled"):
        origin = notification.origin
        return origin.recipient if origin is not None and origin.channel == channel else ""
    return None


def _as_json(approval: dict[str, Json]) -> str:
    return json.dumps(approval, ensure_ascii=False)
