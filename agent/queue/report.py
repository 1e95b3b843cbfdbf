"""Delivers the end of a handler: until the agent has it, or certainly refuses it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent.queue import outcome as outcomes
from agent.queue.connection import Connection
from agent.queue.errors import LeaseLostError, QueueError, UnavailableError
from agent.queue.lease import Document, Lease
from agent.queue.outcome import Outcome

log = logging.getLogger("agent.queue")

_NOT_ALLOWED: Final = (401, 403)
_BAD_CONTENT: Final = (None, 400, 413, 422)
"""Statuses that speak of the content; None: it is not JSON and was not sent."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a report was received."""

    is_settled: bool
    """Whether the agent has it, or certainly refuses it."""
    answer: Document = field(default_factory=dict)


def deliver(
    connection: Connection, lease: Lease, outcome: Outcome, wait: Callable[[float], bool]
) -> Delivery:
    """Report an outcome until the agent has it; `wait` sleeps between tries, and returns True to give up."""

    def notify(error: UnavailableError, failures: int) -> None:
        if failures == 1 or failures % 32 == 0:
            log.warning("the result of %s waits for the agent: %s", lease.describe(), error)

    try:
        answer: Document = connection.repeat(
            lambda: _send(lease, outcome), wait=wait, notify=notify
        )
    except LeaseLostError as error:
        if outcome.verb != "release":
            log.warning("the agent refuses %s of %s: %s", outcome.verb, lease.describe(), error)
        return Delivery(is_settled=True)
    except UnavailableError as error:
        log.error("%s of %s was not delivered: %s", outcome.verb, lease.describe(), error)
        return Delivery(is_settled=False)
    except QueueError as error:
        if outcome.verb == "complete" and error.status in _BAD_CONTENT:
            return deliver(connection, lease, outcomes.bad_output(str(error)), wait)
        log.error("the agent refuses %s of %s: %s", outcome.verb, lease.describe(), error)
        return Delivery(is_settled=False)
    if answer.get("is_late"):
        log.info("%s of %s came late, and was recorded", outcome.verb, lease.describe())
    return Delivery(is_settled=True, answer=answer)


def _send(lease: Lease, outcome: Outcome) -> Document:
    try:
        if lease.has_log and lease.end_reason is None:
            lease.flush_log()
        return lease.send(outcome.verb, outcome.document)
    except QueueError as error:
        if error.status in _NOT_ALLOWED:
            # A token can be mended; a result that is dropped cannot.
            raise UnavailableError(str(error), status=error.status) from None
        raise
