"""Processes of steps that outlived the worker that ran them."""

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
    """End what attempts left running on this machine, each process with its group.

    That is what is on record for these workers, who must be dead; and whatever carries the mark of
    a step of this database and of an agent that has gone, should nothing of it be on record, or its
    step have long been taken over.
    """
    recorded = reads.processes_of(connection, owners, socket.gethostname())
    groups = {process_id for process_id, at in recorded if processes.is_left_over(process_id, at)}
    found = processes.orphans()
    known = reads.step_attempts(connection, {orphan.step_id for orphan in found})
    for orphan in found:
        if orphan.step_id in known:
            status, attempt = known[orphan.step_id]
            # What the attempt that ended its step left running was left on purpose.
            if status not in STEP_ENDED or attempt != orphan.attempt:
                groups.add(orphan.group)
    processes.end_groups(groups, grace_seconds)
    return sorted(groups)
