"""What follows when a worker, or a task's parent, is no more.

The dead's steps go to the living, and children whose parents stopped waiting are cancelled.
"""

import asyncio
from collections.abc import Callable

import structlog

from agent.store import workers
from agent.tasks import allowance, orphans, takeover
from agent.tasks.delivery import Delivery
from agent.tasks.liveness import Liveness
from agent.tasks.operator import Operator
from agent.tasks.unit import FamilyPause

log = structlog.get_logger(__name__)

# The loop keeps only weak references to its tasks.
_pending: set["asyncio.Task[None]"] = set()


def watch(delivery: Delivery, liveness: Liveness, monotonic: float) -> int:
    """Declare silent workers dead and take over what dead ones hold; return how many steps."""
    connection = delivery.connection
    if delivery.database.keep_clock(connection):
        log.warning("clock.set", to="the database's")
    others = [
        (row[0], row[1]) for row in workers.living(connection) if row[0] != delivery.worker_id
    ]
    for worker_id, turn in liveness.observe(others, monotonic):
        with connection.transaction():
            if workers.declare_dead(connection, worker_id, turn, delivery.clock.now()):
                log.warning("worker.died", worker=worker_id)
    owners = workers.dead_owners(connection)
    if owners:
        # Of the silent only those that are gone: what the others run may still come to its end.
        # Turns wait meanwhile, and our own heartbeat with them.
        orphans.end(connection, (), min(orphans.GRACE_SECONDS, liveness.lease_seconds / 6))
    return sum(_take_over(delivery, owner, is_process_gone=False) for owner in owners)


def hand_over(delivery: Delivery) -> int:
    """Put back what a worker that has retired could not end in time; return how many steps.

    The caller knows that nothing it began goes on by itself.
    """
    return _take_over(delivery, delivery.worker_id, is_process_gone=True, has_crashed=False)


def _take_over(
    delivery: Delivery, owner: str, *, is_process_gone: bool, has_crashed: bool = True
) -> int:
    connection, taken = delivery.connection, 0
    while True:
        with connection.transaction():
            recovered, locked = takeover.take_over(
                connection,
                delivery.graphs,
                owner,
                delivery.clock.now(),
                is_process_gone=is_process_gone,
                has_crashed=has_crashed,
            )
        taken += recovered
        if recovered == 0 or locked > 0:
            return taken


def cancel_soon(delivery: Delivery, task_id: str, then: Callable[[], None]) -> None:
    """Cancel a child that nobody waits for, in a transaction of its own after this turn."""
    operator = Operator(delivery.database, delivery.clock)
    reason = "its parent stopped waiting for it"
    _do_soon("child.not_cancelled", lambda: operator.cancel(task_id, reason), then)


def pause_soon(delivery: Delivery, pause: FamilyPause, then: Callable[[], None]) -> None:
    """Pause the family of a task whose budget is used up, in transactions of their own."""
    operator = Operator(delivery.database, delivery.clock)
    _do_soon("family.not_paused", lambda: allowance.pause_family(operator, pause), then)


def _do_soon(failure: str, work: Callable[[], object], then: Callable[[], None]) -> None:
    async def do() -> None:
        try:
            # Not in the database's thread: an operator waits for locks, and turns must not.
            await asyncio.to_thread(work)
        except Exception as error:
            log.warning(failure, error=str(error))
        then()

    task = asyncio.get_running_loop().create_task(do())
    _pending.add(task)
    task.add_done_callback(_pending.discard)
