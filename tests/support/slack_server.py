"""A server on loopback that speaks Slack's Web API and the websocket of its Socket Mode."""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from agent.config.channels import ChannelSettings, SlackSettings
from tests.support.chat_server import Failure, SharedFile, Shown

BOT_TOKEN = "xoxb-of-the-tests"
APP_TOKEN = "xapp-of-the-tests"
TEAM = "T0001"
_KINDS = {
    "send": "chat.postMessage",
    "upload": "files.completeUploadExternal",
    "edit": "chat.update",
    "receive": "apps.connections.open",
}


class SlackServer:
    """Slack, with one app and the direct messages of a few people."""

    name = "slack"

    def __init__(self, directory: Path) -> None:
        self.messages: list[Shown] = []
        self.files: list[SharedFile] = []
        self.posted: list[dict[str, Any]] = []
        """What was posted, as it came."""
        self._uploads: dict[str, tuple[str, bytes]] = {}
        self.toasts: list[str] = []
        self.replies: list[dict[str, Any]] = []
        """What acknowledgements carried."""
        self._directory = directory
        for name, token in (("bot", BOT_TOKEN), ("app", APP_TOKEN)):
            (directory / f"slack-{name}").write_text(token)
        self._numbers = 0
        self._failures: defaultdict[str, list[Failure]] = defaultdict(list)
        self._waiting: dict[str, dict[str, Any]] = {}
        """Envelopes that were not acknowledged."""
        self._sockets: set[web.WebSocketResponse] = set()
        self._is_away = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._runner = web.AppRunner(self._application(), shutdown_timeout=0.1)
        self.port = self._do(self._start())

    def settings(self) -> ChannelSettings:
        """Return the configuration of the app."""
        return ChannelSettings(
            slack=SlackSettings(
                bot_token=f"file:{self._directory}/slack-bot",
                app_token=f"file:{self._directory}/slack-app",
                api_url=f"http://127.0.0.1:{self.port}/api",
            )
        )

    def identity(self, number: int) -> str:
        """Return a member's id."""
        return f"U{1000 + number}"

    def write(self, identity: str, text: str, answers: Shown | None = None, **more: Any) -> None:
        """Write to the app as an account; `more` changes the event."""
        event: dict[str, Any] = {
            "type": "message",
            "channel_type": "im",
            "channel": f"D{identity}",
            "user": identity,
            "text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
            "ts": self._stamp(),
        }
        if answers is not None:
            event["thread_ts"] = answers.reference.partition(":")[2]
        payload = {"team_id": TEAM, "event_id": f"Ev{self._stamp()}", "event": event | more}
        self.bring("events_api", payload)

    def repeat(self) -> None:
        """Bring the last thing again, as Slack does with what was not acknowledged."""
        self.bring(*self._last)

    def press(self, identity: str, token: str) -> None:
        """Press a button as an account."""
        payload = {
            "type": "block_actions",
            "team": {"id": TEAM},
            "user": {"id": identity, "team_id": TEAM},
            "channel": {"id": f"D{identity}"},
            "actions": [{"action_id": "answer-0", "value": token}],
        }
        self.bring("interactive", payload)

    def bring(self, kind: str, payload: dict[str, Any]) -> None:
        """Send an envelope to every connection, and keep it until it is acknowledged."""
        self._last = (kind, payload)
        name = f"envelope-{self._stamp()}"
        self._do(self._send({"envelope_id": name, "type": kind, "payload": payload}))

    def fail(self, what: str, *failures: Failure) -> None:
        """Let the next calls fail."""
        self._failures[_KINDS[what]] += failures

    def goes_away(self, *, is_away: bool) -> None:
        """Close every connection, or answer again."""
        self._is_away = is_away
        if is_away:
            self._do(self._hang_up())

    def ask_for_a_new_connection(self) -> None:
        """Do as Slack does before it restarts a server."""
        self._do(self._say_goodbye())

    def close(self) -> None:
        """End it."""
        self._do(self._hang_up())
        self._do(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _stamp(self) -> str:
        self._numbers += 1
        return f"{self._numbers}.0001"

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/api/{method}", self._answer)
        application.router.add_get("/socket", self._connect)
        application.router.add_post("/upload/{file_id}", self._take_upload)
        return application

    async def _start(self) -> int:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _send(self, envelope: dict[str, Any]) -> None:
        self._waiting[envelope["envelope_id"]] = envelope
        for socket in self._sockets:
            await socket.send_json(envelope)

    async def _hang_up(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    async def _say_goodbye(self) -> None:
        for socket in list(self._sockets):
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        if self._is_away or request.query.get("ticket") != "once":
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1})
        for envelope in list(self._waiting.values()):
            await socket.send_json(envelope)
        self._sockets.add(socket)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                acknowledgement = json.loads(message.data)
                self._waiting.pop(acknowledgement["envelope_id"], None)
                if "payload" in acknowledgement:
                    self.replies.append(acknowledgement["payload"])
        self._sockets.discard(socket)
        return socket

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        given: dict[str, Any] = {}
        if request.content_type == "application/json":
            given = await request.json()
        elif request.can_read_body:
            given = dict(await request.post())
        if self._is_away:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if self._failures[method]:
            return self._failed(self._failures[method].pop(0), request)
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if request.headers.get("Authorization") != f"Bearer {wanted}":
            return _well({"ok": False, "error": "invalid_auth"})
        answers = {
            "auth.test": lambda _: {"team_id": TEAM},
            "apps.connections.open": lambda _: {
                "url": f"ws://127.0.0.1:{self.port}/socket?ticket=once"
            },
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.postEphemeral": self._toast,
            "conversations.open": lambda given: {"channel": {"id": f"D{given['users']}"}},
            "files.getUploadURLExternal": self._begin_upload,
            "files.completeUploadExternal": self._share,
        }
        return _well({"ok": True} | answers[method](given))

    def _failed(self, failure: Failure, request: web.Request) -> web.StreamResponse:
        if failure.status == 0:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if failure.status == 403:
            return _well({"ok": False, "error": failure.message})
        headers = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
        document = {"ok": False, "error": "ratelimited" if failure.status == 429 else "fatal_error"}
        return web.json_response(document, status=failure.status, headers=headers)

    def _post(self, given: dict[str, Any]) -> dict[str, Any]:
        self.posted.append(given)
        recipient, stamp = given["channel"].removeprefix("D"), self._stamp()
        text, buttons = _content(given)
        shown = Shown(recipient, f"D{recipient}:{stamp}", text, buttons, given.get("thread_ts"))
        self.messages.append(shown)
        return {"channel": f"D{recipient}", "ts": stamp}

    def _begin_upload(self, given: dict[str, Any]) -> dict[str, Any]:
        file_id = f"F{self._stamp()}"
        self._uploads[file_id] = (given["filename"], b"")
        return {"file_id": file_id, "upload_url": f"http://127.0.0.1:{self.port}/upload/{file_id}"}

    async def _take_upload(self, request: web.Request) -> web.Response:
        file_id = request.match_info["file_id"]
        self._uploads[file_id] = (self._uploads[file_id][0], await request.read())
        return web.Response(text="OK")

    def _share(self, given: dict[str, Any]) -> dict[str, Any]:
        recipient = given["channel_id"].removeprefix("D")
        assert given["channel_id"].startswith("D"), "files are shared with conversations"
        for file in given["files"]:
            name, content = self._uploads.pop(file["id"])
            self.files.append(SharedFile(recipient, name, content, given.get("thread_ts")))
        return {"files": given["files"]}

    def _update(self, given: dict[str, Any]) -> dict[str, Any]:
        reference = f"{given['channel']}:{given['ts']}"
        found = next((each for each in self.messages if each.reference == reference), None)
        if found is None:
            return {"ok": False, "error": "message_not_found"}
        found.text, found.buttons = _content(given)
        return {"channel": given["channel"], "ts": given["ts"]}

    def _toast(self, given: dict[str, Any]) -> dict[str, Any]:
        self.toasts.append(given["text"])
        return {"message_ts": self._stamp()}


def _well(document: dict[str, Any]) -> web.Response:
    return web.json_response(document)


def _rich_text(block: dict[str, Any]) -> str:
    """Return what a block of rich text shows, held against Slack's rules."""
    kinds = {"rich_text_section", "rich_text_preformatted", "rich_text_quote"}
    text = ""
    assert block["elements"]
    for element in block["elements"]:
        assert element["type"] in kinds, element
        assert element["elements"]
        for inner in element["elements"]:
            assert inner["type"] in ("text", "link"), (
                "nothing else is shown, least of all a mention"
            )
            assert inner["text"]
            text += inner["text"]
        text += "" if element["type"] == "rich_text_section" else "\n"
    return text


def _content(given: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return what a message's blocks show, held against Slack's limits."""
    assert given["text"]
    text, buttons = "", {}
    blocks = given.get("blocks")
    if blocks is None:
        plain = given["text"].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return plain, {}
    assert 0 < len(blocks) <= 50
    for block in blocks:
        if block["type"] == "rich_text":
            text += _rich_text(block)
            continue
        if block["type"] == "section":
            assert 0 < len(block["text"]["text"]) <= 3000
            assert block["text"]["type"] == "plain_text"
            text += block["text"]["text"]
            continue
        for element in block["elements"]:
            assert len(element["text"]["text"]) <= 75
            assert len(element["value"]) <= 2000
            buttons[element["text"]["text"]] = element["value"]
        assert len({element["action_id"] for element in block["elements"]}) == len(buttons)
    return text, buttons
