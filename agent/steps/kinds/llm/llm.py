"""The `llm` kind: one question to a model, whose answer is checked before it counts.

After an invalid answer the step asks again (`retry`), shows the model the problem
(`repair`), or fails (`fail`). Every question is a journaled call, so that no later attempt asks what
has been answered already.
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
"""The part of an answer that a repair shows to the model again."""


async def ready(config: LlmConfig, context: StepContext) -> None:
    """Load the SDK of the model's provider, before the step's time begins."""
    await model_calls.load(context, config.model)


async def run(config: LlmConfig, context: StepContext) -> Outcome:
    """Ask until the answer is valid or the step's policy ends it."""
    model = model_calls.model_named(context, config.model)
    schema = context.attempt_input.step.output_schema
    max_tokens = model_calls.answer_tokens(context, model, config.max_tokens)
    request = _request(config, model, schema, max_tokens)
    first: Json = config.model_dump(by_alias=True, exclude_defaults=True)
    messages, body, repairs = request.messages, first, 0
    while True:
        answer = await model_calls.ask(context, model, replace(request, messages=messages), body)
        error = model_calls.failure_of(answer, model, max_tokens)
        is_last = error is not None or config.on_invalid == "fail"
        if error is None:
            output = model_calls.read_output(context, answer, is_json=config.json_)
            if isinstance(output, ValidOutput):
                return Succeeded(output.value)
            error = output.error
            context.log(f"the answer cannot be used: {error.message}")
            if config.on_invalid == "repair" and repairs == config.max_repairs:
                text = f"{error.message} (after {repairs} repairs)"
                is_last, error = True, StepError(error.code, error.kind, text)
        if is_last and not answer.is_inherited:
            return Failed(error)
        if is_last:
            # It ended the task that this one is a retry of: this task begins again.
            messages, body, repairs = request.messages, first, 0
        elif config.on_invalid == "repair":
            repairs += 1
            messages = (*request.messages, *_repair(answer, error))
            # With the prompt's hash: the answer to another prompt is not a repair of this one.
            body = {"repair": repairs, "because": error.message, "of": request_hash(first)}
        elif not answer.is_replayed:
            # The next attempt takes this answer from the record, and asks again.
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
    """Return the instruction to answer with JSON."""
    text = "Answer with one JSON value and nothing else: no explanation, no code fence."
    if schema is not None:
        text += " It must meet this JSON Schema:\n" + json.dumps(schema, ensure_ascii=False)
    return text


def _repair(answer: ModelAnswer, error: StepError) -> tuple[Message, Message]:
    """Return the messages that show the model its own answer and the problem."""
    shown = answer.message().text[:_MAX_SHOWN]
    text = (
        f"That answer cannot be used: {error.message}\n"
        "Give the whole answer again, corrected, and nothing else."
    )
    return Message("assistant", shown), Message("user", text)
