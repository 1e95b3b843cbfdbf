"""Processes of steps and watchers that outlived the worker that started them."""

import socket
from collections.abc import Sequence

from agent.core.state_machine import STEP_ENDED
from agent.steps.process import processes
from agent.store.db.database import Connection
from agent.store.engine import reads

GRACE_SECONDS = 5.0


def end(
    connection: Connection, owners: Sequence[str], grace_seconds: float = GRACE_SECONDS
) -> list[int]:
    """End the process groups that attempts left running on this machine; return their ids.

    These are the recorded processes of `owners`, which must be dead, every process that is marked
    with a step of this database and whose agent is gone, and such programs of watchers. The mark also finds processes that were
    never recorded, or whose steps were taken over long ago.
    """
    recorded = reads.processes_of(connection, owners, socket.gethostname())
    groups = {process_id for process_id, at in recorded if processes.is_left_over(process_id, at)}
    orphans = processes.orphans()
    attempts = reads.step_attempts(connection, {orphan.step_id for orphan in orphans})
    for orphan in orphans:
        if orphan.step_id in attempts:
            status, attempt = attempts[orphan.step_id]
            # The attempt that ended its step left its processes running on purpose.
            if status not in STEP_ENDED or attempt != orphan.attempt:
                groups.add(orphan.group)
    groups |= processes.watcher_orphans()
    processes.end_groups(groups, grace_seconds)
    return sorted(groups)
