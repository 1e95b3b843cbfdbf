"""What the routes of queues, leases and dead letters return."""

from typing import Any, Literal

from pydantic import Field

from agent.server.examples import work as work_examples
from agent.server.schemas.base import Instant, ResponseDocument, with_example


class LeaseDocument(ResponseDocument):
    """A lease, without its id: only its worker knows that."""

    id: str = Field(description="names the work")
    task: str
    step: str
    parallel_index: int | None
    worker: str
    state: Literal["leased", "running"]
    attempt: int
    leased_at: Instant
    started_at: Instant | None
    expires_at: Instant


class ExpiredLease(ResponseDocument):
    """A lease that has expired; its attempt is over."""

    id: str = Field(description="names the work")
    task: str
    queue: str
    step: str
    parallel_index: int | None
    worker: str
    attempt: int


class KeptLease(ExpiredLease):
    """A lease that is kept although its own time is over."""

    reason: str
    expires_at: Instant | None = Field(description="when it is checked again, if that is known")


class CheckedLeases(ResponseDocument):
    """The leases whose own time was over."""

    model_config = with_example(work_examples.CHECKED_LEASES)

    expired: list[ExpiredLease]
    kept: list[KeptLease]
    has_more: bool = Field(description="more leases are over than one request checks: send another")


class QueueDocument(ResponseDocument):
    """A queue with open work or dead letters."""

    queue: str
    queued: int
    leased: int
    running: int
    asked: int = Field(description="whose workers wait for a person")
    dead: int = Field(description="dead letters")
    oldest_at: Instant | None = Field(description="when the oldest queued work was queued")
    claimants: list[str] = Field(description="the workers that have leases")
    leases: list[LeaseDocument]


class QueueList(ResponseDocument):
    """All queues, by name."""

    model_config = with_example(work_examples.QUEUES)

    queues: list[QueueDocument]


class DeadLetter(ResponseDocument):
    """Work whose step has failed, and whose task was not retried."""

    id: str
    task: str
    workflow: str
    step: str
    parallel_index: int | None
    queue: str
    attempts: int
    error: dict[str, Any] | None
    failed_at: Instant


class DeadLetterPage(ResponseDocument):
    """A page of dead letters, the newest first."""

    model_config = with_example(work_examples.DEAD_LETTERS)

    dead: list[DeadLetter]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")


class WorkCommand(ResponseDocument):
    """The result of an operator's command."""

    model_config = with_example(work_examples.WORK_COMMAND)

    changed: bool
    message: str
    task_id: str
