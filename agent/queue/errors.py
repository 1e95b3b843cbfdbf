"""The exceptions that handlers and the client raise."""


class Retry(Exception):  # noqa: N818 - a verdict, read as a statement
    """The attempt failed and may be made again, after a delay if one is given.

    Any other exception means the same, and sends the traceback of the handler's own code.
    """

    def __init__(
        self, message: str, *, after_seconds: float | None = None, code: str = "failed"
    ) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds
        self.code = code


class Final(Exception):  # noqa: N818 - a verdict, read as a statement
    """The attempt failed, and another one must not be made."""

    def __init__(self, message: str, *, code: str = "failed") -> None:
        super().__init__(message)
        self.code = code


class QueueError(Exception):
    """The agent cannot be used as it was asked to: an address, a token or a request is wrong."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status that the agent answered with."""


class LeaseLostError(QueueError):
    """The lease is over: the step was cancelled, or another worker may have it."""


class UnavailableError(QueueError):
    """The agent does not answer, or not now; the same request may be sent again."""

    def __init__(
        self, message: str, *, after_seconds: float = 0.0, status: int | None = None
    ) -> None:
        super().__init__(message, status=status)
        self.after_seconds = after_seconds


class HandlerEnd(BaseException):
    """Ends a handler whose step is parked, paused or cancelled.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it.
    """
