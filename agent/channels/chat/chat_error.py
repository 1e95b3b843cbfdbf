"""How a request to a chat's service fails."""

from agent.channels.channel import DeliveryError


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

    def as_delivery_error(self) -> DeliveryError:
        """Return the same error for the delivery loop."""
        return DeliveryError(
            str(self),
            retry_after_seconds=self.retry_after_seconds,
            max_attempts=1 if self.is_permanent else None,
        )
