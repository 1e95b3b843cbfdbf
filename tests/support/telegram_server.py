"""A server on loopback that speaks the Bot API, as far as a bot with buttons needs it."""

import json
import re
import threading
import time
from collections import defaultdict
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agent.config.channels import ChannelSettings, TelegramSettings
from tests.support.bot_html import visible_text
from tests.support.chat_server import Failure, SharedFile, Shown

TOKEN = "4711:AA-the-bot-of-the-tests"
_KINDS = {
    "send": ("sendMessage",),
    "upload": ("sendDocument", "sendPhoto"),
    "edit": ("editMessageText", "editMessageReplyMarkup"),
    "receive": ("getUpdates",),
}


class BotServer:
    """Telegram, with one bot and the private chats of a few people."""

    name = "telegram"

    def __init__(self, directory: Path) -> None:
        self._token_file = directory / "telegram"
        self._token_file.write_text(TOKEN)
        self.messages: list[Shown] = []
        self.files: list[SharedFile] = []
        self.toasts: list[str] = []
        self.fetched: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.poll_seconds = 2
        self._updates: list[dict[str, Any]] = []
        self._numbers = 0
        self._failures: defaultdict[str, list[Failure]] = defaultdict(list)
        self._is_away = False
        self._is_closed = False
        self._news = threading.Condition()
        self._server = self._serve()
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def settings(self) -> ChannelSettings:
        """Return the configuration of the bot."""
        return ChannelSettings(
            telegram=TelegramSettings(
                token=f"file:{self._token_file}",
                api_url=f"http://127.0.0.1:{self._server.server_address[1]}",
                poll_seconds=self.poll_seconds,
            )
        )

    def identity(self, number: int) -> str:
        """Return a numeric id."""
        return str(1000 + number)

    def write(self, identity: str, text: str, answers: Shown | None = None, **more: Any) -> None:
        """Write to the bot as an account; `more` changes the message."""
        message: dict[str, Any] = {
            "message_id": self._number(),
            "from": {"id": int(identity), "is_bot": False, "first_name": f"Person {identity}"},
            "chat": {"id": int(identity), "type": "private"},
            "date": 1,
            "text": text,
        }
        if answers is not None:
            message["reply_to_message"] = {"message_id": int(answers.reference)}
        self._bring({"message": message | more})

    def repeat(self) -> None:
        """Bring the last message again, as if it had not been confirmed."""
        self._bring(self._last)

    def press(self, identity: str, token: str) -> None:
        """Press a button as an account."""
        query = {"id": str(self._number()), "from": {"id": int(identity)}, "data": token}
        self._bring({"callback_query": query})

    def fail(self, what: str, *failures: Failure) -> None:
        """Let the next calls fail."""
        for method in _KINDS[what]:
            self._failures[method] += failures

    def goes_away(self, *, is_away: bool) -> None:
        """Close every connection, or answer again."""
        with self._news:
            self._is_away = is_away
            self._news.notify_all()

    def close(self) -> None:
        """End it."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def called(self, method: str) -> list[dict[str, Any]]:
        """Return what a method was called with."""
        return [given for name, given in self.calls if name == method]

    def _number(self) -> int:
        with self._news:
            self._numbers += 1
            return self._numbers

    def _bring(self, update: dict[str, Any]) -> None:
        with self._news:
            self._numbers += 1
            self._last = {**update, "update_id": self._numbers}
            self._updates.append(self._last)
            self._news.notify_all()

    def answer(self, method: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Return the status and the document of an answer; None hangs up."""
        if method == "getUpdates":
            self._wait_for_news(given)
        with self._news:
            self.calls.append((method, given))
            if self._is_away:
                return None
            if self._failures[method]:
                failure = self._failures[method].pop(0)
                return _failed(failure) if failure.status else None
            answers = {
                "getUpdates": self._updates_since,
                "sendMessage": self._send,
                "sendDocument": self._send_file,
                "sendPhoto": self._send_file,
                "editMessageText": self._edit,
                "editMessageReplyMarkup": self._mark_up,
                "answerCallbackQuery": self._toast,
            }
            return answers.get(method, _unknown)(given)

    def _wait_for_news(self, given: dict[str, Any]) -> None:
        until = time.monotonic() + given["timeout"]
        with self._news:
            # Asking from a number on says that all before it were dealt with.
            first = given.get("offset", 0)
            self._updates = [each for each in self._updates if each["update_id"] >= first]
            while not (self._updates or self._is_away or self._failures["getUpdates"]):
                if self._is_closed or not self._news.wait(until - time.monotonic()):
                    return

    def _updates_since(self, _given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return _well(list(self._updates))

    def _send(self, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = given["text"]
        if given.get("parse_mode") == "HTML":
            try:
                text = visible_text(text)
            except ValueError as problem:
                return _failed(Failure(400, f"Bad Request: can't parse entities: {problem}"))
        if not text or len(text.encode("utf-16-le")) // 2 > 4096:
            return _failed(Failure(400, "Bad Request: message is too long"))
        self._numbers += 1
        self._preview(given)
        topic = given.get("message_thread_id")
        shown = Shown(
            str(given["chat_id"]),
            str(self._numbers),
            text,
            _buttons(given),
            None if topic is None else str(topic),
        )
        self.messages.append(shown)
        return _well({"message_id": self._numbers, "chat": {"id": given["chat_id"]}})

    def _send_file(self, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._numbers += 1
        name, content = given["file"]
        self.files.append(SharedFile(str(given["chat_id"]), name, content))
        return _well({"message_id": self._numbers, "chat": {"id": given["chat_id"]}})

    def _edit(self, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self._message(given)
        if found is None:
            return _failed(Failure(400, "Bad Request: message to edit not found"))
        if found.text == given["text"]:
            return _failed(Failure(400, "Bad Request: message is not modified"))
        self._preview(given)
        found.text, found.buttons = given["text"], _buttons(given)
        return _well({"message_id": given["message_id"]})

    def _preview(self, given: dict[str, Any]) -> None:
        """Fetch the URLs of a message, as Telegram does unless previews are disabled."""
        if not given.get("link_preview_options", {}).get("is_disabled"):
            self.fetched += re.findall(r"https?://[^\s\"]+", given["text"])

    def _mark_up(self, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self._message(given)
        if found is None:
            return _failed(Failure(400, "Bad Request: message to edit not found"))
        found.buttons = _buttons(given)
        return _well({"message_id": given["message_id"]})

    def _toast(self, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert len(given["text"]) <= 200
        self.toasts.append(given["text"])
        return _well(True)

    def _message(self, given: dict[str, Any]) -> Shown | None:
        wanted = (str(given["chat_id"]), str(given["message_id"]))
        return next((m for m in self.messages if (m.recipient, m.reference) == wanted), None)

    def _serve(self) -> ThreadingHTTPServer:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                given = _document(self.headers.get("Content-Type", ""), self.rfile.read(length))
                prefix, _, method = self.path.rpartition("/")
                if prefix != f"/bot{TOKEN}":
                    answer: Any = _failed(Failure(401, "Unauthorized"))
                else:
                    answer = peer.answer(method, given)
                self.close_connection = answer is None
                if answer is None:
                    return
                body = json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *arguments: object) -> None:
                """Say nothing: clients that leave are part of the tests."""

        return Server(("127.0.0.1", 0), Handler)


def _document(content_type: str, body: bytes) -> dict[str, Any]:
    """Return what a request holds: JSON, or a form with a file."""
    if not content_type.startswith("multipart/form-data"):
        document: dict[str, Any] = json.loads(body or b"{}")
        return document
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    form = BytesParser(policy=HTTP).parsebytes(head + body)
    given: dict[str, Any] = {}
    for part in form.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename() is not None:
            given["file"] = (part.get_filename(), content)
        else:
            given[name] = content.decode()
    return given


def _well(result: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"ok": True, "result": result}


def _failed(failure: Failure) -> tuple[int, dict[str, Any]]:
    document: dict[str, Any] = {
        "ok": False,
        "error_code": failure.status,
        "description": failure.message,
    }
    if failure.retry_after is not None:
        document["parameters"] = {"retry_after": failure.retry_after}
    return failure.status, document


def _unknown(_given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return _failed(Failure(404, "Not Found"))


def _buttons(given: dict[str, Any]) -> dict[str, str]:
    rows = (given.get("reply_markup") or {}).get("inline_keyboard", [])
    for row in rows:
        for button in row:
            assert len(button["callback_data"].encode()) <= 64
    return {button["text"]: button["callback_data"] for row in rows for button in row}
