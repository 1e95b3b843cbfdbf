"""The `worker` kind: offers its work to external workers, and ends as they report.

The attempt in this process only renders the worker's input and queues it; the step then waits without
a slot. Where the work is a call of the ledger (an effect, or a step with `set_state`), a recorded result
of it is the step's outcome, and an unknown one follows `on_unknown`.
"""

import asyncio

from agent.steps.attempt.context import StepContext
from agent.steps.spec.output_checks import large_text
from agent.steps.spec.worker_config import WorkerConfig
from agent.steps.types.call_records import Intent
from agent.steps.types.call_types import CallAnswer, Request
from agent.steps.types.outcome import Json, Outcome, Succeeded, Waiting, WorkOffer
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import encode


async def run(config: WorkerConfig, context: StepContext) -> Outcome:
    """Offer the work, unless its result is on record."""
    step = context.attempt_input.step
    intent: Intent | None = None
    if config.effect == "once" or step.set_state:
        answer = await context.calls.offer(_request(config, context))
        if isinstance(answer, CallAnswer):
            return Succeeded(answer.response, idempotency_key=answer.idempotency_key)
        intent = answer
    work_input = context.secrets.redact_value(config.with_)
    is_inline = is_small(work_input)
    text = _encode(work_input) if is_inline else await asyncio.to_thread(_encode, work_input)
    large = large_text(text, context.services.limits.inline_bytes)
    offered = WorkOffer(
        config.queue,
        text if large is None else "null",
        config.lease,
        config.start_within,
        step.timeout_seconds,
        intent,
        is_effect=config.effect == "once",
        large=large,
    )
    return Waiting(offered)


def _request(config: WorkerConfig, context: StepContext) -> Request:
    is_effect = config.effect == "once"
    step = context.attempt_input.step
    return Request(
        f"worker.{config.queue}",
        {"queue": config.queue, "with": config.with_},
        (step.on_unknown or "ask") if is_effect else "retry",
        # How long it may be under way is a matter of its lease.
        timeout_seconds=0.0,
        is_effect=is_effect,
        settles_step=True,
    )


def _encode(work_input: Json) -> str:
    return encode(work_input, "with")
