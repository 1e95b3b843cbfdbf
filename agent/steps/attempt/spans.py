"""The spans of an attempt and of its calls, named by OpenTelemetry's semantic conventions.

`traced` surrounds an attempt, `emit_call` reports a call that has ended. Models follow the conventions for
generative AI, requests those for HTTP. The content of a span is redacted as the record is.
"""

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from agent.core.state_machine import CallStatus
from agent.models.errors import ModelError
from agent.steps.attempt.services import Services
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import Spend
from agent.steps.types.call_types import Call, Request
from agent.steps.types.outcome import (
    Failed,
    Json,
    Outcome,
    Retry,
    StepError,
)
from agent.telemetry.spans import Attribute, EndedSpan, SpanSink
from agent.telemetry.trace_context import SpanContext, trace_of

_TOOL: Final = "tool."
_HTTP: Final = "http."
_MICROUSD: Final = 1_000_000


def context_of(attempt_input: AttemptInput, sink: SpanSink) -> SpanContext:
    """Return the span of an attempt."""
    task = attempt_input.task
    root = trace_of(task.id, task.trigger, sink.sample_ratio).root
    return root.child("attempt", attempt_input.step_id, attempt_input.claim_token)


def call_context(attempt_input: AttemptInput, sink: SpanSink, *names: object) -> SpanContext:
    """Return the span of a call, which other programs get as `traceparent`."""
    return context_of(attempt_input, sink).child("call", *names)


async def traced(
    attempt_input: AttemptInput, services: Services, attempt: Coroutine[Any, Any, Outcome]
) -> Outcome:
    """Run an attempt in its span; lines that it logs refer to the span."""
    sink, clock = services.spans, services.clock
    assert sink is not None
    context = context_of(attempt_input, sink)
    structlog.contextvars.bind_contextvars(**context.log_keys)
    started_at = clock.now()
    outcome: Outcome | None = None
    try:
        outcome = await attempt
    finally:
        _emit_attempt(attempt_input, sink, context, (started_at, clock.now()), outcome)
    return outcome


def _emit_attempt(
    attempt_input: AttemptInput,
    sink: SpanSink,
    context: SpanContext,
    times: tuple[int, int],
    outcome: Outcome | None,
) -> None:
    task, step = attempt_input.task, attempt_input.step
    is_agent = step.kind == "agent"
    error = outcome.error if isinstance(outcome, Failed | Retry) else None
    ended_as = "interrupted" if outcome is None else type(outcome).__name__.lower()
    attributes: dict[str, Attribute | None] = {
        "agent.task.id": task.id,
        "agent.workflow.name": task.workflow,
        "agent.workflow.version": task.version,
        "agent.step.name": step.name,
        "agent.step.kind": step.kind,
        "agent.step.item": attempt_input.parallel_index,
        "agent.attempt": attempt_input.attempt,
        "agent.attempt.outcome": ended_as,
        "error.type": None if error is None else error.code,
    }
    if is_agent:
        attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": step.name}
    sink.emit(
        EndedSpan(
            f"invoke_agent {step.name}" if is_agent else f"step {step.name}",
            context,
            trace_of(task.id, task.trigger, sink.sample_ratio).root,
            *times,
            attributes=attributes,
            error=None if error is None else error.message,
        )
    )


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended, as its span shows it."""

    call: Call
    request: Request
    status: CallStatus
    response: Json = None
    error: StepError | None = None
    spend: Spend | None = None
    seconds: float = 0.0


def emit_call(attempt_input: AttemptInput, services: Services, ended: EndedCall, url: str) -> None:
    """Report a call that has ended; `url` is redacted, and empty for other calls than requests."""
    sink = services.spans
    assert sink is not None
    now = services.clock.now()
    action = ended.request.action
    name, attributes = action, _common(attempt_input, ended)
    if ended.call.reservation is not None:
        name, more = _model(services, ended)
        attributes |= more
    elif action.startswith(_HTTP):
        method = action.removeprefix(_HTTP).upper()
        name = method
        attributes |= http_attributes(method, url, ended.response)
    elif action.startswith(_TOOL):
        tool = action.removeprefix(_TOOL)
        name = f"execute_tool {tool}"
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    is_remote = ended.call.reservation is not None or action.startswith(_HTTP)
    sink.emit(
        EndedSpan(
            name,
            call_context(attempt_input, sink, ended.call.call_id),
            context_of(attempt_input, sink),
            now - int(ended.seconds * 1_000_000),
            now,
            kind="client" if is_remote else "internal",
            attributes=attributes,
            error=_error_text(ended),
        )
    )


def emit_request(
    attempt_input: AttemptInput,
    services: Services,
    context: SpanContext,
    started_at: int,
    attributes: dict[str, Attribute | None],
    error: str | None,
) -> None:
    """Report a request without effect, which has no call on record."""
    sink = services.spans
    assert sink is not None
    sink.emit(
        EndedSpan(
            str(attributes["http.request.method"]),
            context,
            context_of(attempt_input, sink),
            started_at,
            services.clock.now(),
            kind="client",
            attributes={"agent.task.id": attempt_input.task.id, **attributes},
            error=error,
        )
    )


def url_of(request: Request) -> str:
    """Return where a request of the kind `http` goes; its body names it by the method."""
    if not request.action.startswith(_HTTP) or not isinstance(request.body, dict):
        return ""
    return str(request.body.get(request.action.removeprefix(_HTTP)) or "")


def http_attributes(method: str, url: str, response: Json = None) -> dict[str, Attribute | None]:
    """Return the attributes of a request, by the conventions for HTTP clients."""
    parts = urlsplit(url)
    status = response.get("status") if isinstance(response, dict) else None
    # The part before the host is a password, and the query may hold one.
    host = parts.netloc.rpartition("@")[2]
    return {
        "http.request.method": method,
        "url.full": f"{parts.scheme}://{host}{parts.path}" if parts.scheme else None,
        "server.address": parts.hostname,
        "server.port": parts.port,
        "http.response.status_code": status if isinstance(status, int) else None,
    }


def _common(attempt_input: AttemptInput, ended: EndedCall) -> dict[str, Attribute | None]:
    return {
        "agent.task.id": attempt_input.task.id,
        "agent.step.name": attempt_input.step.name,
        "agent.call.id": ended.call.call_id,
        "agent.call.action": ended.call.action,
        "agent.call.status": ended.status.value,
        "agent.call.is_effect": ended.call.is_effect,
        "error.type": None if ended.error is None else ended.error.code,
    }


def _model(services: Services, ended: EndedCall) -> tuple[str, dict[str, Attribute | None]]:
    reservation, spend = ended.call.reservation, ended.spend
    assert reservation is not None
    response = ended.response if isinstance(ended.response, dict) else {}
    provider: str | None = None
    with suppress(ModelError):
        provider = services.models.get(reservation.section).provider
    finish = response.get("stop_reason") or (None if spend is None else spend.stop_reason)
    cost = None if spend is None or spend.microusd is None else spend.microusd / _MICROUSD
    return f"chat {reservation.model}", {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": reservation.model,
        "gen_ai.response.model": response.get("model"),
        "gen_ai.response.id": None if spend is None else spend.request_id,
        "gen_ai.response.finish_reasons": [str(finish)] if finish else None,
        "gen_ai.usage.input_tokens": None if spend is None else spend.tokens_in,
        "gen_ai.usage.output_tokens": None if spend is None else spend.tokens_out,
        "agent.cost_usd": cost,
    }


def _error_text(ended: EndedCall) -> str | None:
    if ended.error is not None:
        return ended.error.message
    return "its result is unknown" if ended.status == CallStatus.UNKNOWN else None
