"""The loop over open approvals: expiry, reminders, and steps that missed a decision.

A running task's own wake time does all this on time. The loop is the safety net. Only the loop serves
paused tasks: their approvals expire too, and take effect when the task resumes.
"""

import asyncio
from collections import Counter

import structlog

from agent.core.clock import SECOND, Clock
from agent.store.db.database import Database
from agent.store.engine import approval_rows as store
from agent.store.engine import reads
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules import approvals
from agent.tasks.state.rows import STEP_COLUMNS, StepRow

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 1000
OVERLAP_US = 60 * SECOND
"""Decisions of the last minute before the last check are checked again: clocks differ."""


def check_due(database: Database, clock: Clock, since: int = 0) -> Counter[str]:
    """Expire, remind and wake what is due; return how often each was done.

    `since` bounds the search for steps that still wait on a decided approval: 0 at a start, then the
    last check.
    """
    with database.connect("reader") as connection:
        due = store.due(connection, clock.now(), MOST_AT_ONCE)
        due += store.decided_and_waiting(connection, since)
    done: Counter[str] = Counter()
    operator = Operator(database, clock)
    for task_id, step_id in dict.fromkeys((str(task), str(step)) for task, step in due):
        try:
            with operator.changing(task_id) as (tx, locked):
                for values in reads.steps_by_id(tx, STEP_COLUMNS, [step_id]):
                    step = locked.add(StepRow.read(values))
                    if (action := approvals.check(tx, locked, step)) is not None:
                        done[action] += 1
        except NotFoundError:
            continue
        except (RefusedError, ValueError) as error:
            # One unreadable task must not stop the others, or the agent's start.
            log.error("task.unreadable", task=task_id, error=str(error))
    return done


async def watch(database: Database, clock: Clock, loop_seconds: float) -> None:
    """Check every `loop_seconds` until cancelled."""
    since = 0
    while True:
        started = clock.now()
        try:
            done = await asyncio.to_thread(check_due, database, clock, since)
        except Exception as error:
            # The database may come back; meanwhile the tasks' own wake times do the work.
            log.warning("approvals.not_checked", error=str(error))
        else:
            since = max(0, started - OVERLAP_US)
            if done:
                log.info("approvals", **done)
        await asyncio.sleep(loop_seconds)
