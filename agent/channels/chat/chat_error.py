"""How a request to a chat's service fails."""

from typing import Final

from agent.channels.channel import DeliveryError
from agent.core.failure_causes import is_bad_certificate

UNTRUSTED_SECONDS: Final = 300.0
"""How long a channel waits after a certificate was refused: a person must mend that."""


def unreachable(service: str, error: Exception, *, may_have_happened: bool) -> "ChatError":
    """Return the failure of a request without a response; its text may hold a secret, and is left out."""
    if is_bad_certificate(error):
        return ChatError(
            f"the certificate of {service} is not valid",
            retry_after_seconds=UNTRUSTED_SECONDS,
            is_untrusted=True,
        )
    return ChatError(
        f"{service} cannot be reached ({type(error).__name__})", may_have_happened=may_have_happened
    )


class ChatError(Exception):
    """A request to the chat's service failed; the message holds no secret."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        is_permanent: bool = False,
        is_message_gone: bool = False,
        is_malformed: bool = False,
        may_have_happened: bool = False,
        is_untrusted: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.is_permanent = is_permanent
        """A retry would not help: the recipient blocked the agent, or the chat is gone."""
        self.is_message_gone = is_message_gone
        """The message to edit has this text already, or was deleted."""
        self.is_malformed = is_malformed
        """The formatting was refused; the plain text may be accepted."""
        self.may_have_happened = may_have_happened
        """The request may have been carried out all the same."""
        self.is_untrusted = is_untrusted
        """The service's certificate was refused: a retry helps only once someone has mended that."""

    def as_delivery_error(self) -> DeliveryError:
        """Return the same error for the delivery loop."""
        return DeliveryError(
            str(self),
            retry_after_seconds=self.retry_after_seconds,
            max_attempts=1 if self.is_permanent else None,
        )
