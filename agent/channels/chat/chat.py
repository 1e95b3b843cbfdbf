"""What all chats have in common: who is told, what is remembered of it, and what is understood.

A chat itself only posts messages, changes them, and says who wrote what.
"""

import asyncio
import json
from abc import ABC, abstractmethod

import structlog

from agent.approvals import approval_documents
from agent.approvals.permission import Principal, may_answer
from agent.channels.channel import DeliveryError, Notification, raise_most_retryable
from agent.channels.chat import buttons, message_texts, pairing
from agent.channels.chat.command_handler import CommandHandler, typed_value
from agent.config.channels import NOTIFIED_EVENTS
from agent.core.escape import harmless
from agent.steps.types.outcome import Json
from agent.store.channels import cursors as store
from agent.store.channels import pairings
from agent.store.channels.cursors import Message
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError, RefusedError

log = structlog.get_logger(__name__)


class ChatError(Exception):
    """A chat's service did not do what it was asked; the message holds no secret."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        is_refusal: bool = False,
        is_about_nothing: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.is_refusal = is_refusal
        """Asking again would not help: somebody blocked the agent, or a chat is gone."""
        self.is_about_nothing = is_about_nothing
        """A message to be changed is so already, or is not there any more."""

    def as_delivery_error(self) -> DeliveryError:
        """Return the same, as deliveries understand it."""
        return DeliveryError(
            str(self),
            retry_after_seconds=self.retry_after_seconds,
            max_attempts=1 if self.is_refusal else None,
        )


class Chat(ABC):
    """A chat in which those who are paired are asked, and give commands."""

    name: str
    events = NOTIFIED_EVENTS

    def __init__(self, database: Database, handler: CommandHandler) -> None:
        self.database = database
        self.handler = handler
        self._told: tuple[str, set[str]] = ("", set())
        """The notification that is being delivered, and who has it."""
        self._posting = asyncio.Lock()
        """Held until a question that somebody can see already is on record as shown."""

    @abstractmethod
    async def post(self, place: str, text: str, offered: list[tuple[str, str]]) -> str:
        """Show somebody a message with buttons (labels and tokens); return its name there."""

    @abstractmethod
    async def rewrite(self, place: str, reference: str, text: str) -> None:
        """Put another text, without buttons, in the place of a message."""

    @abstractmethod
    def room(self, text: str) -> int:
        """Return how many characters a message made of this text may have."""

    async def say(self, place: str, text: str) -> None:
        """Show somebody a text."""
        text = harmless(text)
        await self.post(place, message_texts.cut(text, self.room(text)), [])

    async def deliver(self, notification: Notification) -> None:
        """Show a question, a failed task or an outage to everybody who is paired."""
        approval = notification.approval
        is_reminder = notification.event == "approval.reminded"
        if approval is not None and approval["status"] != "pending":
            return
        if self._told[0] != notification.id:
            self._told = (notification.id, set())
        told = self._told[1]
        problems: list[DeliveryError] = []
        for place in await asyncio.to_thread(self._places, approval, is_reminder):
            if place in told:
                continue
            try:
                if approval is not None:
                    await self._ask(place, approval, is_reminder=is_reminder)
                elif notification.outage is not None:
                    await self.say(
                        place, message_texts.outage(notification.event, notification.outage)
                    )
                elif notification.task is not None:
                    await self.say(place, message_texts.failed_task(notification.task))
                told.add(place)
            except ChatError as error:
                problems.append(error.as_delivery_error())
        raise_most_retryable(problems)

    async def update(self, notification: Notification) -> None:
        """Take the buttons away, and write what was decided."""
        approval = notification.approval
        if approval is None or approval["status"] == "pending":
            return
        problems: list[DeliveryError] = []
        for message in await asyncio.to_thread(self._messages, approval["id"]):
            if message.shown == approval["status"]:
                continue
            text = message_texts.ending(approval, self.room(_whole(approval)))
            try:
                await self.rewrite(message.place, message.reference, text)
            except ChatError as error:
                if not error.is_about_nothing:
                    problems.append(error.as_delivery_error())
                    continue
            await asyncio.to_thread(self._set_shown, message.place, approval)
        raise_most_retryable(problems)

    async def identify(self, identity: str) -> Principal:
        """Return somebody with what they may do: nothing, unless paired."""
        return await asyncio.to_thread(pairing.identify, self.database, self.name, identity)

    async def introduce(self, identity: str, shown: str) -> None:
        """Give a stranger a code, which whoever has the command line may confirm."""
        code = await asyncio.to_thread(pairing.offer, self.database, self.name, identity, shown)
        if code is not None:
            text = f"This agent does not know you. Where it runs, confirm: agent pair {code}"
            await self.say(identity, text)

    async def pressed(self, principal: Principal, token: str) -> str:
        """Do what a button stands for, if it is this person's, and return what to tell them."""
        if not principal.is_paired:
            return "You are not paired with this agent."
        return await asyncio.to_thread(self._pressed, principal, token)

    async def heard(self, principal: Principal, text: str, answers: str | None, key: str) -> str:
        """Do what somebody wrote, perhaps as an answer to a message, and return what to tell them.

        `key` names their message.
        """
        if answers is not None:
            # It may be to a message that is posted and not yet on record.
            async with self._posting:
                pass
        return await asyncio.to_thread(self._heard, principal, text, answers, key)

    async def _ask(self, place: str, approval: dict[str, Json], *, is_reminder: bool) -> None:
        word = "Reminder: " if is_reminder else ""
        text, is_whole = message_texts.question(approval, self.room(_whole(approval)), word)
        offered: list[tuple[str, str]] = []
        if is_whole:
            # Nobody should say yes with one touch to what they could not read.
            offered = await asyncio.to_thread(
                buttons.make, self.database, approval, self.name, place
            )
        earlier = await asyncio.to_thread(self._messages, approval["id"])
        async with self._posting:
            reference = await self.post(place, text, offered)
            await asyncio.to_thread(self._record, place, approval["id"], reference)
        for message in earlier:
            if message.place == place:
                await self._point_down(message, approval)

    async def _point_down(self, message: Message, approval: dict[str, Json]) -> None:
        """Leave a question with its buttons in one place: where it was shown last."""
        text = harmless(f"{approval['message']}\n\nasked again below")
        try:
            await self.rewrite(
                message.place, message.reference, message_texts.cut(text, self.room(text))
            )
        except ChatError as error:
            # Its buttons still work, or say what was decided.
            log.warning("chat.refused", channel=self.name, error=str(error))

    # What follows runs in threads.

    def _pressed(self, principal: Principal, token: str) -> str:
        try:
            found = buttons.pressed(self.database, token, self.name, principal.identity)
        except (NotFoundError, RefusedError) as problem:
            return str(problem)
        return self.handler.answer(principal, found.approval_id, found.said)

    def _heard(self, principal: Principal, text: str, answers: str | None, key: str) -> str:
        if answers is not None and not text.startswith("/"):
            with self.database.connect("reader") as connection:
                found = store.shown_as(connection, self.name, principal.identity, answers)
                document = found and approval_documents.approval_document(connection, found)
            if found and document:
                said = {"decision": "answer", "value": typed_value(document, text)}
                return self.handler.answer(principal, found, said)
        return self.handler.reply(principal, text, f"{principal.identity}:{key}")

    def _places(self, approval: dict[str, Json] | None, is_reminder: bool) -> list[str]:
        """Return those who are to be told, and were not yet; only who may answer is asked."""
        with self.database.connect("reader") as connection:
            paired = pairings.listed(connection, self.name)
            if approval is None:
                return [found.identity for found in paired]
            recipients = [
                found.identity
                for found in paired
                if may_answer(pairing.principal(found), approval["who"])
            ]
            told: set[str] = set()
            if not is_reminder:
                messages = store.messages_of(connection, self.name, approval["id"])
                told = {message.place for message in messages}
        return [place for place in recipients if place not in told]

    def _messages(self, approval_id: str) -> list[Message]:
        with self.database.connect("reader") as connection:
            return store.messages_of(connection, self.name, approval_id)

    def _record(self, place: str, approval_id: str, reference: str) -> None:
        now = self.database.clock.now()
        with self.database.connect("writer") as tx, tx.transaction():
            store.record_message(tx, self.name, place, approval_id, reference, now)

    def _set_shown(self, place: str, approval: dict[str, Json]) -> None:
        with self.database.connect("writer") as tx, tx.transaction():
            store.set_shown(tx, self.name, place, approval["id"], approval["status"])


def _whole(approval: dict[str, Json]) -> str:
    return json.dumps(approval, ensure_ascii=False)
