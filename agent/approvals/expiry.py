"""The approval loop: expiry, reminders, and decisions whose step was not woken.

The wake time of a running task does all this on time. The loop is the safety net. It alone checks
paused tasks: their questions expire too, which takes effect when they resume.
"""

import asyncio
from collections import Counter

import structlog

from agent.core.clock import SECOND, Clock
from agent.store.db.database import Database
from agent.store.engine import approvals as store
from agent.store.engine import reads
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules import approvals
from agent.tasks.state.rows import STEP_COLUMNS, StepRow

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 1000
OVERLAP_US = 60 * SECOND
"""Decisions of the last minute before the last pass are checked again: clocks differ."""


def look(database: Database, clock: Clock, since: int = 0) -> Counter[str]:
    """Do what is due for every open question; count what was done.

    `since` bounds the search for steps that still wait for a decided question: 0 at a start, the
    last pass afterwards.
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
                    if (what := approvals.check(tx, locked, step)) is not None:
                        done[what] += 1
        except NotFoundError:
            continue
        except (RefusedError, ValueError) as error:
            # One task that cannot be read must not stop the others.
            log.error("task.unreadable", task=task_id, error=str(error))
    return done


async def watch(database: Database, clock: Clock, loop_seconds: float) -> None:
    """Check again and again, until cancelled."""
    since = 0
    while True:
        started = clock.now()
        try:
            done = await asyncio.to_thread(look, database, clock, since)
        except Exception as error:
            # The next pass retries; the tasks' own wake times do the work meanwhile.
            log.warning("approvals could not be looked at", error=str(error))
        else:
            since = max(0, started - OVERLAP_US)
            if done:
                log.info("approvals", **done)
        await asyncio.sleep(loop_seconds)
