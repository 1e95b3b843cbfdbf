"""The cost of a commit that claims, by the number of waiting tasks.

Half of them are due and wait for a slot, half wait for a time to come. They are copies of one task
that the engine made, so that they are as it would have made them.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from agent.core.clock import SECOND
from agent.store.db.database import Connection, Database
from agent.store.engine.writes import STEP_TYPES, TASK_TYPES
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import Committer
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
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
        _multiply(connection, submission.task_id, waiting, database.clock.now())
    _settle_down(database)
    return committer


def _room(slots: int) -> ClaimCapacity:
    return ClaimCapacity(slots=slots, running=0, lease_us=60 * SECOND, most_due=slots)


def _multiply(tx: Connection, task_id: str, copies: int, now: int) -> None:
    """Copy a task and its step, every second one to wait for a later time."""
    if tx.sql.name == "sqlite":
        numbers = (
            "(WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :copies)"
            " SELECT n FROM n) AS n"
        )
        digits = "printf('%012d', n.n)"
    else:
        numbers = "generate_series(1, CAST(:copies AS bigint)) AS n(n)"
        digits = "lpad(n.n::text, 12, '0')"
    wake = f"CASE WHEN n.n % 2 = 0 THEN {now} - :copies + n.n ELSE {now + _LATER_US} + n.n END"
    new_task = f"'01900000-0000-7000-8000-' || {digits}"
    new_step = f"'01900000-0000-7000-9000-' || {digits}"
    changed_task = {"id": new_task, "origin_id": new_task, "next_wake_time": wake}
    changed_step = {"id": new_step, "task_id": new_task, "wake_at": wake}
    for table, key, types, changed in (
        ("tasks", "id", TASK_TYPES, changed_task),
        ("steps", "task_id", STEP_TYPES, changed_step),
    ):
        tx.execute(
            f"INSERT INTO {table} ({_quoted(types)}) SELECT {_selected(types, changed)}"
            f" FROM {numbers} CROSS JOIN {table} AS t WHERE t.{key} = :task_id",
            copies=copies,
            task_id=task_id,
        )


def _quoted(names: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _selected(names: Mapping[str, str], changed: Mapping[str, str]) -> str:
    return ", ".join(changed.get(name, f't."{name}"') for name in names)


def _settle_down(database: Database) -> None:
    """Let the database finish what a bulk load leaves behind, as time alone would."""
    if database.path is not None:
        with database.connect("writer") as connection:
            connection.query("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    import psycopg

    with psycopg.connect(database.url, autocommit=True) as server:
        server.execute("VACUUM ANALYZE")
        server.execute("CHECKPOINT")


if __name__ == "__main__":
    process.answer(main)
