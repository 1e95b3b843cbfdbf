"""The cost of a commit that claims, by the number of waiting tasks.

Half of them are due and wait for a slot, half wait for a time to come. They are copies of one task
that the engine made, so that they are as it would have made them.
"""

import time
from typing import Any, Final

from agent.core.clock import SECOND
from agent.store.db.database import Database
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import Committer
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from bench import copies as copies_of
from bench import definitions, process, usage

_SLOTS: Final = 10
_COMMITS: Final = 40
_WARM_UP: Final = 5
_LATER_US: Final = 86_400 * SECOND


def main(databases: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Fill migrated databases, each with its number of tasks, then measure commits.

    The databases alternate too, so that other load on the machine affects all of them alike.
    """
    committers = [_filled(url, waiting) for url, waiting in databases]
    elapsed: list[list[float]] = [[] for _ in databases]
    for _ in range(_WARM_UP + _COMMITS):
        for committer, times in zip(committers, elapsed, strict=True):
            start = time.perf_counter()
            delivered = committer.commit(Batch(), _room(_SLOTS))
            times.append(time.perf_counter() - start)
            assert len(delivered.attempts) == _SLOTS
    return [{"p50_ms": usage.p50_ms(times[_WARM_UP:]), "claims": _SLOTS} for times in elapsed]


def _filled(url: str, waiting: int) -> Committer:
    assert waiting // 2 > (_COMMITS + _WARM_UP) * _SLOTS
    database = Database(url)
    database.set_clock()
    committer = Committer(database, database.clock)
    committer.enroll()
    submission = Submission(definitions.chain(1))
    committer.commit(Batch(submissions=[submission]), _room(0))
    with database.connect("writer") as connection, connection.transaction():
        wake = _waits(database.clock.now(), waiting)
        copies_of.multiply(connection, submission.task_id, waiting, series=0, task=wake, step=wake)
    copies_of.settle_down(database)
    return committer


def _room(slots: int) -> ClaimCapacity:
    return ClaimCapacity(slots=slots, running=0, lease_us=60 * SECOND, most_due=slots)


def _waits(now: int, copies: int) -> copies_of.Change:
    """Let every second copy be due, and the others wait for a later time."""

    def wake(number: str) -> dict[str, str]:
        due, later = f"{now} - {copies} + {number}", f"{now + _LATER_US} + {number}"
        at = f"CASE WHEN {number} % 2 = 0 THEN {due} ELSE {later} END"
        return {"next_wake_time": at, "wake_at": at}

    return wake


if __name__ == "__main__":
    process.answer(main)
