"""Telegram: questions with buttons for the paired accounts, and commands from them.

Messages come by long polling, so the agent needs no public address. Accounts are identified by their
numeric ids, which unlike names cannot change hands, and only private chats count. Telegram sends a
message again that was not handled when the process ended, and it is handled once.
`agent.channels.chat.message_texts` makes the texts.
"""

from contextlib import suppress
from typing import Any, Final

import structlog

from agent.channels.channel import ReceiveError, run_to_end
from agent.channels.chat import message_texts
from agent.channels.chat.chat import Chat
from agent.channels.chat.chat_error import ChatError
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.poll_pacer import PollPacer
from agent.channels.telegram.telegram_api import BotApi
from agent.store.db.database import Database, StoreError

log = structlog.get_logger(__name__)

_MAX_TEXT: Final = 4000
"""Telegram accepts 4,096, counted as UTF-16."""
_MIN_TEXT: Final = 1000
_MAX_TOAST: Final = 190
_PLAIN: Final[dict[str, Any]] = {"link_preview_options": {"is_disabled": True}}
"""Without a preview: Telegram would fetch the first URL of a question, before it is approved."""


class Telegram(Chat):
    """A Telegram bot."""

    name = "telegram"

    def __init__(
        self, database: Database, api: BotApi, handler: CommandHandler, poll_seconds: int
    ) -> None:
        super().__init__(database, handler)
        self._api = api
        self._poll_seconds = poll_seconds
        self._offset: int | None = None
        # A long poll may end a little early. Without long polls, poll once per second.
        self._pacer = PollPacer(poll_seconds / 2) if poll_seconds > 0 else PollPacer(1.0, 1.0)

    async def post(
        self,
        recipient: str,
        text: str,
        labelled: list[tuple[str, str]],
        thread: str | None = None,
    ) -> str:
        """Send a message; each button has a row of its own. Private chats have no threads."""
        options: dict[str, Any] = dict(_PLAIN)
        if labelled:
            rows = [[{"text": label, "callback_data": token}] for label, token in labelled]
            options["reply_markup"] = {"inline_keyboard": rows}
        message = await self._api.call("sendMessage", chat_id=int(recipient), text=text, **options)
        return str(message["message_id"])

    async def edit(self, recipient: str, reference: str, text: str) -> None:
        """Replace a message's text and remove its buttons."""
        await self._api.call(
            "editMessageText",
            chat_id=int(recipient),
            message_id=int(reference),
            text=text,
            **_PLAIN,
        )

    def max_length(self, text: str) -> int:
        """Return how many characters a message made of this text may have."""
        # Characters beyond the first 65,536, as most emoji are, count twice.
        twice = sum(character > "\uffff" for character in text)
        return max(_MIN_TEXT, _MAX_TEXT - twice)

    async def receive(self) -> bool:
        """Handle the messages and pressed buttons that have arrived, one after the other."""
        try:
            self._pacer.begin()
            before = self._offset
            for update in await self._updates():
                await run_to_end(self._handle_update(update))
            # Updates that were handled before are no news, should a server send them again.
            await self._pacer.end(has_news=self._offset != before)
        except ChatError as error:
            raise ReceiveError(str(error), retry_after_seconds=error.retry_after_seconds) from None
        return True

    async def close(self) -> None:
        """Acknowledge the handled updates and close the connections."""
        if self._offset is not None:
            with suppress(ChatError):
                await self._api.call("getUpdates", offset=self._offset, timeout=0, limit=1)
        await self._api.close()

    async def _updates(self) -> list[dict[str, Any]]:
        offset = {} if self._offset is None else {"offset": self._offset}
        updates = await self._api.call(
            "getUpdates",
            wait_seconds=self._poll_seconds,
            timeout=self._poll_seconds,
            allowed_updates=["message", "callback_query"],
            **offset,
        )
        return [
            update
            for update in (updates if isinstance(updates, list) else [])
            if isinstance(update, dict) and isinstance(update.get("update_id"), int)
        ]

    async def _handle_update(self, update: dict[str, Any]) -> None:
        """Handle one update; one that causes a defect is skipped."""
        try:
            if "callback_query" in update:
                await self._handle_button(update["callback_query"])
            elif "message" in update:
                await self._handle_message(update["message"])
        except ChatError as error:
            if not error.is_permanent:
                raise
            log.warning("chat.refused", channel=self.name, error=str(error))
        except StoreError:
            raise
        except Exception:
            log.exception("telegram.defect", update=update.get("update_id"))
        self._offset = int(update["update_id"]) + 1

    async def _handle_button(self, query: dict[str, Any]) -> None:
        principal = await self.identify(str(int(query["from"]["id"])))
        text = await self.press_button(principal, str(query.get("data") or ""))
        try:
            await self._api.call(
                "answerCallbackQuery",
                callback_query_id=query["id"],
                text=message_texts.cut(text, _MAX_TOAST),
            )
        except ChatError as error:
            # Telegram rejects replies to old buttons; the answer was recorded all the same.
            if not error.is_permanent:
                raise

    async def _handle_message(self, message: dict[str, Any]) -> None:
        chat, sender = message["chat"], message.get("from") or {}
        text = message.get("text")
        if chat.get("type") != "private" or not isinstance(text, str) or sender.get("is_bot"):
            return
        principal = await self.identify(str(int(sender["id"])))
        if not principal.is_paired:
            await self.send_pairing_code(principal.identity, _shown_name(sender))
            return
        if text.partition(" ")[0] == "/start":
            text = "/help"
        replied = (message.get("reply_to_message") or {}).get("message_id")
        key = f"{self._api.bot_id}:{message['message_id']}"
        reply = await self.handle_text(
            principal, text, None if replied is None else str(replied), key
        )
        await self.send(principal.identity, reply)


def _shown_name(sender: dict[str, Any]) -> str:
    names = [sender.get("first_name"), sender.get("last_name")]
    shown = " ".join(str(name) for name in names if name) or "unknown name"
    return f"{shown} (@{sender['username']})" if sender.get("username") else shown
