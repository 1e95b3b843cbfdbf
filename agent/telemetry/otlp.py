"""Sends spans by OTLP over HTTP, with OpenTelemetry's own exporter.

The exporter runs in a thread of its own, with a bounded queue. A receiver that is slow or gone costs the
engine nothing: spans are dropped when the queue is full.
"""

import logging
from collections.abc import Mapping
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext

from agent.config.operation import TelemetrySettings
from agent.core.logs.log_limit import LogLimit
from agent.telemetry.spans import EndedSpan
from agent.telemetry.trace_context import SpanContext

log = structlog.get_logger(__name__)

_PATH: Final = "/v1/traces"
_EXPORT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 5.0
_KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "server": SpanKind.SERVER,
    "producer": SpanKind.PRODUCER,
}


class OtlpSink:
    """Passes spans to OpenTelemetry's batch processor."""

    def __init__(
        self,
        settings: TelemetrySettings,
        version: str = "",
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """`version` is this program's; `attributes` describe where it runs."""
        self.sample_ratio = settings.sample_ratio
        self._resource = Resource.create(
            {
                "service.name": settings.service_name,
                "service.version": version,
                **(attributes or {}),
            }
        )
        self._scope = InstrumentationScope("agent", version)
        self._failures = LogLimit(most=1, window_seconds=60.0)
        _limit_library_logs()
        exporter = OTLPSpanExporter(endpoint=_endpoint(settings.endpoint), timeout=_EXPORT_SECONDS)
        self._processor = BatchSpanProcessor(exporter)

    def emit(self, span: EndedSpan) -> None:
        """Take a span; any thread may call this."""
        if not span.context.is_sampled:
            return
        try:
            self._processor.on_end(self._readable(span))
        except Exception as error:
            held_back = self._failures.admit()
            if held_back is not None:
                log.warning("span.dropped", error=str(error), held_back=held_back)

    def close(self) -> None:
        """Send what is left, for a bounded time."""
        try:
            self._processor.force_flush(int(_CLOSE_SECONDS * 1000))
            self._processor.shutdown()  # type: ignore[no-untyped-call]
        except Exception as error:
            log.warning("spans.not_sent", error=str(error))

    def _readable(self, span: EndedSpan) -> ReadableSpan:
        status = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET)
        return ReadableSpan(
            name=span.name,
            context=_context(span.context),
            parent=None if span.parent is None else _context(span.parent, is_remote=True),
            resource=self._resource,
            attributes={key: value for key, value in span.attributes.items() if value is not None},
            links=[Link(_context(link, is_remote=True)) for link in span.links],
            kind=_KINDS[span.kind],
            status=status,
            start_time=span.started_at * 1000,
            end_time=max(span.started_at, span.ended_at) * 1000,
            instrumentation_scope=self._scope,
        )


def _context(context: SpanContext, *, is_remote: bool = False) -> OtelContext:
    return OtelContext(
        context.trace_id, context.span_id, is_remote, TraceFlags(int(context.is_sampled))
    )


def _endpoint(url: str) -> str:
    """Return the address of traces; an address without a path is that of the receiver."""
    return url if _PATH in url else url.rstrip("/") + _PATH


def _limit_library_logs() -> None:
    """Let the library log a failing receiver once a minute, without a traceback."""
    limit = LogLimit(most=1, window_seconds=60.0)

    def shorten(record: logging.LogRecord) -> bool:
        record.exc_info = None
        return limit.admit() is not None

    for name in (
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        "opentelemetry.sdk._shared_internal",
        "opentelemetry.sdk.trace.export",
    ):
        logger = logging.getLogger(name)
        if not logger.filters:
            logger.addFilter(shorten)
