"""What a worker does after a failure that reaches its loop: pause, take a new identity, or end.

`agent.tasks.commit.faults` decides which.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from agent.core.backoff import Backoff
from agent.steps.attempt.outcome_rules import DECLARED_DEAD
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.tasks.commit.faults import Phase, Response, response_to
from agent.tasks.worker.batch_sender import CommitFailure

if TYPE_CHECKING:
    from agent.tasks.worker.worker import Worker

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0


async def enroll(worker: "Worker") -> None:
    """Take an identity, with retries while the database cannot be used."""
    backoff = Backoff(FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
    while True:
        try:
            await worker.database_thread.run(worker.committer.enroll)
        except StoreError as error:
            if response_to(Phase.ENROLL, error) is Response.STOP or worker.is_stopping:
                raise
            log.warning("worker.cannot_start_yet", error=error.message)
            await asyncio.sleep(backoff.next_seconds())
        else:
            worker.last_commit = worker.clock.monotonic()
            return


async def recover(worker: "Worker", error: CommitFailure) -> bool:
    """Apply the response to a failed commit; return whether that took a while."""
    response = response_to(Phase.COMMIT, error)
    if response is Response.ENROLL:
        await _enroll_again(worker)
    elif isinstance(error, StoreError):
        await retry_later(worker, Phase.COMMIT, error)
    return response is not Response.RESEND


async def retry_later(worker: "Worker", phase: Phase, error: StoreError) -> None:
    """Pause before the next try; raise an error that cannot get better."""
    if response_to(phase, error) is Response.STOP:
        raise error
    is_busy = error.fault is Fault.BUSY
    if not is_busy:
        worker.answering.note_outage()
    if worker.health.report("database", error.message) or is_busy:
        log.warning("commit.retried", fault=str(error.fault), error=error.message)
    await asyncio.sleep(FIRST_PAUSE_SECONDS if is_busy else PAUSE_SECONDS)


async def _enroll_again(worker: "Worker") -> None:
    """Take a new identity after being declared dead: every claim of the old one is gone."""
    log.warning("worker.fenced", worker=worker.worker_id)
    worker.attempts.stop_all(DECLARED_DEAD)
    worker.journal.refuse_all()
    worker.slots.reset()
    if worker.database.is_sqlite:
        await worker.database_thread.run(worker.committer.session.check_row)
    # From now on this worker checks its peers: the steps of its old identity are taken over.
    worker.peers.expect_peers()
    # The attempts complete under the old claims, which no longer hold.
    await enroll(worker)
    # Only now no step waits under an old claim: a download that fails meanwhile reports such a delay, which
    # is refused, and the delay of the new claim would not be reported.
    worker.external.reset()
    worker.on_other_commit()
