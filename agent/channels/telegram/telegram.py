"""Telegram: questions with buttons to everybody who is paired, and commands from them.

Messages come by long polling, so that the agent needs no public address. People are known by their
numeric ids, which cannot be changed or taken over as names can, and only in private chats. A message
that was not dealt with when the process ends comes again: whatever it does is done once.
"""

from contextlib import suppress
from typing import Any, Final

import structlog

from agent.channels.channel import ReceiveError, run_to_end
from agent.channels.chat import message_texts
from agent.channels.chat.chat import Chat, ChatError
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.poll_pacer import PollPacer
from agent.channels.telegram.telegram_api import BotApi
from agent.store.db.database import Database, StoreError

log = structlog.get_logger(__name__)

_MOST_TEXT: Final = 4000
"""Of the 4,096 that Telegram takes, counted as UTF-16."""
_LEAST_TEXT: Final = 1000
_MOST_TOAST: Final = 190
_PLAIN: Final[dict[str, Any]] = {"link_preview_options": {"is_disabled": True}}
"""Or Telegram would fetch the first address in a question: what is asked about would be done."""


class Telegram(Chat):
    """A bot."""

    name = "telegram"

    def __init__(
        self, database: Database, api: BotApi, handler: CommandHandler, poll_seconds: int
    ) -> None:
        super().__init__(database, handler)
        self._api = api
        self._poll_seconds = poll_seconds
        self._offset: int | None = None
        # A long poll may end a little early. Short polls are made every second.
        self._pacer = PollPacer(poll_seconds / 2) if poll_seconds > 0 else PollPacer(1.0, 1.0)

    async def post(self, place: str, text: str, offered: list[tuple[str, str]]) -> str:
        """Send a message; each button has a row of its own."""
        given: dict[str, Any] = dict(_PLAIN)
        if offered:
            rows = [[{"text": label, "callback_data": token}] for label, token in offered]
            given["reply_markup"] = {"inline_keyboard": rows}
        sent = await self._api.call("sendMessage", chat_id=int(place), text=text, **given)
        return str(sent["message_id"])

    async def rewrite(self, place: str, reference: str, text: str) -> None:
        """Change a message; buttons that are not given again go."""
        await self._api.call(
            "editMessageText", chat_id=int(place), message_id=int(reference), text=text, **_PLAIN
        )

    def room(self, text: str) -> int:
        """Return how many characters a message made of this text may have."""
        # What is beyond the first 65,536 characters, as most emoji are, counts twice.
        twice = sum(character > "\uffff" for character in text)
        return max(_LEAST_TEXT, _MOST_TEXT - twice)

    async def receive(self) -> bool:
        """Take the messages and pressed buttons that have come, one after the other."""
        try:
            self._pacer.begin()
            before = self._offset
            for update in await self._updates():
                await run_to_end(self._take(update))
            # Updates that were dealt with before are no news, should a server send them again.
            await self._pacer.end(has_news=self._offset != before)
        except ChatError as error:
            raise ReceiveError(str(error), retry_after_seconds=error.retry_after_seconds) from None
        return True

    async def close(self) -> None:
        """Say how far it has come, so that nothing comes again, and close its connections."""
        if self._offset is not None:
            with suppress(ChatError):
                await self._api.call("getUpdates", offset=self._offset, timeout=0, limit=1)
        await self._api.close()

    async def _updates(self) -> list[dict[str, Any]]:
        given = {} if self._offset is None else {"offset": self._offset}
        found = await self._api.call(
            "getUpdates",
            wait_seconds=self._poll_seconds,
            timeout=self._poll_seconds,
            allowed_updates=["message", "callback_query"],
            **given,
        )
        return [
            update
            for update in (found if isinstance(found, list) else [])
            if isinstance(update, dict) and isinstance(update.get("update_id"), int)
        ]

    async def _take(self, update: dict[str, Any]) -> None:
        """Deal with one update; one that nobody can deal with is left out."""
        try:
            if "callback_query" in update:
                await self._press(update["callback_query"])
            elif "message" in update:
                await self._hear(update["message"])
        except ChatError as error:
            if not error.is_refusal:
                raise
            log.warning("chat.refused", channel=self.name, error=str(error))
        except StoreError:
            raise
        except Exception:
            log.exception("telegram.defect", update=update.get("update_id"))
        self._offset = int(update["update_id"]) + 1

    async def _press(self, query: dict[str, Any]) -> None:
        principal = await self.identify(str(int(query["from"]["id"])))
        text = await self.pressed(principal, str(query.get("data") or ""))
        try:
            await self._api.call(
                "answerCallbackQuery",
                callback_query_id=query["id"],
                text=message_texts.cut(text, _MOST_TOAST),
            )
        except ChatError as error:
            # A question is old after a while; what it said was done all the same.
            if not error.is_refusal:
                raise

    async def _hear(self, message: dict[str, Any]) -> None:
        chat, sender = message["chat"], message.get("from") or {}
        text = message.get("text")
        if chat.get("type") != "private" or not isinstance(text, str) or sender.get("is_bot"):
            return
        principal = await self.identify(str(int(sender["id"])))
        if not principal.is_paired:
            await self.introduce(principal.identity, _shown_name(sender))
            return
        if text.partition(" ")[0] == "/start":
            text = "/help"
        answered = (message.get("reply_to_message") or {}).get("message_id")
        key = f"{self._api.bot_id}:{message['message_id']}"
        said = await self.heard(principal, text, None if answered is None else str(answered), key)
        await self.say(principal.identity, said)


def _shown_name(sender: dict[str, Any]) -> str:
    names = [sender.get("first_name"), sender.get("last_name")]
    shown = " ".join(str(name) for name in names if name) or "somebody"
    return f"{shown} (@{sender['username']})" if sender.get("username") else shown
