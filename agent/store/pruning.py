"""The removal of old tasks and firings, and of versions of workflows without a task."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from agent.core.ids import first_id_at
from agent.store import firing_pruning, idempotency_keys, memory_rows
from agent.store.artifacts import artifact_rows, job_paths
from agent.store.artifacts.blobs import stores_of
from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType
from agent.store.db.json_values import encode

# A transaction removes whole tasks, with about this many events, so that it stays short.
_TASKS: Final = 100
_EVENTS: Final = 5_000
PRUNED: Final = (
    "tasks",
    "firings",
    "triggers",
    "events",
    "workers",
    "artifacts",
    "request_keys",
    "memories",
    "versions",
)
"""The rows that a prune removes."""
_ENDED: Final = ("succeeded", "failed", "canceled")
_SKEW_US: Final = 600 * 1_000_000
_OLD_EVENTS: Final = "task_id IS NULL AND at < :before"
_OLD_VERSIONS: Final = (
    "EXISTS (SELECT 1 FROM workflows AS n WHERE n.name = workflows.name"
    " AND n.version > workflows.version AND n.created_at < :before)"
    " AND NOT EXISTS (SELECT 1 FROM triggers AS t LEFT JOIN firings AS f"
    " ON f.trigger_id = t.id AND f.status = 'queued' WHERE t.workflow = workflows.name"
    " AND workflows.version IN (t.workflow_version, f.workflow_version))"
    " AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.workflow_name = workflows.name"
    " AND t.workflow_version = workflows.version"
)
"""Versions that newer ones replaced before an instant, and that nothing refers to. The newest one stays: tasks start from
it, and its number is not given twice."""
_OLD_WORKERS: Final = (
    "(dead = 1 OR ended_at IS NOT NULL) AND coalesce(ended_at, started_at) < :before"
    " AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.owner = workers.id)"
)


def prune(connection: Connection, before_us: int) -> dict[str, int]:
    """Remove tasks that ended before an instant, with all that belongs to them; return how many.

    A child is removed with its parent. A family is kept while one of its tasks is open, while an open
    task was forked from one of it, or while its last retry is open or may itself be retried: a retry
    reads the calls of the earlier tasks. Firings follow the rules of `firing_pruning`.
    """
    counts = dict.fromkeys(PRUNED, 0)
    for kind, count in prune_in_steps(connection, before_us):
        counts[kind] += count
    return counts


def prune_in_steps(connection: Connection, before_us: int) -> Iterator[tuple[str, int]]:
    """Prune as `prune` does; after each short transaction yield the kind and count of the removed rows.

    The caller may pause in between, or stop: the next prune removes the rest.
    """
    ((now_us,),) = connection.query(f"SELECT {connection.sql.now_us}")
    for count in _remove_tasks(connection, before_us, now_us):
        yield "tasks", count
    # After the tasks: a firing stays as long as its task.
    yield from firing_pruning.prune_in_steps(connection, before_us, now_us)
    for count in _remove(connection, "events", "int", _OLD_EVENTS, before_us):
        yield "events", count
    for count in _remove(connection, "workers", "text", _OLD_WORKERS, before_us):
        yield "workers", count
    for count in artifact_rows.prune_in_steps(connection, now_us):
        yield "artifacts", count
    for count in idempotency_keys.prune_in_steps(connection, before_us):
        yield "request_keys", count
    # After the tasks: a forgotten memory stays as long as the task that wrote it.
    for count in memory_rows.prune_in_steps(connection, before_us):
        yield "memories", count
    # After the tasks and triggers that started from them. Not a version that a task may be starting from right now.
    with connection.transaction():
        removed = connection.execute(
            f"DELETE FROM workflows WHERE {_OLD_VERSIONS})",
            before=min(before_us, now_us - _SKEW_US),
        )
    yield "versions", removed


def preview(connection: Connection, before_us: int) -> "tuple[dict[str, int], Retained]":
    """Return how many rows `prune` would remove and keep now; this reads only.

    What goes with its task counts, such as a firing. Tasks that are locked at the moment count too.
    """
    ((now_us,),) = connection.query(f"SELECT {connection.sql.now_us}")
    gone = _removable_tasks(connection, before_us)
    ended = _count(connection, "tasks", "ended_at < :before", before_us)
    firings, triggers = firing_pruning.count_removable(connection, before_us, now_us, gone)
    counts = {
        "tasks": len(gone),
        "firings": firings,
        "triggers": triggers,
        "events": _count(connection, "events", _OLD_EVENTS, before_us),
        "workers": _count(connection, "workers", _OLD_WORKERS, before_us),
        "artifacts": artifact_rows.count_removable(connection, now_us, gone),
        "request_keys": idempotency_keys.count_removable(connection, before_us),
        "memories": memory_rows.count_removable(connection, before_us, gone),
        "versions": _count_versions(connection, min(before_us, now_us - _SKEW_US), gone),
    }
    kept = Retained(ended - len(gone), *artifact_rows.kept_by_grace(connection, now_us, gone))
    return counts, kept


def _count(connection: Connection, table: str, condition: str, before_us: int) -> int:
    ((count,),) = connection.query(
        f"SELECT count(*) FROM {table} WHERE {condition}", before=before_us
    )
    return int(count)


def _count_versions(connection: Connection, before_us: int, gone: Collection[str]) -> int:
    ((count,),) = connection.query(
        f"SELECT count(*) FROM workflows WHERE {_OLD_VERSIONS}"
        f" AND t.id NOT IN {connection.sql.ids()})",
        before=before_us,
        ids=encode(list(gone), "ids"),
    )
    return int(count)


def _removable_tasks(connection: Connection, before_us: int) -> set[str]:
    """Return the tasks that a prune would remove, as far as no process has them locked."""
    needed = _referred_to(connection, "", before_us)
    gone: set[str] = set()
    for group in _old_groups(connection, before_us):
        gone.update(_removable(_families(connection, group), needed, before_us))
    return gone


@dataclass(frozen=True, slots=True)
class Retained:
    """Rows that are old enough to be pruned, or no longer used, and are kept for now."""

    tasks: int
    """Tasks that ended before the instant, whose family or line of retries is still needed."""
    artifacts: int
    """Large values that nothing refers to, written within the last day."""
    artifact_bytes: int


def retained(connection: Connection, before_us: int) -> Retained:
    """Return the rows that ended before an instant and that `prune` keeps."""
    ((now_us,),) = connection.query(f"SELECT {connection.sql.now_us}")
    tasks = _count(connection, "tasks", "ended_at < :before", before_us)
    return Retained(tasks, *artifact_rows.kept_by_grace(connection, int(now_us)))


def _remove_tasks(connection: Connection, before_us: int, now_us: int) -> Iterator[int]:
    referred = _referred_to(connection, "", before_us)
    since = first_id_at(now_us - _SKEW_US)
    for group in _old_groups(connection, before_us):
        yield _remove_families(connection, group, before_us, referred, since)


def _old_groups(connection: Connection, before_us: int) -> Iterator[list[str]]:
    """Yield the tasks without a parent that ended before an instant, in groups for one transaction each."""
    for status in _ENDED:
        after = ""
        while page := _ended_roots(connection, status, after, before_us):
            after = page[-1][0]
            # Only roots: a child is removed with its parent.
            roots = [task_id for task_id, parent, _ in page if parent is None]
            yield from _small_groups(connection, roots)


def _small_groups(connection: Connection, roots: list[str]) -> Iterator[list[str]]:
    """Yield the roots in groups whose families have few tasks together; a large one is alone."""
    group: list[str] = []
    tasks = 0
    for root, family in _families(connection, roots).items():
        if group and tasks + len(family) > _TASKS:
            yield group
            group, tasks = [], 0
        group.append(root)
        tasks += len(family)
    if group:
        yield group


def _ended_roots(
    connection: Connection, status: str, after: str, before_us: int
) -> list[tuple[str, str | None, int]]:
    # Ids grow with the time of creation, so this reads the index from its old end. A task created
    # after the limit cannot have ended before it.
    rows = connection.query(
        "SELECT t.id, p.id, t.event_seq FROM tasks AS t LEFT JOIN tasks AS p"
        " ON p.id = t.parent_task_id WHERE t.status = :status AND t.id > :after"
        " AND t.created_at < :before AND t.ended_at < :before ORDER BY t.id LIMIT :most",
        status=status,
        after=after,
        before=before_us,
        most=_TASKS,
    )
    page: list[tuple[str, str | None, int]] = []
    events = 0
    for row in rows:
        events += row[2]
        if page and events > _EVENTS:
            break
        page.append((row[0], row[1], row[2]))
    return page


def _remove_families(
    connection: Connection, roots: list[str], before_us: int, referred: set[str], since: str
) -> int:
    with connection.transaction():
        families = _families(connection, roots)
        everyone = [task_id for family in families.values() for task_id, _ in family]
        locked = {
            row[0]
            for row in connection.query(
                f"SELECT id FROM tasks WHERE id IN {connection.sql.ids()} ORDER BY id"
                f" {connection.sql.skip_locked}",
                ids=encode(everyone, "ids"),
            )
        }
        # Tasks that were retried or forked since the prune began are found under the lock.
        needed = referred | _referred_to(connection, since, before_us)
        removable = _removable(families, needed, before_us, locked)
        if not removable:
            return 0
        jobs = job_paths.of_tasks(connection, removable)
        removed = connection.execute(
            f"DELETE FROM tasks WHERE id IN {connection.sql.ids()}", ids=encode(removable, "ids")
        )
    # After the commit: a task whose removal fails keeps the objects of its jobs.
    if jobs:
        job_paths.remove(stores_of(connection.database), jobs)
    return removed


def _removable(
    families: dict[str, list[tuple[str, int | None]]],
    needed: Collection[str],
    before_us: int,
    locked: Collection[str] | None = None,
) -> list[str]:
    """Return the tasks of families that may go as a whole; `locked` names those under this lock."""
    return [
        task_id
        for family in families.values()
        if all(
            (locked is None or member in locked) and member not in needed
            and ended_at is not None and ended_at < before_us
            for member, ended_at in family
        )
        for task_id, _ in family
    ]  # fmt: skip


def _families(connection: Connection, roots: list[str]) -> dict[str, list[tuple[str, int | None]]]:
    """Return each root's family, itself included, as (id, when it ended)."""
    # Children are found by the index on the parent's step.
    rows = connection.query(
        "WITH RECURSIVE family (root, id, ended_at) AS ("
        f" SELECT id, id, ended_at FROM tasks WHERE id IN {connection.sql.ids()}"
        " UNION ALL SELECT family.root, child.id, child.ended_at FROM family"
        " JOIN steps ON steps.task_id = family.id"
        " JOIN tasks AS child ON child.parent_step_id = steps.id"
        ") SELECT root, id, ended_at FROM family",
        ids=encode(roots, "ids"),
    )
    families: dict[str, list[tuple[str, int | None]]] = {}
    for root, task_id, ended_at in rows:
        families.setdefault(root, []).append((task_id, ended_at))
    return families


def _referred_to(connection: Connection, after: str, before_us: int) -> set[str]:
    """Return the tasks that kept tasks with greater ids continue."""
    rows = connection.query(
        "WITH RECURSIVE line(origin_id, retry_of, forked_from) AS ("
        " SELECT origin_id, retry_of, CASE WHEN ended_at IS NULL THEN forked_from END FROM tasks"
        " WHERE id > :after"
        " AND (ended_at IS NULL OR (ended_at >= :before AND status <> 'succeeded'))"
        " AND (origin_id <> id OR retry_of IS NOT NULL OR forked_from IS NOT NULL)"
        " UNION SELECT NULL, t.retry_of, NULL FROM line AS l JOIN tasks AS t ON t.id = l.retry_of)"
        " SELECT origin_id, retry_of, forked_from FROM line",
        after=after,
        before=before_us,
    )
    return {task_id for row in rows for task_id in row if task_id is not None}


def _remove(
    connection: Connection, table: str, id_type: ColumnType, condition: str, before_us: int
) -> Iterator[int]:
    """Remove rows in small transactions; they are selected once, at the start."""
    ids = connection.query(f"SELECT id FROM {table} WHERE {condition}", before=before_us)
    chosen = connection.sql.rows(id=id_type)
    for start in range(0, len(ids), _EVENTS):
        with connection.transaction():
            removed = connection.execute(
                f"DELETE FROM {table} WHERE id IN (SELECT r.id FROM {chosen})",
                rows=encode(ids[start : start + _EVENTS], "ids"),
            )
        yield removed
