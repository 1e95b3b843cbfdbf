"""Sends messages of steps through Telegram's Bot API."""

from pathlib import PurePath
from typing import Any, Final

from agent.channels.chat.chat_error import ChatError
from agent.channels.chat.message_texts import cut
from agent.channels.messages import telegram_html
from agent.channels.messages.document import parse
from agent.channels.messages.plain_text import defused, to_plain, utf16_length
from agent.channels.telegram.telegram_api import BotApi
from agent.steps.types.messages import Attachment, Sending

_PHOTOS: Final = frozenset({".png", ".jpg", ".jpeg", ".webp"})
_MAX_PHOTO_BYTES: Final = 10_485_760
_UPLOAD_SECONDS: Final = 110.0


class TelegramSender:
    """Sends one part of a message; raises `ChatError`."""

    def __init__(self, api: BotApi) -> None:
        self._api = api

    async def send(self, sending: Sending) -> str:
        """Send a text, or a file; return the message's id."""
        recipient = sending.recipient
        where: dict[str, Any] = {"chat_id": _chat_id(recipient.id)}
        if recipient.thread is not None:
            where["message_thread_id"] = _topic(recipient.thread)
        attachment = sending.part.attachment
        if attachment is not None:
            return await self._send_file(attachment, where)
        blocks = parse(sending.part.text, is_markdown=sending.part.is_markdown)
        where["link_preview_options"] = {"is_disabled": True}
        text = telegram_html.to_html(blocks)
        try:
            message = await self._api.call("sendMessage", text=text, parse_mode="HTML", **where)
        except ChatError as error:
            if not error.is_malformed:
                raise
            # Nothing was sent: the same text without its look.
            message = await self._api.call("sendMessage", text=_plain(blocks), **where)
        return str(message["message_id"])

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _send_file(self, attachment: Attachment, where: dict[str, Any]) -> str:
        file = (attachment.name, attachment.content)
        is_photo = PurePath(attachment.name).suffix.lower() in _PHOTOS
        if is_photo and len(attachment.content) <= _MAX_PHOTO_BYTES:
            try:
                message = await self._api.upload(
                    "sendPhoto", "photo", file, _UPLOAD_SECONDS, **where
                )
                return str(message["message_id"])
            except ChatError as error:
                # A picture that Telegram cannot show is a file all the same.
                if not error.is_permanent or error.may_have_happened:
                    raise
        where["disable_content_type_detection"] = "true"
        message = await self._api.upload("sendDocument", "document", file, _UPLOAD_SECONDS, **where)
        return str(message["message_id"])


def _chat_id(text: str) -> int | str:
    return text if text.startswith("@") else int(text)


def _topic(thread: str) -> int:
    try:
        return int(thread)
    except ValueError:
        raise ChatError(
            f"Telegram: {thread!r} is not the number of a topic", is_permanent=True
        ) from None


def _plain(blocks: Any) -> str:
    text = defused(to_plain(blocks))
    too_much = max(0, utf16_length(text) - 4096)
    return cut(text, len(text) - too_much) if too_much else text
