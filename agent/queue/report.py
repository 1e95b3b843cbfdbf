"""Delivers the end of a handler: until the agent has it, or certainly refuses it."""

import logging
from collections.abc import Callable
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


def deliver(
    connection: Connection, lease: Lease, outcome: Outcome, wait: Callable[[float], bool]
) -> bool:
    """Report an outcome; return False if it was given up before the agent answered.

    `wait` sleeps between two tries, and returns True to give up.
    """

    def notify(problem: UnavailableError, failures: int) -> None:
        if failures == 1 or failures % 32 == 0:
            log.warning("the result of %s waits for the agent: %s", lease.describe(), problem)

    try:
        answer: Document = connection.repeat(
            lambda: _send(lease, outcome), wait=wait, notify=notify
        )
    except LeaseLostError as problem:
        if outcome.verb != "release":
            log.warning("the agent refuses %s of %s: %s", outcome.verb, lease.describe(), problem)
        return True
    except UnavailableError as problem:
        log.error("%s of %s was not delivered: %s", outcome.verb, lease.describe(), problem)
        return False
    except QueueError as problem:
        if outcome.verb == "complete" and problem.status in _BAD_CONTENT:
            return deliver(connection, lease, outcomes.bad_output(str(problem)), wait)
        log.error("the agent refuses %s of %s: %s", outcome.verb, lease.describe(), problem)
        return False
    if answer.get("is_late"):
        log.info("%s of %s came late, and was recorded", outcome.verb, lease.describe())
    return True


def _send(lease: Lease, outcome: Outcome) -> Document:
    try:
        if lease.has_log and lease.end_reason is None:
            lease.flush_log()
        return lease.send(outcome.verb, outcome.document)
    except QueueError as problem:
        if problem.status in _NOT_ALLOWED:
            # A token can be mended; a result that is dropped cannot.
            raise UnavailableError(str(problem), status=problem.status) from None
        raise
