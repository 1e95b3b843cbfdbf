"""Sends messages of steps through Slack's Web API."""

from typing import Any, Final

from agent.channels.chat.chat_error import ChatError
from agent.channels.chat.message_texts import cut
from agent.channels.messages import slack_blocks
from agent.channels.messages.document import parse
from agent.channels.messages.plain_text import to_plain
from agent.channels.slack_api import SlackApi
from agent.core.escape import slack_escaped
from agent.steps.types.attachment import Attachment
from agent.steps.types.messages import Recipient, Sending

_MAX_NOTIFICATION: Final = 2900
_UPLOAD_SECONDS: Final = 90.0


class SlackSender:
    """Sends one part of a message; raises `ChatError`."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api

    async def send(self, sending: Sending) -> str:
        """Send a text, or a file; return `CONVERSATION:TIMESTAMP`, or the file's id."""
        channel, thread = _place(sending.recipient)
        attachment = sending.part.attachment
        if attachment is not None:
            return await self._send_file(attachment, channel, thread)
        blocks = parse(sending.part.text, is_markdown=sending.part.is_markdown)
        message: dict[str, Any] = {
            "channel": channel,
            # The text of notifications. Slack reads no markup and no names in it.
            "text": slack_escaped(cut(to_plain(blocks), _MAX_NOTIFICATION)) or "…",
            "mrkdwn": False,
            "parse": "none",
            "link_names": False,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        if thread is not None:
            message["thread_ts"] = thread
        try:
            rich = slack_blocks.to_blocks(blocks)
            answer = await self._api.call("chat.postMessage", blocks=rich, **message)
        except ChatError as error:
            if not error.is_malformed:
                raise
            # Nothing was sent: the same text without its look.
            message["text"] = slack_escaped(to_plain(blocks))
            answer = await self._api.call("chat.postMessage", **message)
        return f"{answer['channel']}:{answer['ts']}"

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _send_file(self, attachment: Attachment, channel: str, thread: str | None) -> str:
        """Upload a file and then share it: only the last call shows it to anyone."""
        try:
            channel = await self._conversation(channel)
            upload = await self._api.call_form(
                "files.getUploadURLExternal",
                filename=attachment.name,
                length=str(len(attachment.content)),
            )
            await self._api.upload(upload["upload_url"], attachment.content, _UPLOAD_SECONDS)
        except ChatError as error:
            error.may_have_happened = False
            raise
        shared: dict[str, Any] = {
            "files": [{"id": upload["file_id"], "title": attachment.name}],
            "channel_id": channel,
        }
        if thread is not None:
            shared["thread_ts"] = thread
        await self._api.call("files.completeUploadExternal", **shared)
        return str(upload["file_id"])

    async def _conversation(self, channel: str) -> str:
        """Return the id of a conversation; files cannot be shared with a member's id."""
        if not channel.startswith(("U", "W")):
            return channel
        opened = await self._api.call("conversations.open", users=channel)
        return str(opened["channel"]["id"])


def _place(recipient: Recipient) -> tuple[str, str | None]:
    """Return the conversation and the thread; a thread may name its own conversation."""
    if recipient.thread is None:
        return recipient.id, None
    conversation, separator, timestamp = recipient.thread.rpartition(":")
    return (conversation, timestamp) if separator else (recipient.id, recipient.thread)
