"""What follows when a worker, or a task's parent, is no more.

The dead's steps go to the living, and children whose parents stopped waiting are cancelled.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from agent.core.backoff import Backoff
from agent.store.db.database import Database, StoreError
from agent.store.engine import reads, workers
from agent.tasks.commit.committer import Committer
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rescue import orphan_processes, rescue_steps
from agent.tasks.rescue.failure_detector import FailureDetector
from agent.tasks.state.locked_task import FamilyPause

log = structlog.get_logger(__name__)

# The loop keeps only weak references to its tasks.
_pending: set["asyncio.Task[None]"] = set()
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0


class Watched(NamedTuple):
    """What a look at the other workers came to."""

    steps: int
    """How many were taken over from the dead."""
    deaths: int
    """How many workers were declared dead."""


def watch(committer: Committer, liveness: FailureDetector, monotonic: float) -> Watched:
    """Declare silent workers dead and take over what dead ones hold."""
    connection = committer.connection
    if committer.database.keep_clock(connection):
        log.warning("clock.set", to="the database's")
    others = [
        (row[0], row[1]) for row in workers.living(connection) if row[0] != committer.worker_id
    ]
    deaths = 0
    for worker_id, turn in liveness.observe(others, monotonic):
        with connection.transaction():
            if workers.declare_dead(connection, worker_id, turn, committer.clock.now()):
                log.warning("worker.died", worker=worker_id)
                deaths += 1
    owners = workers.dead_owners(connection)
    if owners:
        # Of the silent only those that are gone: what the others run may still come to its end.
        # Turns wait meanwhile, and our own heartbeat with them.
        orphan_processes.end(
            connection, (), min(orphan_processes.GRACE_SECONDS, liveness.lease_seconds / 6)
        )
    steps = sum(_take_over(committer, owner, is_process_gone=False) for owner in owners)
    return Watched(steps, deaths)


def hand_over(committer: Committer) -> int:
    """Put back what a worker that has retired could not end in time; return how many steps.

    The caller knows that nothing it began goes on by itself.
    """
    return _take_over(committer, committer.worker_id, is_process_gone=True, has_crashed=False)


def _take_over(
    committer: Committer, owner: str, *, is_process_gone: bool, has_crashed: bool = True
) -> int:
    connection, taken = committer.connection, 0
    while True:
        with connection.transaction():
            recovered, locked = rescue_steps.take_over(
                connection,
                committer.graphs,
                owner,
                committer.clock.now(),
                is_process_gone=is_process_gone,
                has_crashed=has_crashed,
            )
        taken += recovered
        if recovered == 0 or locked > 0:
            return taken


def cancel_soon(committer: Committer, task_id: str, then: Callable[[], None]) -> None:
    """Cancel a child that nobody waits for, in a transaction of its own after this turn."""
    operator = Operator(committer.database, committer.clock)
    reason = "its parent stopped waiting for it"
    _do_soon("child.not_cancelled", lambda: operator.cancel(task_id, reason), then)


def cancel_orphans(database: Database, operator: Operator) -> int:
    """Cancel the children that nobody waits for, should whoever was to do so be gone; say how many.

    Not in the database's thread: there may be many tasks to look through.
    """
    with database.connect("reader") as connection:
        abandoned = reads.orphans(connection)
    for task_id in abandoned:
        # It may have ended since it was found.
        with suppress(NotFoundError, RefusedError):
            operator.cancel(task_id, "its parent has ended")
    return len(abandoned)


def cancel_orphans_soon(committer: Committer, then: Callable[[], None]) -> None:
    """Cancel what workers that have died were about to cancel."""
    operator = Operator(committer.database, committer.clock)
    _do_soon("children.not_cancelled", lambda: cancel_orphans(committer.database, operator), then)


def pause_soon(committer: Committer, pause: FamilyPause, then: Callable[[], None]) -> None:
    """Pause the family of a task whose budget is used up, in transactions of their own."""
    operator = Operator(committer.database, committer.clock)
    _do_soon("family.not_paused", lambda: operator.pause_family(pause), then)


def _do_soon(failure: str, work: Callable[[], object], then: Callable[[], None]) -> None:
    """Do what follows from a turn, and again until it is done: nobody else knows of it."""

    async def do() -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                # Not in the database's thread: an operator waits for locks, and turns must not.
                await asyncio.to_thread(work)
            except StoreError as error:
                log.warning(failure, error=error.message)
            except (NotFoundError, RefusedError):
                # It is over already.
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
