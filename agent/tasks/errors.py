"""The errors that commands, queries and submissions raise for the caller to show.

Imports nothing, so every package of the engine may raise them.
"""


class NotFoundError(Exception):
    """There is no such task, step, approval or workflow; the message names it."""


class LeaseLostError(Exception):
    """A call of an external worker under a lease that is not valid any more; nothing has changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the lease is not valid: {LEASE_LOST[reason]}")
        self.reason = reason


LEASE_LOST = {
    "unknown": "there is no such lease",
    "expired": "it has expired",
    "released": "its worker has given it back",
    "ended": "its work has ended",
    "withdrawn": "its step does not wait for the result any more",
}


class RefusedError(Exception):
    """The request is not allowed in the present state; the message says why."""
