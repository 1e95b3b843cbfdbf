"""The check of open approvals: expiry, reminders, and steps that missed a decision.

A running task's own wake time does all this on time. The check, a periodic job of the daemon, is the
safety net. Only it serves paused tasks: their approvals expire too, and take effect when the task resumes.
"""

from collections import Counter
from collections.abc import Iterator

import structlog

from agent.core.clock import SECOND, Clock
from agent.store.db.database import Connection, Database
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
        due = [
            *_due(connection, clock.now()),
            *store.decided_and_waiting(connection, since),
        ]
    counts: Counter[str] = Counter()
    operator = Operator(database, clock)
    for task_id, step_id in dict.fromkeys((str(task), str(step)) for task, step in due):
        try:
            with operator.changing(task_id) as (tx, locked):
                for values in reads.steps_by_id(tx, STEP_COLUMNS, [step_id]):
                    step = locked.add(StepRow.read(values))
                    if (action := approvals.check(tx, locked, step)) is not None:
                        counts[action] += 1
        except NotFoundError:
            continue
        except (RefusedError, ValueError) as error:
            # One unreadable task must not stop the others, or the agent's start.
            log.error("task.unreadable", task=task_id, error=str(error))
    return counts


def _due(connection: Connection, now: int) -> Iterator[tuple[str, str]]:
    """Yield (task id, step id) of all due approvals: those of unreadable tasks stay due for ever."""
    after: str | None = ""
    while after is not None:
        rows = store.due(connection, now, MOST_AT_ONCE, after)
        yield from ((task_id, step_id) for task_id, step_id, _ in rows)
        after = rows[-1][2] if len(rows) == MOST_AT_ONCE else None


class ApprovalCheck:
    """The periodic check of a daemon, which looks for decided approvals only since the last one."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._since = 0

    def run(self) -> None:
        """Check once. After a failure the next check covers the same time again."""
        started = self._clock.now()
        # The clock may have been set back since the last check.
        since = min(self._since, max(0, started - OVERLAP_US))
        counts = check_due(self._database, self._clock, since)
        self._since = max(0, started - OVERLAP_US)
        if counts:
            log.info("approvals.checked", **counts)
