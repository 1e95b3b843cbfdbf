"""Journaled calls of models: what every kind that asks a model goes through.

A call is repeatable and may cost twice: its intent carries what it may use at most, its result what
it used. One that is on record is answered from the record, without asking the model again.
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
_KEPT_OF_TOO_LONG: Final = 10_000
_GRACE_SECONDS: Final = 5.0
"""Between the SDK's own end of a request and ours."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model answered, now or in an earlier attempt."""

    text: str
    stop_reason: str
    tool_uses: tuple[ToolUse, ...]
    cut_from_bytes: int | None
    """How long the answer was, when it was too long to be kept whole."""
    native: Json
    is_replayed: bool
    is_inherited: bool
    """Whether an earlier task was told it, and this one is to do better."""

    def message(self) -> Message:
        """Return it as a message of the conversation; no provider takes one back that is empty."""
        text = self.text if self.text.strip() or self.tool_uses else "(nothing)"
        return Message("assistant", text, self.tool_uses, native=self.native)


class _Connectors:
    """The connectors of a worker, each made at its first use and closed with the worker."""

    def __init__(self) -> None:
        self._open: dict[tuple[Model, str | None], Connector] = {}

    async def get(self, model: Model, key: str | None) -> Connector:
        if (model, key) not in self._open:
            # An SDK takes a second to import, in which the whole worker would stand still.
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
    """Return a model of the configuration; one that is not there fails the step."""
    try:
        model = context.services.models.get(name)
    except ModelError as problem:
        raise _definite(problem) from None
    if model.key is not None:
        # Also an attempt whose answers are all on record must not write the key down.
        context.secrets.hide(model.key, frozenset({()}))
    return model


async def load(context: StepContext, name: str | None) -> None:
    """Import the SDK of a model's provider, in a thread; a model that is not there is left out."""
    with contextlib.suppress(DefiniteFailure):
        model = model_named(context, name)
        if not registry.is_loaded(model):
            await asyncio.to_thread(registry.load, model)


def answer_tokens(context: StepContext, model: Model, wanted: int | None) -> int:
    """Return how long an answer may be: what the step says, or the default that the model allows."""
    most = model.max_output_tokens
    if wanted is None:
        default = context.services.models.max_tokens
        return default if most is None else min(default, most)
    if most is not None and wanted > most:
        text = f"max_tokens is {wanted}, and model {model.name} gives at most {most}"
        raise DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
    return wanted


async def ask(
    context: StepContext,
    model: Model,
    request: ModelRequest,
    body: Json,
    *,
    action: str = "model",
    on_unknown: str | None = None,
    leads: bool = False,
) -> ModelAnswer:
    """Ask a model once, as a journaled call; `body` is what the record shows of the request.

    The body should not grow with the conversation. An attempt with another body asks again, unless
    the call `leads` and later calls are on record. Failures are `DefiniteFailure`s: raised out of
    the step they end the attempt as they ought to.
    """
    if model.context_tokens is not None and pricing.surely_exceeds(request, model.context_tokens):
        text = f"the prompt is longer than the {model.context_tokens} tokens of model {model.name}"
        raise DefiniteFailure(text, code="context_exceeded", kind="limit", may_retry=False)
    step = context.claimed.step
    seconds = step.timeout_seconds or model.timeout_seconds
    asked = Request(
        action,
        body,
        on_unknown or step.on_unknown or "retry",
        seconds,
        is_effect=False,
        leads=leads,
        reservation=_reservation(context, model, request, seconds),
    )

    async def perform(call: Call) -> MeasuredResponse:
        return await _perform(context, model, request, seconds)

    answer = await context.perform(asked, perform)
    return _said(answer)


def failure_of(said: ModelAnswer, model: Model, max_tokens: int) -> StepError | None:
    """Say why an answer is none although the model gave one: cut, declined, or out of context."""
    match said.stop_reason:
        case "max_tokens":
            text = f"the answer was cut at max_tokens = {max_tokens}: raise it, or ask for less"
            return StepError("max_tokens", "limit", text)
        case "refusal":
            reason = f": {said.text[:500]}" if said.text else ""
            return StepError("refusal", "remote", f"model {model.name} declined to answer{reason}")
        case "context_exceeded":
            text = f"the context of model {model.name} was full: shorten the prompt"
            return StepError("context_exceeded", "limit", text)
        case _:
            return None


def read(
    context: StepContext, said: ModelAnswer, *, is_json: bool = False
) -> ValidOutput | InvalidOutput:
    """Read an answer as the step wants it: as JSON, or as its schema says."""
    limit_bytes = context.services.limits.output_bytes
    if said.cut_from_bytes is not None:
        return model_output.too_long(said.cut_from_bytes, limit_bytes)
    schema = context.claimed.step.output_schema
    is_json = model_output.wants_json(is_json, schema)
    return model_output.read_answer(
        said.text, is_json=is_json, schema=schema, limit_bytes=limit_bytes
    )


def _reservation(
    context: StepContext, model: Model, request: ModelRequest, seconds: float
) -> Reservation:
    claimed, models = context.claimed, context.services.models
    tokens_in = pricing.most_tokens_in(request)
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
        step_budget=f"{claimed.task.id}/{claimed.graph.index_of[claimed.step.name]}"
        if claimed.step.budget
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
    """Ask the provider, and say what that used."""
    key = None
    if model.key is not None:
        try:
            key = context.secrets.resolve(model.key, frozenset({()}))
        except DefiniteFailure as problem:
            error = problem.error
            raise DefiniteFailure(
                f"the key of model {model.name}: {error.message}",
                code=error.code,
                kind=error.kind,
                may_retry=problem.may_retry,
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
        raise _definite(timed_out(f"model {model.name}")) from None
    except ModelError as problem:
        raise _definite(problem) from problem
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
    """Return an answer as it is recorded; one beyond the limit only by its text's beginning."""
    document: dict[str, Json] = {
        "text": reply.text,
        "stop_reason": reply.stop_reason,
        "model": reply.model,
    }
    if reply.request_id is not None and None in (reply.tokens_in, reply.tokens_out):
        # Otherwise it stands with what the call used.
        document["request_id"] = reply.request_id
    uses: list[Json] = [
        {"id": use.id, "name": use.name, "arguments": use.arguments} for use in reply.tool_uses
    ]
    size = len(reply.text.encode("utf-8")) + (len(json.dumps(uses)) if uses else 0)
    if size > limit_bytes:
        # Before it is cut, or half of a secret could be left.
        document["text"] = secrets.redact(reply.text)[:_KEPT_OF_TOO_LONG]
        document["cut_from_bytes"] = size
    elif uses:
        document["tool_uses"] = uses
        if reply.native is not None:
            document["native"] = reply.native
    return document


def _said(answer: CallAnswer) -> ModelAnswer:
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


def _definite(problem: ModelError) -> DefiniteFailure:
    request = f" (request {problem.request_id})" if problem.request_id else ""
    return DefiniteFailure(
        problem.message + request,
        code=problem.code,
        kind=problem.kind,
        may_retry=problem.may_retry,
        delay_seconds=problem.delay_seconds,
        spend=None if problem.may_have_cost else Spend(request_id=problem.request_id),
    )
