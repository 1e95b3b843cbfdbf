"""The startup pass, before any loop starts: it repairs the state after a crash, and executes no step.

In this order: waits that began while the clock ran ahead, approvals that were decided or have expired (their steps go on), results that an earlier
process could not record, orphaned processes, steps of dead workers, children without parents. A step
with a recorded result takes it; without one its outcome is unknown, never success.

`recover_triggers` follows in a daemon, once the workflow files are known: schedules catch up what they
missed, watchers continue from their cursors.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from agent.approvals import expiry
from agent.config.models import BudgetSettings
from agent.core.clock import CLOCK_ERROR_US, Clock
from agent.steps.attempt.services import Limits
from agent.store.db.database import Connection, Database
from agent.store.engine import reads, trigger_rows, workers
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rescue import orphan_processes, peer_takeover, spilled_results
from agent.tasks.rescue.rescue_steps import take_over
from agent.tasks.rules import clock_correction
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers.schedules.passes import SchedulePass, run_schedules_now

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Recovered:
    """The results of the pass, for the log."""

    steps: int = 0
    """Steps of dead workers, put back to pending."""
    calls: int = 0
    """Results that an earlier process could not record."""
    processes: list[int] = field(default_factory=list)
    """Orphaned processes that were ended."""
    children: int = 0
    """Child tasks without a parent, cancelled."""
    approvals: int = 0
    """Approvals that were decided, expired or due for a reminder while no agent ran."""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to repair."""
        return not (self.steps or self.calls or self.processes or self.children or self.approvals)


def recover(database: Database, clock: Clock, limits: Limits | None = None) -> Recovered:
    """Repair the state that dead workers left.

    On SQLite the caller holds the daemon's lock, so every worker on record is dead. On PostgreSQL
    others may be alive, and running workers decide which are dead; this pass only takes over from
    workers that were already declared dead.
    """
    recovered = Recovered()
    correct_waits(database, clock)
    recovered.approvals = expiry.check_due(database, clock).total()
    graphs = GraphCache()
    with database.connect("writer") as connection:
        recovered.calls = spilled_results.replay(database, connection, graphs)
        if database.is_sqlite:
            _declare_all_dead(connection, clock)
        owners = workers.dead_owners(connection)
        recovered.processes = orphan_processes.end(connection, owners)
        recovered.steps = take_over(
            connection, graphs, clock, owners, is_process_gone=database.is_sqlite, limits=limits
        )
    recovered.children = peer_takeover.cancel_orphans(database, Operator(database, clock))
    if not recovered.is_empty:
        log.info(
            "tasks.recovered",
            steps=recovered.steps,
            calls=recovered.calls,
            processes=len(recovered.processes),
            children=recovered.children,
            approvals=recovered.approvals,
        )
    return recovered


def correct_waits(database: Database, clock: Clock) -> None:
    """Correct the waits that began while the clock ran ahead; also after the clock was set back."""
    with database.connect("reader") as connection:
        task_ids = reads.begun_after(connection, clock.now() + CLOCK_ERROR_US)
    operator = Operator(database, clock)
    for task_id in task_ids:
        # One unreadable task must not stop the start.
        with suppress(NotFoundError, RefusedError), operator.changing(task_id) as (tx, locked):
            clock_correction.correct(tx, locked)
    if task_ids:
        log.warning("waits.corrected", tasks=task_ids)


def recover_triggers(
    database: Database,
    clock: Clock,
    budget: BudgetSettings,
    schedules: SchedulePass | None = None,
) -> Counter[str]:
    """Repair the times of schedules and the leases of watchers, before any of them fires.

    Schedules: a next time that a wrong clock has set too late is computed again, and instants that
    passed while no agent ran get their fate by `catch_up`. Watchers: polls that a dead daemon had begun
    become free; their cursors and the items seen are on record.

    A daemon passes its own `schedules`, so that its first pass need not repeat this one.
    """
    operator = Operator(database, clock)
    schedule_pass = schedules or SchedulePass(database, clock, budget)
    corrections = schedule_pass.plan_corrections()
    for plan in corrections:
        operator.fire(plan)
    fates = run_schedules_now(schedule_pass, operator)
    if schedules is None:
        schedule_pass.close()
    # Most starts find nothing to put in order: that is no news for a terminal.
    report = log.info if corrections or any(fates.values()) else log.debug
    report("schedules.recovered", corrected=len(corrections), **fates)
    with database.connect("writer") as connection, connection.transaction():
        freed = trigger_rows.free_leases(connection, None if database.is_sqlite else clock.now())
        watchers, cursors, seen = trigger_rows.watcher_counts(connection)
    report = log.info if watchers else log.debug
    report("watchers.recovered", watchers=watchers, cursors=cursors, seen=seen, freed=freed)
    return fates


def _declare_all_dead(connection: Connection, clock: Clock) -> None:
    for worker_id, *_ in workers.live_workers(connection):
        with connection.transaction():
            workers.retire(connection, worker_id, clock.now(), "worker.died")
