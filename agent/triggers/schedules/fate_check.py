"""Checks that every instant of a schedule has a fate: a row of its own, or a place in a range.

`agent doctor --deep` and the simulator pass `check_fates` to the checker, which has no calendar.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from agent.core.clock import SECOND, to_iso
from agent.core.state_machine import TriggerStatus
from agent.store.db.database import Connection
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.store.read.audit import triggers as trigger_audit
from agent.tasks.checker import Violation
from agent.triggers.schedules.schedule_plan import timing_of
from agent.triggers.specs import SCHEDULE

MOST_INSTANTS: Final = 10_000
"""The newest instants of each schedule that are checked."""
_MOST_NAMED: Final = 5


def check_fates(connection: Connection) -> Iterator[Violation]:
    """Yield the schedules with instants that have no fate, though later ones have."""
    for row in trigger_rows.all_rows(connection, SCHEDULE):
        if row.status == TriggerStatus.BROKEN:
            continue
        with connection.snapshot():
            missing = _without_fate(connection, row.id)
        if missing:
            named = ", ".join(str(to_iso(instant)) for instant in missing[:_MOST_NAMED])
            more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
            yield Violation(f"{row.id}: no fate is recorded for {named}{more}")


def _without_fate(connection: Connection, trigger_id: str) -> list[int]:
    row = trigger_rows.find(connection, trigger_id)
    if row is None or row.last_nominal is None:
        return []
    begins = max(_begins(row), trigger_audit.kept_since(connection, trigger_id))
    instants = timing_of(row).between(begins, row.last_nominal, MOST_INSTANTS).latest
    if not instants:
        return []
    spans = trigger_audit.spans(connection, row.id, instants[0])
    firsts = [first for first, _ in spans]
    # Ranges may overlap: a clock that was set back passes the same instants twice.
    lasts = list(accumulate((last for _, last in spans), max))
    missing: list[int] = []
    for instant in instants:
        number = bisect_right(firsts, instant)
        if number == 0 or lasts[number - 1] < instant:
            missing.append(instant)
    return missing


def _begins(row: TriggerRow) -> int:
    """Return the time from which its present definition decides, and no fate was pruned.

    After an edit of its times that is up to a second later than the origin of `every`, which is a
    whole second.
    """
    return max(row.created_at, row.anchor_at + SECOND, row.pruned_until or 0)
