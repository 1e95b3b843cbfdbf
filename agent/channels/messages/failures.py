"""Maps the failure of a platform's call to the ledger: certainly not sent, or unknown."""

from agent.channels.chat.chat_error import ChatError
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.outcome import StepError


def as_step_failure(error: ChatError) -> DefiniteFailure | UnknownOutcomeError:
    """Return the failure that the call of a step raises."""
    if error.may_have_happened:
        text = f"{error}: whether the message arrived is unknown"
        return UnknownOutcomeError(
            StepError("unknown_outcome", "unknown", text), error.retry_after_seconds
        )
    return DefiniteFailure(
        str(error),
        code="refused" if error.is_permanent else "unreachable",
        kind="remote" if error.is_permanent else "transport",
        may_retry=not (error.is_permanent or error.is_untrusted),
        delay_seconds=error.retry_after_seconds,
    )


def not_configured(channel: str) -> DefiniteFailure:
    """Return the failure of a message to a channel that the configuration does not turn on."""
    return DefiniteFailure(
        f"the channel {channel} is not configured: set its token in [channels.{channel}]",
        code="no_channel",
        kind="input",
        may_retry=False,
    )
