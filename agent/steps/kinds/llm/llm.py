"""The `llm` kind: one question to a model, whose answer is checked before it counts.

An answer that is not what was asked for is asked for again (`retry`), shown to the model with what is
wrong with it (`repair`), or the end (`fail`). Every question is a journaled call, so that no later
attempt asks what has been answered already.
"""

import json
from dataclasses import replace
from typing import Any, Final

from agent.core.ids import request_hash
from agent.models.protocol import Message, ModelRequest
from agent.models.registry import Model
from agent.steps.attempt.context import StepContext
from agent.steps.kinds.llm import model_calls, model_output
from agent.steps.kinds.llm.model_calls import ModelAnswer
from agent.steps.kinds.llm.model_output import ValidOutput
from agent.steps.spec.configs import LlmConfig
from agent.steps.types.outcome import Failed, Json, Outcome, Retry, StepError, Succeeded

_MAX_SHOWN: Final = 20_000
"""Of an answer that is shown to the model again."""


async def ready(config: LlmConfig, context: StepContext) -> None:
    """Load the SDK of the model's provider: that is no part of the step's time."""
    await model_calls.load(context, config.model)


async def run(config: LlmConfig, context: StepContext) -> Outcome:
    """Ask until the answer is what was asked for, or there is no more trying."""
    model = model_calls.model_named(context, config.model)
    schema = context.claimed.step.output_schema
    max_tokens = model_calls.answer_tokens(context, model, config.max_tokens)
    request = _request(config, model, schema, max_tokens)
    first: Json = config.model_dump(by_alias=True, exclude_defaults=True)
    messages, body, repairs = request.messages, first, 0
    while True:
        asked = replace(request, messages=messages)
        said = await model_calls.ask(context, model, asked, body)
        error = model_calls.failure_of(said, model, max_tokens)
        is_end = error is not None or config.on_invalid == "fail"
        if error is None:
            answer = model_calls.read(context, said, is_json=config.json_)
            if isinstance(answer, ValidOutput):
                return Succeeded(answer.value)
            error = answer.error
            context.log(f"the answer cannot be used: {error.message}")
            if config.on_invalid == "repair" and repairs == config.max_repairs:
                text = f"{error.message} (after {repairs} repairs)"
                is_end, error = True, StepError(error.code, error.kind, text)
        if is_end and not said.is_inherited:
            return Failed(error)
        if is_end:
            # It ended the task that this one is a retry of, which is to do better.
            messages, body, repairs = request.messages, first, 0
        elif config.on_invalid == "repair":
            repairs += 1
            messages = (*request.messages, *_repair(said, error))
            # With the prompt's hash: the answer to another prompt is no repair of this one.
            body = {"repair": repairs, "because": error.message, "of": request_hash(first)}
        elif not said.is_replayed:
            # A later attempt takes this answer from the record, and asks anew.
            return Retry(error)


def _request(
    config: LlmConfig, model: Model, schema: dict[str, Any] | None, max_tokens: int
) -> ModelRequest:
    is_json = model_output.wants_json(config.json_, schema)
    system = config.system
    if is_json:
        system = "\n\n".join(part for part in (system, instruction(schema)) if part)
    return ModelRequest(
        messages=(Message("user", str(config.prompt)),),
        max_tokens=max_tokens,
        system=system,
        effort=config.effort,
        temperature=config.temperature,
        stop=tuple(config.stop),
        wants_json=is_json,
        schema=schema if is_json else None,
    )


def instruction(schema: dict[str, Any] | None) -> str:
    """Say in words that an answer is to be JSON."""
    text = "CallAnswer with one JSON value and nothing else: no explanation, no code fence."
    if schema is not None:
        text += " It must meet this JSON Schema:\n" + json.dumps(schema, ensure_ascii=False)
    return text


def _repair(said: ModelAnswer, error: StepError) -> tuple[Message, Message]:
    """Show the model its own answer, and what is wrong with it."""
    shown = said.message().text[:_MAX_SHOWN]
    text = (
        f"That answer cannot be used: {error.message}\n"
        "Give the whole answer again, corrected, and nothing else."
    )
    return Message("assistant", shown), Message("user", text)
