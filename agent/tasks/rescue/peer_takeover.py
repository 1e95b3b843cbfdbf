"""What running workers do about dead workers and abandoned children.

`watch` is the periodic pass over the other workers. The functions `…_soon` run what must follow a
commit in a transaction of its own: cancel children, pause families.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from agent.core.backoff import Backoff
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database, StoreError
from agent.store.engine import task_rows, workers
from agent.tasks.commit.committer import Committer
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rescue import orphan_processes
from agent.tasks.rescue.failure_detector import FailureDetector
from agent.tasks.rescue.rescue_steps import take_over
from agent.tasks.state.locked_task import FamilyPause

log = structlog.get_logger(__name__)

# The loop keeps only weak references to its tasks.
_pending: set["asyncio.Task[None]"] = set()
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0


class WatchResult(NamedTuple):
    """What one pass over the other workers did."""

    steps: int
    """How many steps were taken over from dead workers."""
    deaths: int
    """How many workers were declared dead."""


def watch(
    committer: Committer,
    detector: FailureDetector,
    monotonic: float,
    limits: Limits | None = None,
) -> WatchResult:
    """Declare silent workers dead and take over the steps of dead ones."""
    connection, clock = committer.connection, committer.clock
    if committer.database.keep_clock(connection):
        log.warning("clock.set", to="the database's")
    others = [
        (row[0], row[1])
        for row in workers.live_workers(connection)
        if row[0] != committer.worker_id
    ]
    deaths = 0
    for worker_id, tx_number in detector.observe(others, monotonic):
        with connection.transaction():
            if workers.declare_dead(connection, worker_id, tx_number, clock.now()):
                log.warning("worker.died", worker=worker_id)
                deaths += 1
    owners = workers.dead_owners(connection)
    if owners:
        # Processes of silent workers that still exist are left alone: they may end by themselves.
        # Commits wait meanwhile, and our own heartbeat with them, so the grace is short.
        orphan_processes.end(
            connection, (), min(orphan_processes.GRACE_SECONDS, detector.lease_seconds / 6)
        )
    steps = take_over(
        connection, committer.graphs, clock, owners, is_process_gone=False, limits=limits
    )
    return WatchResult(steps, deaths)


def rescue_own(committer: Committer) -> int:
    """Rescue the steps that a retired worker could not end in time; return how many.

    The caller has made sure that nothing the worker began is still under way.
    """
    return take_over(
        committer.connection,
        committer.graphs,
        committer.clock,
        [committer.worker_id],
        is_process_gone=True,
        has_crashed=False,
    )


def cancel_soon(committer: Committer, task_id: str, then: Callable[[], None]) -> None:
    """Cancel a child whose parent stopped waiting for it."""
    operator = Operator(committer.database, committer.clock)
    reason = "its parent stopped waiting for it"
    _do_soon("child.not_canceled", lambda: operator.cancel(task_id, reason), then)


def cancel_superseded(committer: Committer, task_id: str, then: Callable[[], None]) -> None:
    """Cancel a task that a later run of its trigger replaces."""
    operator = Operator(committer.database, committer.clock)
    reason = "a later run of its schedule replaces it"
    _do_soon("task.not_superseded", lambda: operator.cancel(task_id, reason), then)


def cancel_orphans(database: Database, operator: Operator) -> int:
    """Cancel the children of ended parents that no live worker will cancel; return how many.

    Do not call it in the database's thread: the query may read many tasks.
    """
    with database.connect("reader") as connection:
        abandoned = task_rows.orphans(connection)
    for task_id in abandoned:
        # The child may have ended since.
        with suppress(NotFoundError, RefusedError):
            operator.cancel(task_id, "its parent has ended")
    return len(abandoned)


def cancel_orphans_soon(committer: Committer, then: Callable[[], None]) -> None:
    """Cancel the children that dead workers were about to cancel."""
    operator = Operator(committer.database, committer.clock)
    _do_soon("children.not_canceled", lambda: cancel_orphans(committer.database, operator), then)


def pause_soon(committer: Committer, pause: FamilyPause, then: Callable[[], None]) -> None:
    """Pause the task whose budget is exhausted, and all its descendants."""
    operator = Operator(committer.database, committer.clock)
    _do_soon("family.not_paused", lambda: operator.pause_family(pause), then)


def _do_soon(failure: str, work: Callable[[], object], then: Callable[[], None]) -> None:
    """Run `work` in a thread and retry it until it is done: it is recorded nowhere else."""

    async def do() -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                # Not in the database's thread: an operator waits for locks; commits must not.
                await asyncio.to_thread(work)
            except StoreError as error:
                log.warning(failure, error=error.message)
            except (NotFoundError, RefusedError):
                # Already done, or no longer possible.
                break
            except Exception:
                log.exception(failure)
                break
            else:
                break
            await asyncio.sleep(backoff.next_seconds())
        then()

    task = asyncio.get_running_loop().create_task(do())
    _pending.add(task)
    task.add_done_callback(_pending.discard)
