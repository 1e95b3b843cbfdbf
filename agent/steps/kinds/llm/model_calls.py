"""Journaled calls of models, for every kind that asks a model. Entry point: `ask`.

A call is repeatable, at the price of paying twice. Its intent reserves the most that it may use, and
its result has the actual use. A recorded call is answered from the record.
"""

import asyncio
import contextlib
import json
import math
from dataclasses import dataclass
from typing import Final

from agent.core import ids
from agent.core.clock import to_iso
from agent.models import pricing, registry
from agent.models.errors import ModelError, timed_out
from agent.models.protocol import Connector, Message, ModelRequest, Reply, ToolUse
from agent.models.registry import Model
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.secrets import Secrets
from agent.steps.kinds.llm import model_output
from agent.steps.kinds.llm.model_output import InvalidOutput, ValidOutput
from agent.steps.types.call_records import Reservation, Spend
from agent.steps.types.call_types import Call, CallAnswer, MeasuredResponse, Request
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json, StepError

_RESOURCE: Final = "models"
_MAX_RECORDED_CHARS: Final = 10_000
_GRACE_SECONDS: Final = 5.0
"""Between the SDK's own timeout and ours."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer, from this attempt or from the record."""

    text: str
    stop_reason: str
    tool_uses: tuple[ToolUse, ...]
    cut_from_bytes: int | None
    """The length of an answer that was too long to be recorded whole."""
    native: Json
    is_replayed: bool
    is_inherited: bool
    """Whether the task that this one is a retry of got it."""

    def message(self) -> Message:
        """Return it as a message of the conversation; providers refuse an empty one."""
        text = self.text if self.text.strip() or self.tool_uses else "(nothing)"
        return Message("assistant", text, self.tool_uses, native=self.native)


class _Connectors:
    """The connectors of a worker, each made at its first use and closed with the worker."""

    def __init__(self) -> None:
        self._open: dict[tuple[Model, str | None], Connector] = {}

    async def get(self, model: Model, key: str | None) -> Connector:
        if (model, key) not in self._open:
            # Importing an SDK takes a second, which would block the event loop.
            await asyncio.to_thread(registry.load, model)
        connector = self._open.get((model, key))
        if connector is None:
            connector = self._open[(model, key)] = registry.connect(model, key)
        return connector

    async def aclose(self) -> None:
        """Close all of them."""
        while self._open:
            _, connector = self._open.popitem()
            await connector.aclose()


def model_named(context: StepContext, name: str | None) -> Model:
    """Return a model of the configuration; an unknown name fails the step."""
    try:
        model = context.services.models.get(name)
    except ModelError as error:
        raise _definite_failure(error) from None
    if model.key is not None:
        # Also an attempt whose answers are all recorded must not write the key down.
        context.secrets.hide(model.key, frozenset({()}))
    return model


async def load(context: StepContext, name: str | None) -> None:
    """Import the SDK of a model's provider in a thread; a missing one fails at the call."""
    with contextlib.suppress(DefiniteFailure, ModelError):
        model = model_named(context, name)
        if model.key is not None:
            await context.secrets.prefetch(model.key, frozenset({()}))
        if not registry.is_loaded(model):
            await asyncio.to_thread(registry.load, model)


def answer_tokens(context: StepContext, model: Model, max_tokens: int | None) -> int:
    """Return the longest answer in tokens: the step's own, or the default within the model's limit."""
    limit = model.max_output_tokens
    if max_tokens is None:
        default = context.services.models.max_tokens
        return default if limit is None else min(default, limit)
    if limit is not None and max_tokens > limit:
        text = f"max_tokens is {max_tokens}, and model {model.name} gives at most {limit}"
        raise DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
    return max_tokens


async def ask(
    context: StepContext,
    model: Model,
    request: ModelRequest,
    body: Json,
    *,
    is_conversation: bool = False,
) -> ModelAnswer:
    """Ask a model once, as a journaled call; `body` is the recorded form of the request.

    The body should not grow with the conversation. An attempt with another body asks again, unless
    the call is part of a conversation and later calls are on record. Failures are
    `DefiniteFailure`s, which a step may raise out of its code.
    """
    if model.context_tokens is not None and pricing.surely_exceeds(request, model.context_tokens):
        text = f"the prompt is longer than the {model.context_tokens} tokens of model {model.name}"
        raise DefiniteFailure(text, code="context_exceeded", kind="limit", may_retry=False)
    step = context.attempt_input.step
    seconds = step.timeout_seconds or model.timeout_seconds
    call_request = Request(
        "model",
        body,
        "retry" if is_conversation else step.on_unknown or "retry",
        seconds,
        is_effect=False,
        leads=is_conversation,
        reservation=_reservation(context, model, request, seconds),
    )

    async def perform(call: Call) -> MeasuredResponse:
        return await _perform(context, model, request, seconds)

    return _model_answer(await context.perform(call_request, perform))


def failure_of(answer: ModelAnswer, model: Model, max_tokens: int) -> StepError | None:
    """Return the error of an answer that was cut, declined, or out of context."""
    match answer.stop_reason:
        case "max_tokens":
            text = f"the answer was cut at max_tokens = {max_tokens}: raise it, or ask for less"
            return StepError("max_tokens", "limit", text)
        case "refusal":
            reason = f": {answer.text[:500]}" if answer.text else ""
            return StepError("refusal", "remote", f"model {model.name} declined to answer{reason}")
        case "context_exceeded":
            text = f"the context of model {model.name} was full: shorten the prompt"
            return StepError("context_exceeded", "limit", text)
        case _:
            return None


def read_output(
    context: StepContext, answer: ModelAnswer, *, is_json: bool = False
) -> ValidOutput | InvalidOutput:
    """Read the step's output from an answer: as JSON if the step or its schema says so."""
    limit_bytes = context.services.limits.output_bytes
    if answer.cut_from_bytes is not None:
        return model_output.too_long(answer.cut_from_bytes, limit_bytes)
    schema = context.attempt_input.step.output_schema
    is_json = model_output.wants_json(is_json, schema)
    return model_output.read_answer(
        answer.text, is_json=is_json, schema=schema, limit_bytes=limit_bytes
    )


def _reservation(
    context: StepContext, model: Model, request: ModelRequest, seconds: float
) -> Reservation:
    attempt_input, models = context.attempt_input, context.services.models
    tokens_in = pricing.max_input_tokens(request)
    digests = (message.digest for message in request.messages)
    microusd = None
    if model.price is not None:
        microusd = model.price.cost(tokens_in, request.max_tokens)
    return Reservation(
        model=model.model,
        prompt_hash=ids.request_hash([request.system, *digests]),
        tokens=tokens_in + request.max_tokens,
        microusd=microusd,
        day=(to_iso(context.services.clock.now()) or "")[:10],
        step_budget=f"{attempt_input.task.id}/{attempt_input.graph.index_of[attempt_input.step.name]}"
        if attempt_input.step.budget
        else None,
        ms=math.ceil(seconds * 1000),
        daily_tokens=models.daily_tokens,
        daily_microusd=models.daily_microusd,
        daily_ms=models.daily_ms,
        section=model.name,
    )


async def _perform(
    context: StepContext, model: Model, request: ModelRequest, seconds: float
) -> MeasuredResponse:
    """Ask the provider; return the answer with its use."""
    key = None
    if model.key is not None:
        try:
            key = await context.secrets.read(model.key, frozenset({()}))
        except DefiniteFailure as exception:
            error = exception.error
            raise DefiniteFailure(
                f"the key of model {model.name}: {error.message}",
                code=error.code,
                kind=error.kind,
                may_retry=exception.may_retry,
                spend=Spend(),
            ) from None
    resources = context.services.resources
    connectors = resources.setdefault(_RESOURCE, _Connectors())
    assert isinstance(connectors, _Connectors)
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            connector = await connectors.get(model, key)
            reply = await connector.complete(request, seconds)
    except TimeoutError:
        raise _definite_failure(timed_out(f"model {model.name}")) from None
    except ModelError as exception:
        raise _definite_failure(exception) from exception
    limit_bytes = context.services.limits.output_bytes
    return MeasuredResponse(_document(reply, context.secrets, limit_bytes), _spend(reply, model))


def _spend(reply: Reply, model: Model) -> Spend | None:
    if reply.tokens_in is None or reply.tokens_out is None:
        return None
    cost = None
    if model.price is not None:
        cost = model.price.cost(reply.tokens_in, reply.tokens_out)
    return Spend(reply.tokens_in, reply.tokens_out, cost, reply.request_id, reply.stop_reason)


def _document(reply: Reply, secrets: Secrets, limit_bytes: int) -> dict[str, Json]:
    """Return a reply as it is recorded; of one beyond the limit only the beginning of its text."""
    document: dict[str, Json] = {
        "text": reply.text,
        "stop_reason": reply.stop_reason,
        "model": reply.model,
    }
    if reply.request_id is not None and None in (reply.tokens_in, reply.tokens_out):
        # Otherwise it is recorded with the use of the call.
        document["request_id"] = reply.request_id
    uses: list[Json] = [
        {"id": use.id, "name": use.name, "arguments": use.arguments} for use in reply.tool_uses
    ]
    size = len(reply.text.encode("utf-8")) + (len(json.dumps(uses)) if uses else 0)
    if size > limit_bytes:
        # Redacted before it is cut, or half of a secret could be left.
        document["text"] = secrets.redact(reply.text)[:_MAX_RECORDED_CHARS]
        document["cut_from_bytes"] = size
    elif uses:
        document["tool_uses"] = uses
        if reply.native is not None:
            document["native"] = reply.native
    return document


def _model_answer(answer: CallAnswer) -> ModelAnswer:
    response = answer.response
    uses = tuple(
        ToolUse(use["id"], use["name"], use["arguments"]) for use in response.get("tool_uses", ())
    )
    return ModelAnswer(
        text=response["text"],
        stop_reason=response["stop_reason"],
        tool_uses=uses,
        cut_from_bytes=response.get("cut_from_bytes"),
        native=response.get("native"),
        is_replayed=answer.is_replayed,
        is_inherited=answer.is_inherited,
    )


def _definite_failure(error: ModelError) -> DefiniteFailure:
    request = f" (request {error.request_id})" if error.request_id else ""
    return DefiniteFailure(
        error.message + request,
        code=error.code,
        kind=error.kind,
        may_retry=error.may_retry,
        delay_seconds=error.delay_seconds,
        spend=None if error.may_have_cost else Spend(request_id=error.request_id),
    )
