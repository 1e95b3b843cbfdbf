"""Slack: questions with buttons to everybody who is paired, and commands from them.

Everything comes through a websocket (Socket Mode), so that the agent needs no public address. People
are known by their ids in the one workspace that the app is installed in, and only in direct messages.
What comes is acknowledged when it has been dealt with: what was not comes again, and is done once.
"""

import asyncio
import json
from contextlib import suppress
from typing import Any, Final

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from agent.channels.channel import ReceiveError, run_to_end
from agent.channels.chat import message_texts
from agent.channels.chat.chat import Chat, ChatError
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.chat.commands import COMMANDS
from agent.channels.poll_pacer import PollPacer
from agent.store.db.database import Database, StoreError

log = structlog.get_logger(__name__)

_CALL_SECONDS: Final = 15
_SILENCE_SECONDS: Final = 60.0
"""After so long without a sign of life a connection counts as broken; Slack pings more often."""
_SHORTEST_CONNECTION_SECONDS: Final = 10.0
"""A connection that ends sooner and has brought nothing is opened again after a pause."""
_MOST_TEXT: Final = 11_000
_MOST_IN_SECTION: Final = 2900
_MOST_LABEL: Final = 75
_GONE: Final = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
_REFUSED: Final = frozenset(
    {
        *_GONE,
        "account_inactive",
        "cannot_dm_bot",
        "channel_not_found",
        "invalid_blocks",
        "is_archived",
        "messages_tab_disabled",
        "msg_too_long",
        "restricted_action",
        "user_disabled",
        "user_not_found",
        "user_not_visible",
    }
)
"""What stays so, however often it is tried. That a token is wrong is no such thing: it is mended."""


class Slack(Chat):
    """An app in one workspace."""

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
        self._secrets = (bot_token, app_token)
        self._app_token = app_token
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_CALL_SECONDS))
        self._web = AsyncWebClient(
            bot_token,
            base_url=f"{api_url.rstrip('/')}/",
            timeout=_CALL_SECONDS,
            session=self._session,
            # Deliveries have a patience of their own.
            retry_handlers=[],
        )
        self._team: str | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._pacer = PollPacer(_SHORTEST_CONNECTION_SECONDS)
        self._has_heard = False
        """Whether this connection has brought anything but its own end."""

    async def post(self, place: str, text: str, offered: list[tuple[str, str]]) -> str:
        """Post a direct message; its name is its conversation and its time there."""
        sent = await self._call(
            "chat.postMessage",
            channel=place,
            text=_escaped(message_texts.cut(text, _MOST_IN_SECTION)),
            blocks=_blocks(text, offered),
            unfurl_links=False,
            unfurl_media=False,
        )
        return f"{sent['channel']}:{sent['ts']}"

    async def rewrite(self, place: str, reference: str, text: str) -> None:
        """Change a message; its buttons go."""
        conversation, _, stamp = reference.partition(":")
        await self._call(
            "chat.update",
            channel=conversation,
            ts=stamp,
            text=_escaped(message_texts.cut(text, _MOST_IN_SECTION)),
            blocks=_blocks(text, []),
        )

    def room(self, text: str) -> int:
        """Return how many characters a message may have."""
        return _MOST_TEXT

    async def receive(self) -> bool:
        """Take the next thing that comes through the websocket, connecting it if need be."""
        try:
            if self._socket is None or self._socket.closed:
                self._pacer.begin()
                self._has_heard = False
                self._socket = await self._connect()
            message = await self._socket.receive(_SILENCE_SECONDS)
        except ChatError as error:
            raise ReceiveError(str(error), retry_after_seconds=error.retry_after_seconds) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._hang_up()
            # Its text may hold the address, which lets in whoever has it.
            raise ReceiveError(f"Slack cannot be heard ({type(error).__name__})") from None
        if message.type is aiohttp.WSMsgType.TEXT:
            await run_to_end(self._take(json.loads(message.data)))
        else:
            # Closed by the other side, which is how it asks for a new connection.
            await self._hang_up()
        await self._pause_if_closed()
        return True

    async def close(self) -> None:
        """Close its connections."""
        await self._hang_up()
        await self._session.close()

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        if self._team is None:
            self._team = str((await self._call("auth.test"))["team_id"])
        opened = await self._call("apps.connections.open", token=self._app_token)
        return await self._session.ws_connect(
            str(opened["url"]),
            heartbeat=_SILENCE_SECONDS / 4,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        )

    async def _pause_if_closed(self) -> None:
        if self._socket is None:
            await self._pacer.end(has_news=self._has_heard)

    async def _hang_up(self) -> None:
        if self._socket is not None:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._socket.close()
            self._socket = None

    async def _take(self, envelope: dict[str, Any]) -> None:
        """Deal with one envelope, and acknowledge it; one that nobody can deal with is left out."""
        if envelope.get("type") == "disconnect":
            await self._hang_up()
            return
        if not isinstance(envelope.get("envelope_id"), str):
            return
        self._has_heard = True
        payload = envelope.get("payload") or {}
        said: str | None = None
        try:
            match envelope.get("type"):
                case "events_api":
                    await self._hear(payload)
                case "interactive":
                    await self._press(payload)
                case "slash_commands":
                    said = await self._obey(payload, envelope["envelope_id"])
        except ChatError as error:
            if not error.is_refusal:
                raise ReceiveError(str(error)) from None
            log.warning("chat.refused", channel=self.name, error=str(error))
        except StoreError:
            raise
        except Exception:
            log.exception("slack.defect", kind=envelope.get("type"))
        await self._acknowledge(envelope["envelope_id"], said)

    async def _acknowledge(self, envelope_id: str, said: str | None) -> None:
        answer: dict[str, Any] = {"envelope_id": envelope_id}
        if said is not None:
            answer["payload"] = {"text": _escaped(said)}
        if self._socket is not None:
            # What is not acknowledged comes again, over a new connection.
            with suppress(aiohttp.ClientError, ConnectionError):
                await self._socket.send_str(json.dumps(answer))

    async def _hear(self, payload: dict[str, Any]) -> None:
        """Take a direct message."""
        event = payload.get("event") or {}
        is_plain = event.get("type") == "message" and not event.get("subtype")
        is_direct = event.get("channel_type") == "im" and not event.get("bot_id")
        text = event.get("text")
        if not (is_plain and is_direct and isinstance(text, str) and self._is_ours(payload, event)):
            return
        principal = await self.identify(str(event["user"]))
        if not principal.is_paired:
            await self.introduce(principal.identity, f"Slack user {principal.identity}")
            return
        answered = event.get("thread_ts")
        reference = None if answered is None else f"{event['channel']}:{answered}"
        said = await self.heard(
            principal,
            _command(_plain(text)),
            reference,
            str(payload.get("event_id") or event["ts"]),
        )
        await self.say(principal.identity, said)

    async def _press(self, payload: dict[str, Any]) -> None:
        """Take a pressed button; what came of it is said beneath."""
        if payload.get("type") != "block_actions" or not self._is_ours(payload, {}):
            return
        identity = str(payload["user"]["id"])
        principal = await self.identify(identity)
        for action in payload.get("actions") or []:
            text = await self.pressed(principal, str(action.get("value") or ""))
            conversation = (payload.get("channel") or {}).get("id")
            if conversation:
                await self._call(
                    "chat.postEphemeral",
                    channel=conversation,
                    user=identity,
                    text=_escaped(message_texts.cut(text, _MOST_IN_SECTION)),
                )

    async def _obey(self, payload: dict[str, Any], envelope_id: str) -> str:
        """Take a slash command: one of ours, or any other with ours behind it."""
        principal = await self.identify(str(payload["user_id"]))
        if not self._is_ours(payload, {}) or not principal.is_paired:
            return "You are not paired with this agent: write to it directly to get a code."
        name, text = str(payload["command"]), str(payload.get("text") or "")
        known = name.lstrip("/") in COMMANDS
        key = str(payload.get("trigger_id") or envelope_id)
        return await self.heard(
            principal, f"{name} {text}" if known else _command(text or "help"), None, key
        )

    def _is_ours(self, payload: dict[str, Any], event: dict[str, Any]) -> bool:
        """Whether this is of somebody in the workspace that the app is installed in."""
        teams = {
            payload.get("team_id") or (payload.get("team") or {}).get("id"),
            event.get("user_team"),
            (payload.get("user") or {}).get("team_id") if "user" in payload else None,
        }
        return teams - {None} == {self._team}

    async def _call(self, method: str, **given: Any) -> Any:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return (await self._web.api_call(method, **_as_json(given))).data
        except SlackApiError as error:
            raise self._problem(error) from None
        except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChatError(f"Slack cannot be reached ({type(error).__name__})") from None

    def _problem(self, error: SlackApiError) -> ChatError:
        answer: Any = error.response
        data = answer.data if isinstance(answer.data, dict) else {}
        word = str(data.get("error") or f"answered {answer.status_code}")
        for secret in self._secrets:
            word = word.replace(secret, "…")
        after = answer.headers.get("Retry-After") or answer.headers.get("retry-after")
        return ChatError(
            f"Slack: {word[:500]}",
            retry_after_seconds=float(after) if after and str(after).isdecimal() else None,
            is_refusal=word in _REFUSED,
            is_about_nothing=word in _GONE,
        )


def _as_json(given: dict[str, Any]) -> dict[str, Any]:
    token = given.pop("token", None)
    headers = {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}
    return {"json": given, **headers}


def _blocks(text: str, offered: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a message as plain text, which cannot mention or link, with its buttons below."""
    pieces = [text[at : at + _MOST_IN_SECTION] for at in range(0, len(text), _MOST_IN_SECTION)]
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "plain_text", "text": piece, "emoji": False}}
        for piece in pieces
        if piece.strip()
    ]
    if offered:
        elements = [
            {
                "type": "button",
                "action_id": f"answer-{number}",
                "text": {"type": "plain_text", "text": message_texts.cut(label, _MOST_LABEL)},
                "value": token,
            }
            for number, (label, token) in enumerate(offered)
        ]
        blocks.append({"type": "actions", "elements": elements})
    return blocks


def _command(text: str) -> str:
    """Return a command with its slash: Slack keeps what begins with one for itself."""
    first = text.split(None, 1)[0].lower() if text.strip() else ""
    return f"/{text}" if first in COMMANDS else text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
