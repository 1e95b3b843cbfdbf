"""The spans of HTTP requests, and the header that carries them to the remote."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.steps.attempt import spans
from agent.steps.attempt.containment import describe_exception
from agent.steps.attempt.context import StepContext
from agent.steps.types.call_types import Call
from agent.steps.types.outcome import Json
from agent.telemetry.trace_context import KEY


@dataclass(slots=True)
class RequestSpan:
    """A request without effect, under way."""

    response: Json = None


def with_trace(headers: dict[str, str], context: StepContext, call: Call | None) -> dict[str, str]:
    """Return the headers of a request with `traceparent`, where there are traces and it has none.

    It is no part of the request on record: a repeated request must be the same.
    """
    sink = context.services.spans
    if sink is None or any(name.lower() == KEY for name in headers):
        return headers
    name = "request" if call is None else call.call_id
    return {**headers, KEY: spans.call_context(context.attempt_input, sink, name).traceparent}


@contextmanager
def traced(method: str, url: str, context: StepContext) -> Iterator[RequestSpan]:
    """Report a request without effect as a span; other requests are calls, which have their own."""
    span = RequestSpan()
    sink = context.services.spans
    if sink is None:
        yield span
        return
    began, error = context.services.clock.now(), None
    try:
        yield span
    except BaseException as exception:
        error = context.secrets.redact(describe_exception(exception))
        raise
    finally:
        redacted = context.secrets.redact(url)
        spans.emit_request(
            context.attempt_input,
            context.services,
            spans.call_context(context.attempt_input, sink, "request"),
            began,
            spans.http_attributes(method.upper(), redacted, span.response),
            error,
        )
