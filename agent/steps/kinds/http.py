"""The `http` kind: one request.

GET and HEAD are repeatable and are not journaled. Every other method is an effect with an intent. A
request that certainly did not begin (refused, not resolved, no TLS) is a definite failure; one that
broke after the first byte is unknown.
"""

import asyncio

from agent.steps.attempt.context import StepContext
from agent.steps.attempt.prepare import scope_of
from agent.steps.http import request_spans
from agent.steps.http.exchange import Exchange
from agent.steps.http.response import delay_seconds, verdict
from agent.steps.spec.configs import HttpConfig, status_ranges
from agent.steps.types.call_types import Call
from agent.steps.types.errors import (
    Applied,
    DefiniteFailure,
    OutOfDescriptorsError,
    UnknownOutcomeError,
)
from agent.steps.types.outcome import TRUNCATED, Failed, Json, Outcome, StepError, Succeeded
from agent.workflows.templates.templates import TemplateError, evaluate


async def run(config: HttpConfig, context: StepContext) -> Outcome:
    """Make the request."""
    limits = context.services.limits
    seconds = context.attempt_input.step.timeout_seconds or limits.call_seconds
    if config.method in ("get", "head"):
        try:
            async with asyncio.timeout(seconds):
                with request_spans.traced(config.method, config.url, context) as span:
                    span.response = await _perform(config, context, None)
                return _outcome(span.response, None)
        except OutOfDescriptorsError as error:
            return error.outcome()
        except TimeoutError:
            raise DefiniteFailure(
                f"no answer within {seconds:g} s", code="timeout", kind="timeout"
            ) from None
    body = config.model_dump(by_alias=True, exclude_defaults=True, exclude={"reconcile"})
    is_repeatable = config.method in ("put", "delete") or config.idempotent
    request = context.request(
        f"http.{config.method}",
        body,
        on_unknown="reconcile" if config.reconcile else "retry" if is_repeatable else "ask",
        timeout=seconds,
        reconcile=(lambda _: _reconcile(config, context)) if config.reconcile else None,
    )
    answer = await context.perform(request, lambda call: _perform(config, context, call))
    return _outcome(answer.response, answer.idempotency_key)


def _outcome(output: Json, key: str | None) -> Outcome:
    if isinstance(output, dict) and output.get(TRUNCATED):
        text = "the response is larger than the limit; its body was not read"
        return Failed(StepError("response_too_large", "limit", text), key)
    return Succeeded(output, idempotency_key=key)


async def _perform(config: HttpConfig, context: StepContext, call: Call | None) -> Json:
    """Send the request and return its response; raise if its status is a failure."""
    is_repeatable = config.method in ("get", "head", "put", "delete")
    raw = config.model_dump(by_alias=True, include={"headers", "params", "json_", "data"})
    values = context.secrets.resolve(raw, context.secret_paths)
    secret_headers = {
        str(path[1]) for path in context.secret_paths if path[0] == "headers" and len(path) > 1
    }
    if call is not None and config.idempotent:
        values["headers"] = {**values["headers"], "Idempotency-Key": call.remote_key}
    values["headers"] = request_spans.with_trace(values["headers"], context, call)
    exchange = Exchange(context.services, is_effect=call is not None)
    output = await exchange.send(config.method, config.url, values, secret_headers)
    status = output["status"]
    judgement = verdict(status, status_ranges(config.expect), is_repeatable=is_repeatable)
    if judgement == "succeeded":
        return output
    delay = delay_seconds(output["headers"].get("retry-after"), context.services.clock.now())
    text = f"{config.method.upper()} {config.url} was answered with status {status}"
    code = f"status_{status}"
    if judgement == "unknown":
        error = StepError(code, "unknown", f"{text}; whether it took effect is unknown")
        raise UnknownOutcomeError(error, delay)
    raise DefiniteFailure(text, code=code, may_retry=judgement == "retry", delay_seconds=delay)


async def _reconcile(config: HttpConfig, context: StepContext) -> Applied | bool | None:
    """Ask the remote whether the effect happened; None when its answer does not decide it."""
    check = config.reconcile
    assert check is not None
    raw = {"headers": config.headers, "reconcile": {"headers": check.headers}}
    values = context.secrets.resolve(raw, context.secret_paths)
    headers = {**values["headers"], **values["reconcile"]["headers"]}
    try:
        exchange = Exchange(context.services, is_effect=False)
        async with asyncio.timeout(context.services.limits.call_seconds):
            output = await exchange.send("get", check.get, {"headers": headers}, set(headers))
        if output["status"] >= 500 or output["status"] == 429 or output.get(TRUNCATED):
            context.log(f"reconcile: {check.get} was answered with status {output['status']}")
            return None
        applied = evaluate(check.applied, {**scope_of(context.attempt_input), "response": output})
    except OutOfDescriptorsError as error:
        # The remote can be asked later: no person needs to answer.
        context.calls.end_attempt(error.outcome())
    except (DefiniteFailure, TimeoutError, TemplateError) as error:
        context.log(f"reconcile: whether it happened is still unknown: {error}")
        return None
    if not isinstance(applied, bool):
        context.log(f"reconcile: applied gives {applied!r}, and must give true or false")
        return None
    return Applied({**output, "reconciled": True}) if applied else False
