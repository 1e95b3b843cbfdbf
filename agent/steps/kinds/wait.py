"""The `wait` kind: a duration, an instant or a signal; it holds no slot while it waits."""

from agent.core.clock import CLOCK_ERROR_US, SECOND
from agent.core.waits import Signal, Timer
from agent.steps.attempt.context import StepContext
from agent.steps.spec.configs import WaitConfig
from agent.steps.types.outcome import Outcome, Succeeded, Waiting


async def run(config: WaitConfig, context: StepContext) -> Outcome:
    """Wait, or succeed once the time or the signal has come."""
    if config.signal is not None:
        return _for_signal(config.signal, context)
    now = context.services.clock.now()
    instant = config.until
    if config.duration is not None:
        # The instant of the first attempt is saved, so that an early wake-up does not extend the wait.
        saved = context.checkpoint
        is_saved = isinstance(saved, dict) and isinstance(saved.get("until"), int)
        length_us = int(config.duration * SECOND)
        instant = saved["until"] if is_saved else now + length_us
        if instant - length_us > now + CLOCK_ERROR_US:
            # The clock ran ahead then, and has been corrected.
            instant = now + length_us
    assert instant is not None
    if now >= instant:
        return Succeeded()
    return Waiting(Timer(instant), instant, {"until": instant})


def _for_signal(name: str, context: StepContext) -> Outcome:
    waited = context.attempt_input.waited
    if waited is not None and waited.on == Signal(name) and "value" in waited.result:
        return Succeeded(waited.result["value"])
    return Waiting(Signal(name))
