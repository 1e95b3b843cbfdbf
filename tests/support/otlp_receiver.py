"""A receiver of traces on loopback, which decodes OTLP with the official messages."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.engine import eventually


@dataclass(frozen=True)
class Span:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    links: list[str]
    is_error: bool
    message: str
    resource: dict[str, Any]
    started_ns: int
    ended_ns: int


@dataclass
class Receiver:
    """What has arrived so far."""

    spans: list[Span] = field(default_factory=list)
    status: int = 200
    port: int = 0

    @property
    def url(self) -> str:
        """The endpoint for the configuration."""
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Span]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    def wait(self, name: str, count: int = 1) -> list[Span]:
        """Wait for spans of a name, and return them."""
        return (
            eventually(
                lambda: found if len(found := self.named(name)) >= count else None,
                lambda: f"{count} of {name}: {[span.name for span in self.spans]}",
            )
            or []
        )

    def take(self, body: bytes) -> None:
        """Decode a request."""
        message = ExportTraceServiceRequest.FromString(body)
        for group in message.resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_span(span, resource) for span in scope.spans]


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        _attributes(span.attributes),
        [link.trace_id.hex() for link in span.links],
        span.status.code == 2,
        span.status.message,
        resource,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, which)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive traces for as long as the block lasts."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            if receiver.status == 200:
                receiver.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(receiver.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
