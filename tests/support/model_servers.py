"""A real HTTP server on loopback that speaks both providers' protocols, or breaks them as a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-of-the-tests-0123456789"
ANTHROPIC_PATH = "/v1/messages"
OPENAI_PATH = "/v1/chat/completions"


@dataclass
class Say:
    """A good answer, in the protocol of the requested provider."""

    text: str = "hello"
    stop: str | None = None
    """In the provider's own word."""
    tokens_in: int | None = 10
    tokens_out: int | None = 5
    tools: list[tuple[str, str, Any]] = field(default_factory=list)
    """(id, name, arguments) of tool uses."""


@dataclass
class Raw:
    """Bytes as they are."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None
    """What Content-Length says, if it lies."""
    drips: bool = False
    """Whether it comes byte by byte, and its last one never."""


class HangUp:
    """The connection is closed without a response."""


class Stall:
    """No answer comes until the server is closed."""


Reply = Say | Raw | HangUp | Stall


def error(status: int, message: str = "no", headers: dict[str, str] | None = None) -> Raw:
    """Return an error as both providers write it, near enough."""
    document = {"type": "error", "error": {"type": "some_error", "message": message}}
    return Raw(status, json.dumps(document).encode(), headers or {})


@dataclass
class Provider:
    """A stand-in for a provider: keeps what it was asked, answers as the test says."""

    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    """One for each request; the last one stays."""
    decide: Callable[[dict[str, Any]], Reply] | None = None
    """Chooses the reply by the request, where the order does not."""
    gate: threading.Event | None = None
    """Every answer waits for it, if there is one."""
    closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def anthropic_url(self) -> str:
        """What `base_url` of an anthropic model is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """What `base_url` of an openai model is."""
        return f"http://127.0.0.1:{self.port}/v1"

    def url(self, provider: str) -> str:
        """Return the base URL for a provider."""
        return self.anthropic_url if provider == "anthropic" else self.openai_url

    def take(self, path: str, request: dict[str, Any], authorization: str | None) -> Raw | None:
        """Keep a request and return its answer; None hangs up."""
        with self._lock:
            self.requests.append(request)
            self.keys.append(authorization)
            if self.decide is not None:
                reply = self.decide(request)
            else:
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if self.gate is not None:
            self.gate.wait(60)
        if isinstance(reply, Stall):
            self.closing.wait(60)
            return None
        if isinstance(reply, HangUp):
            return None
        if isinstance(reply, Raw):
            return reply
        if path == ANTHROPIC_PATH:
            return _anthropic(reply, request)
        return _openai(reply, request)


def _anthropic(say: Say, request: dict[str, Any]) -> Raw:
    content: list[dict[str, Any]] = [{"type": "text", "text": say.text}] if say.text else []
    content += [
        {"type": "tool_use", "id": use, "name": name, "input": arguments}
        for use, name, arguments in say.tools
    ]
    document: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": say.stop or ("tool_use" if say.tools else "end_turn"),
        "stop_sequence": None,
    }
    if say.tokens_in is not None:
        document["usage"] = {"input_tokens": say.tokens_in, "output_tokens": say.tokens_out}
    return Raw(200, json.dumps(document).encode(), {"request-id": "req_anthropic"})


def _openai(say: Say, request: dict[str, Any]) -> Raw:
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
    if say.tools:
        message["tool_calls"] = [
            {
                "id": use,
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for use, name, arguments in say.tools
        ]
    stop = say.stop or ("tool_calls" if say.tools else "stop")
    document: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
    }
    if say.tokens_in is not None and say.tokens_out is not None:
        document["usage"] = {
            "prompt_tokens": say.tokens_in,
            "completion_tokens": say.tokens_out,
            "total_tokens": say.tokens_in + say.tokens_out,
        }
    return Raw(200, json.dumps(document).encode(), {"x-request-id": "req_openai"})


@contextmanager
def providing(*replies: Reply) -> Iterator[Provider]:
    """Run a stand-in for as long as the block lasts."""
    provider = Provider(replies=list(replies) or [Say()])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            request = json.loads(self.rfile.read(length) or b"{}")
            self.close_connection = True
            if self.path not in (ANTHROPIC_PATH, OPENAI_PATH):
                answer: Raw | None = error(404, f"no such path {self.path}")
            else:
                answer = provider.take(self.path, request, self.headers.get("Authorization"))
            if answer is None:
                return
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(answer.promised or len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if not answer.drips:
                self.wfile.write(answer.body)
                return
            for byte in answer.body[:-1]:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if provider.closing.wait(0.01):
                    return
            provider.closing.wait(60)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

        def handle(self) -> None:
            # A client that gave up is no failure of the stand-in.
            try:
                super().handle()
            except (ConnectionError, ValueError):
                self.close_connection = True

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *arguments: object) -> None:
            """Say nothing: clients that speak no HTTP are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    provider.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        provider.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
