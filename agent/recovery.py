"""The startup pass, before any loop starts: what a crash left, put in order; it executes nothing.

In this order: questions that wait for a person (one that was decided or has expired lets its step go
on), results that an earlier process could not record, orphaned processes, steps whose worker is
gone, children without parents, schedules and watchers (none yet: their place). A step with a result
on record takes it; without one its outcome is unknown, never success.
"""

from dataclasses import dataclass, field

import structlog

from agent.approvals import expiry
from agent.core.clock import Clock
from agent.store.db.database import Connection, Database
from agent.store.engine import workers
from agent.tasks.operator.operator import Operator
from agent.tasks.rescue import maintenance, orphan_processes, rescue_steps, spilled_results
from agent.tasks.state.graph_cache import GraphCache

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Recovered:
    """What the pass found and did, for the log and the person who reads it."""

    steps: int = 0
    calls: int = 0
    processes: list[int] = field(default_factory=list)
    children: int = 0
    approvals: int = 0
    """Questions that were decided, expired or due for a reminder while nobody looked."""

    @property
    def is_nothing(self) -> bool:
        """Whether everything was in order."""
        return not (self.steps or self.calls or self.processes or self.children or self.approvals)


def recover(database: Database, clock: Clock) -> Recovered:
    """Put in order what dead workers left.

    The caller holds the daemon's lock on SQLite: every worker on record is dead then. On PostgreSQL
    others may be alive; their silence is measured by running workers, and only what workers already
    declared dead still hold is taken here.
    """
    recovered = Recovered()
    recovered.approvals = expiry.look(database, clock).total()
    graphs = GraphCache()
    with database.connect("writer") as connection:
        recovered.calls = spilled_results.replay(database, connection, graphs)
        if database.is_sqlite:
            _bury(connection, clock)
        owners = workers.dead_owners(connection)
        recovered.processes = orphan_processes.end(connection, owners)
        for owner in owners:
            recovered.steps += _take_over(connection, graphs, owner, clock, database.is_sqlite)
    recovered.children = maintenance.cancel_orphans(database, Operator(database, clock))
    if not recovered.is_nothing:
        log.info(
            "recovered",
            steps=recovered.steps,
            calls=recovered.calls,
            processes=len(recovered.processes),
            children=recovered.children,
            approvals=recovered.approvals,
        )
    return recovered


def _bury(connection: Connection, clock: Clock) -> None:
    for worker_id, *_ in workers.living(connection):
        with connection.transaction():
            workers.retire(connection, worker_id, clock.now(), "worker.died")


def _take_over(
    connection: Connection, graphs: GraphCache, owner: str, clock: Clock, is_process_gone: bool
) -> int:
    total = 0
    while True:
        with connection.transaction():
            recovered, _ = rescue_steps.take_over(
                connection, graphs, owner, clock.now(), is_process_gone=is_process_gone
            )
        total += recovered
        if recovered == 0:
            return total
