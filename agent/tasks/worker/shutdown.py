"""The end of a worker: its attempts get their grace, everything is committed, and it retires."""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.tasks.commit.batch import Batch, CommitResult
from agent.tasks.commit.faults import DroppedError, FencedError
from agent.tasks.rescue import peer_takeover, spilled_results
from agent.tasks.worker import results

if TYPE_CHECKING:
    from agent.tasks.worker.worker import Worker

log = structlog.get_logger(__name__)

RETRY_LOCKED_SECONDS: Final = 0.03
_LAST_SECONDS: Final = 5.0
"""For cancelled attempts to end their processes, and for locks that other processes hold."""


async def shut_down(worker: "Worker") -> None:
    """Let attempts end, commit their outcomes, and retire."""
    await _end_attempts(worker)
    worker.external.close()
    try:
        await _commit_rest(worker)
        await worker.database_thread.run(worker.committer.session.retire)
        has_claims = worker.attempts or worker.committer.pending_attempts or worker.external.claims
        if has_claims and not worker.attempts.are_out_of_control:
            await worker.database_thread.run(lambda: peer_takeover.rescue_own(worker.committer))
    except (StoreError, FencedError, DroppedError) as error:
        log.warning("worker.left_unsettled", error=str(error))
        spill_results(worker)
    await worker.services.aclose()
    await worker.database_thread.run(worker.committer.session.disconnect)


async def abandon(worker: "Worker") -> None:
    """End a worker whose database cannot be used any more."""
    worker.external.close()
    spill_results(worker)
    await worker.database_thread.run(worker.committer.session.disconnect)


def spill_results(worker: "Worker") -> None:
    """Write the results of calls to a file: nothing else has them."""
    spilled_results.write_file(worker.database, worker.outbox.take_all_entries())


async def _end_attempts(worker: "Worker") -> None:
    """Ask attempts to stop, commit while they end, and cancel those that take too long."""
    clock, attempts = worker.clock, worker.attempts
    deadline = clock.monotonic() + worker.settings.shutdown_seconds
    attempts.stop_all("shutdown")
    while attempts and clock.monotonic() < deadline:
        if worker.external.is_stranded(len(attempts)):
            break
        if worker.outbox.is_empty:
            await worker.sleep(min(0.5, max(deadline - clock.monotonic(), 0.01)))
        else:
            await worker.commit()
    unfinished = [attempt.task for attempt in attempts if attempt.task is not None]
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished, timeout=_LAST_SECONDS)


async def _commit_rest(worker: "Worker") -> None:
    """Commit everything that is queued; wait a while for tasks that other processes hold."""
    clock, outbox = worker.clock, worker.outbox
    deadline = clock.monotonic() + _LAST_SECONDS
    while not outbox.is_empty or outbox.has_logs:
        batch = outbox.take()
        try:
            committed = await _commit(worker, batch)
        except (StoreError, FencedError, DroppedError) as error:
            outbox.requeue(batch)
            is_busy = isinstance(error, StoreError) and error.fault is Fault.BUSY
            if not is_busy or clock.monotonic() > deadline:
                raise
            await asyncio.sleep(RETRY_LOCKED_SECONDS)
            continue
        worker.note_commit()
        results.act_on(worker, committed)
        if committed.rest is not None:
            outbox.requeue(committed.rest)
        if outbox.carry(committed.result):
            await asyncio.sleep(RETRY_LOCKED_SECONDS)


async def _commit(worker: "Worker", batch: Batch) -> CommitResult:
    capacity = worker.slots.capacity(batch, is_stopping=True)
    return await worker.database_thread.run(lambda: worker.committer.commit(batch, capacity))
