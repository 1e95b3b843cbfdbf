"""Slack: questions with buttons for the paired accounts, and commands from them.

Slack sends everything through a websocket (Socket Mode), so the agent needs no public address.
Accounts are identified by their user ids in the one workspace that has the app, and only direct
messages count. An envelope is acknowledged once it is handled; Slack sends an unacknowledged one
again, and its message is handled once.
"""

import json
from contextlib import suppress
from typing import Any, Final

import aiohttp
import structlog

from agent.channels.channel import ReceiveError, run_to_end
from agent.channels.chat import message_texts
from agent.channels.chat.chat import Chat
from agent.channels.chat.chat_error import ChatError
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.chat.commands import COMMANDS
from agent.channels.poll_pacer import PollPacer
from agent.channels.slack_api import SlackApi
from agent.core.escape import slack_escaped
from agent.store.db.database import Database, StoreError

log = structlog.get_logger(__name__)

_SILENCE_SECONDS: Final = 60.0
"""A connection that is silent for this long is broken; Slack pings more often."""
_SHORTEST_CONNECTION_SECONDS: Final = 10.0
"""A connection that ends sooner, without an envelope, is opened again after a pause."""
_MAX_TEXT: Final = 11_000
_MAX_IN_SECTION: Final = 2900
_MAX_LABEL: Final = 75


class Slack(Chat):
    """A Slack app in one workspace."""

    name = "slack"

    def __init__(
        self,
        database: Database,
        handler: CommandHandler,
        *,
        api_url: str,
        bot_token: str,
        app_token: str,
    ) -> None:
        super().__init__(database, handler)
        self._app_token = app_token
        self._api = SlackApi(api_url, bot_token, app_token)
        self._team: str | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._pacer = PollPacer(_SHORTEST_CONNECTION_SECONDS)
        self._has_received = False
        """Whether this connection has brought an envelope."""

    async def post(
        self,
        recipient: str,
        text: str,
        labelled: list[tuple[str, str]],
        thread: str | None = None,
    ) -> str:
        """Post a direct message; its reference is `CONVERSATION:TIMESTAMP`, as that of a thread."""
        place: dict[str, Any] = {"channel": recipient}
        if thread is not None:
            conversation_id, _, timestamp = thread.partition(":")
            place = {"channel": conversation_id, "thread_ts": timestamp}
        message = await self._api.call(
            "chat.postMessage",
            **place,
            text=slack_escaped(message_texts.cut(text, _MAX_IN_SECTION)),
            blocks=_blocks(text, labelled),
            unfurl_links=False,
            unfurl_media=False,
        )
        return f"{message['channel']}:{message['ts']}"

    async def edit(self, recipient: str, reference: str, text: str) -> None:
        """Replace a message's text and remove its buttons."""
        conversation_id, _, timestamp = reference.partition(":")
        await self._api.call(
            "chat.update",
            channel=conversation_id,
            ts=timestamp,
            text=slack_escaped(message_texts.cut(text, _MAX_IN_SECTION)),
            blocks=_blocks(text, []),
        )

    def max_length(self, text: str) -> int:
        """Return how many characters a message may have."""
        return _MAX_TEXT

    async def receive(self) -> bool:
        """Handle the next envelope from the websocket; connect first if necessary."""
        try:
            if self._socket is None or self._socket.closed:
                self._pacer.begin()
                self._has_received = False
                self._socket = await self._connect()
            message = await self._socket.receive(_SILENCE_SECONDS)
        except ChatError as error:
            raise ReceiveError(str(error), retry_after_seconds=error.retry_after_seconds) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._disconnect()
            # The text may hold the websocket's address, which is a secret.
            raise ReceiveError(f"the connection to Slack failed ({type(error).__name__})") from None
        if message.type is aiohttp.WSMsgType.TEXT:
            await run_to_end(self._handle_envelope(json.loads(message.data)))
        else:
            # Slack closes a connection to request a new one.
            await self._disconnect()
        await self._pause_if_closed()
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._disconnect()
        await self._api.close()

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        if self._team is None:
            self._team = str((await self._api.call("auth.test"))["team_id"])
        opened = await self._api.call("apps.connections.open", token=self._app_token)
        return await self._api.session.ws_connect(
            str(opened["url"]),
            heartbeat=_SILENCE_SECONDS / 4,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        )

    async def _pause_if_closed(self) -> None:
        if self._socket is None:
            await self._pacer.end(has_news=self._has_received)

    async def _disconnect(self) -> None:
        if self._socket is not None:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._socket.close()
            self._socket = None

    async def _handle_envelope(self, envelope: dict[str, Any]) -> None:
        """Handle one envelope and acknowledge it; one that causes a defect is skipped."""
        if envelope.get("type") == "disconnect":
            await self._disconnect()
            return
        if not isinstance(envelope.get("envelope_id"), str):
            return
        self._has_received = True
        payload = envelope.get("payload") or {}
        reply: str | None = None
        try:
            match envelope.get("type"):
                case "events_api":
                    await self._handle_message(payload)
                case "interactive":
                    await self._handle_button(payload)
                case "slash_commands":
                    reply = await self._handle_slash_command(payload, envelope["envelope_id"])
        except ChatError as error:
            if not error.is_permanent:
                raise ReceiveError(str(error)) from None
            log.warning("chat.refused", channel=self.name, error=str(error))
        except StoreError:
            raise
        except Exception:
            log.exception("slack.defect", kind=envelope.get("type"))
        await self._acknowledge(envelope["envelope_id"], reply)

    async def _acknowledge(self, envelope_id: str, reply: str | None) -> None:
        document: dict[str, Any] = {"envelope_id": envelope_id}
        if reply is not None:
            document["payload"] = {"text": slack_escaped(reply)}
        if self._socket is not None:
            # Slack sends an unacknowledged envelope again, over a new connection.
            with suppress(aiohttp.ClientError, ConnectionError):
                await self._socket.send_str(json.dumps(document))

    async def _handle_message(self, payload: dict[str, Any]) -> None:
        """Handle a direct message."""
        event = payload.get("event") or {}
        is_plain = event.get("type") == "message" and not event.get("subtype")
        is_direct = event.get("channel_type") == "im" and not event.get("bot_id")
        text = event.get("text")
        if not (is_plain and is_direct and isinstance(text, str) and self._is_ours(payload, event)):
            return
        principal = await self.identify(str(event["user"]))
        if not principal.is_paired:
            await self.send_pairing_code(principal.identity, f"Slack user {principal.identity}")
            return
        thread = event.get("thread_ts")
        reply_to = None if thread is None else f"{event['channel']}:{thread}"
        reply = await self.handle_text(
            principal,
            _command(_plain(text)),
            reply_to,
            str(payload.get("event_id") or event["ts"]),
            thread=reply_to,
        )
        await self.send(principal.identity, reply, reply_to)

    async def _handle_button(self, payload: dict[str, Any]) -> None:
        """Handle a pressed button; the reply is posted below it."""
        if payload.get("type") != "block_actions" or not self._is_ours(payload, {}):
            return
        identity = str(payload["user"]["id"])
        principal = await self.identify(identity)
        for action in payload.get("actions") or []:
            text = await self.press_button(principal, str(action.get("value") or ""))
            conversation_id = (payload.get("channel") or {}).get("id")
            if conversation_id:
                await self._api.call(
                    "chat.postEphemeral",
                    channel=conversation_id,
                    user=identity,
                    text=slack_escaped(message_texts.cut(text, _MAX_IN_SECTION)),
                )

    async def _handle_slash_command(self, payload: dict[str, Any], envelope_id: str) -> str:
        """Handle a slash command: one of the agent's, or another one followed by such a command."""
        principal = await self.identify(str(payload["user_id"]))
        if not self._is_ours(payload, {}) or not principal.is_paired:
            return (
                "This account is not paired with the agent. Send it a direct message to get a code."
            )
        name, text = str(payload["command"]), str(payload.get("text") or "")
        is_command = name.lstrip("/") in COMMANDS
        key = str(payload.get("trigger_id") or envelope_id)
        return await self.handle_text(
            principal, f"{name} {text}" if is_command else _command(text or "help"), None, key
        )

    def _is_ours(self, payload: dict[str, Any], event: dict[str, Any]) -> bool:
        """Whether this comes from an account of the workspace that has the app."""
        teams = {
            payload.get("team_id") or (payload.get("team") or {}).get("id"),
            event.get("user_team"),
            (payload.get("user") or {}).get("team_id") if "user" in payload else None,
        }
        return teams - {None} == {self._team}


def _blocks(text: str, labelled: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a message as plain text, which cannot mention accounts or link, and its buttons."""
    pieces = [text[at : at + _MAX_IN_SECTION] for at in range(0, len(text), _MAX_IN_SECTION)]
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "plain_text", "text": piece, "emoji": False}}
        for piece in pieces
        if piece.strip()
    ]
    if labelled:
        elements = [
            {
                "type": "button",
                "action_id": f"answer-{number}",
                "text": {"type": "plain_text", "text": message_texts.cut(label, _MAX_LABEL)},
                "value": token,
            }
            for number, (label, token) in enumerate(labelled)
        ]
        blocks.append({"type": "actions", "elements": elements})
    return blocks


def _command(text: str) -> str:
    """Return a command with its slash: Slack does not deliver messages that begin with one."""
    first = text.split(None, 1)[0].lower() if text.strip() else ""
    return f"/{text}" if first in COMMANDS else text


def _plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
