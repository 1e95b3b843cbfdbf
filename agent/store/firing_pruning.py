"""The removal of old firings, and of triggers that were removed long ago.

A row of `firings` is more than history: it keeps its instant or its item from starting a second task. So
only rows go that can no longer do that. A schedule decides nothing before its `last_nominal`; a watcher's
item that polls have not shown for long is not expected again. What is queued, and what has a task in the
database, stays.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from agent.store.db.database import Connection
from agent.store.db.json_values import encode
from agent.store.engine import trigger_rows
from agent.store.engine.firing_rows import DAY_US
from agent.store.engine.reads import Rows

ABSENT_US: Final = 90 * DAY_US
"""An item that successful polls have not shown for this long may be forgotten."""
_PAGE: Final = 1_000

_HAS_TASK: Final = "EXISTS (SELECT 1 FROM tasks AS k WHERE k.id = f.task_id)"
_UNUSED: Final = (
    "f.status <> 'queued'"
    # The newest firing is the last time that a list shows. A removed trigger shows nothing.
    " AND (t.status = 'removed' OR f.recorded_at < (SELECT max(n.recorded_at)"
    " FROM firings AS n WHERE n.trigger_id = t.id))"
)
# An instant that is still to come keeps its row, such as one that a person skipped. Runs by hand have
# no instant.
_OVER: Final = (
    "(f.nominal_at IS NULL OR (coalesce(f.until_at, f.nominal_at) < :before"
    " AND (t.status = 'removed' OR coalesce(f.until_at, f.nominal_at) < t.last_nominal)))"
)
_ABSENT: Final = f"coalesce(f.seen_at, f.recorded_at) < t.last_ok_at - {ABSENT_US}"
_OLD: Final = (
    f"{_UNUSED} AND ((t.kind = 'schedule' AND {_OVER}) OR (t.kind = 'watch' AND {_ABSENT}))"
)
_REMOVABLE: Final = f"NOT {_HAS_TASK} AND {_OLD}"


def prune_in_steps(
    connection: Connection, before_us: int, now_us: int
) -> Iterator[tuple[str, int]]:
    """Remove firings that were recorded before an instant, then removed triggers that have none left.

    After each short transaction yield the kind and count of the removed rows. Nothing of the last day goes.
    """
    before_us = min(before_us, now_us - DAY_US)
    triggers = connection.query(
        "SELECT t.id FROM triggers AS t WHERE EXISTS (SELECT 1 FROM firings AS f"
        " WHERE f.trigger_id = t.id AND f.recorded_at < :before) ORDER BY t.id",
        before=before_us,
    )
    for (trigger_id,) in triggers:
        for count in _remove_firings(connection, str(trigger_id), before_us):
            yield "firings", count
    with connection.transaction():
        removed = connection.execute(
            "DELETE FROM triggers WHERE status = 'removed' AND removed_at < :before"
            " AND NOT EXISTS (SELECT 1 FROM firings AS f WHERE f.trigger_id = triggers.id)"
            " AND NOT EXISTS (SELECT 1 FROM tasks AS k WHERE k.trigger_id = triggers.id)",
            before=before_us,
        )
    yield "triggers", removed


def count_removable(
    connection: Connection, before_us: int, now_us: int, gone: Collection[str]
) -> tuple[int, int]:
    """Return how many firings and triggers `prune_in_steps` would remove once some tasks are gone."""
    before_us = min(before_us, now_us - DAY_US)
    old = connection.query(
        f"SELECT f.trigger_id, f.task_id, CASE WHEN {_HAS_TASK} THEN 1 ELSE 0 END"
        " FROM firings AS f JOIN triggers AS t ON t.id = f.trigger_id"
        f" WHERE f.recorded_at < :before AND {_OLD}",
        before=before_us,
    )
    firings = Counter(
        trigger_id for trigger_id, task_id, has_task in old if not has_task or task_id in gone
    )
    removed = connection.query(
        "SELECT t.id, (SELECT count(*) FROM firings AS f WHERE f.trigger_id = t.id)"
        " FROM triggers AS t WHERE t.status = 'removed' AND t.removed_at < :before",
        before=before_us,
    )
    tasks = connection.query(
        "SELECT k.trigger_id, k.id FROM tasks AS k JOIN triggers AS t ON t.id = k.trigger_id"
        " WHERE t.status = 'removed' AND t.removed_at < :before",
        before=before_us,
    )
    used = {trigger_id for trigger_id, task_id in tasks if task_id not in gone}
    triggers = [
        trigger_id
        for trigger_id, count in removed
        if trigger_id not in used and count == firings[trigger_id]
    ]
    return firings.total(), len(triggers)


def _remove_firings(connection: Connection, trigger_id: str, before_us: int) -> Iterator[int]:
    """Remove the old firings of one trigger, from the oldest on."""
    after: tuple[int, str] | None = (-1, "")
    while after is not None:
        with connection.transaction():
            # The lock of everything that writes firings: they are not changed meanwhile.
            trigger_rows.lock(connection, [trigger_id], is_waiting=True)
            page = _page(connection, trigger_id, before_us, after)
            removed = _remove_page(connection, trigger_id, page)
        after = (page[-1][0], page[-1][1]) if len(page) == _PAGE else None
        yield removed


def _page(connection: Connection, trigger_id: str, before_us: int, after: tuple[int, str]) -> Rows:
    """Return (when it was recorded, key, last instant, whether it may go) of the next firings."""
    return connection.query(
        "SELECT f.recorded_at, f.key, coalesce(f.until_at, f.nominal_at),"
        f" CASE WHEN {_REMOVABLE} THEN 1 ELSE 0 END"
        " FROM firings AS f JOIN triggers AS t ON t.id = f.trigger_id"
        " WHERE f.trigger_id = :id AND f.recorded_at < :before"
        " AND (f.recorded_at, f.key) > (:at, :key)"
        " ORDER BY f.recorded_at, f.key LIMIT :most",
        id=trigger_id,
        before=before_us,
        at=after[0],
        key=after[1],
        most=_PAGE,
    )


def _remove_page(connection: Connection, trigger_id: str, page: Rows) -> int:
    keys = [key for _, key, _, is_removable in page if is_removable]
    if not keys:
        return 0
    # The checker asks for the fates of later instants only.
    last = max((last for _, _, last, is_removable in page if is_removable and last), default=None)
    if last is not None:
        connection.execute(
            "UPDATE triggers SET pruned_until = :last WHERE id = :id"
            " AND (pruned_until IS NULL OR pruned_until < :last)",
            id=trigger_id,
            last=last,
        )
    return connection.execute(
        f"DELETE FROM firings WHERE trigger_id = :id AND key IN {connection.sql.ids()}",
        id=trigger_id,
        ids=encode(keys, "keys"),
    )
