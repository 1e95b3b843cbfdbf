"""What becomes of a schedule's due instants: which start, which are missed, and when the next is due.

Pure decisions from a stored trigger and the time. A daemon that was down, a machine that slept and a
clock that jumped are the same here: instants have passed without a fate.
"""

from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.core.state_machine import TRIGGER, FiringStatus, TriggerStatus, moved
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.trigger_update import Mark, Run, TriggerUpdate
from agent.triggers.instants import Timing
from agent.triggers.run_builder import (
    InputsRefusedError,
    RunBuilder,
    instant_key,
    range_key,
    schedule_context,
)

Json = Any

LATE_US: Final = 60 * SECOND
"""An instant that is found this much after its time was missed."""
_NOT_RUNNING: Final = "the agent was not running, or the machine was asleep"


@dataclass(frozen=True, slots=True)
class Due:
    """The instants of a schedule that have no fate yet."""

    on_time: int | None
    missed: list[int]
    """The newest of the missed ones, ascending."""
    missed_count: int
    is_exact: bool
    first_missed: int | None
    last: int | None
    next_nominal: int | None


def timing_of(row: TriggerRow) -> Timing:
    """Return the instants of a stored schedule."""
    return Timing.of(decode(row.spec), row.anchor_at, row.id)


def next_values(timing: Timing, nominal: int | None) -> dict[str, Any]:
    """Return the columns that say when a schedule is due next."""
    return {"next_nominal": nominal, "next_at": None if nominal is None else timing.due(nominal)}


def _decided_until(row: TriggerRow, now: int) -> int:
    """Return up to where instants have their fates.

    A clock that ran ahead has decided instants that are still to come; only those with rows of their
    own are not decided again.
    """
    last = row.last_nominal
    if last is None:
        last = now if row.next_nominal is None else row.next_nominal - 1
    return min(last, now)


def find_due(row: TriggerRow, timing: Timing, now: int, most: int) -> Due:
    """Return which instants are due."""
    base = _decided_until(row, now)
    jittered = 0
    if timing.jitter_us:
        jittered = timing.between(max(base, now - timing.jitter_us), now, 1).count
    # With one that starts on time, and the last one that is beyond `most`.
    gap = timing.between(base, now, most + 2 + jittered)
    # In order: an instant waits for the jitter of those before it.
    ready = next((n for n, nominal in enumerate(gap.latest) if timing.due(nominal) > now), None)
    settled = gap.latest[:ready]
    pending = None if ready is None else gap.latest[ready]
    total = gap.count - (len(gap.latest) - len(settled))
    on_time = settled.pop() if settled and now - timing.due(settled[-1]) <= LATE_US else None
    count = total - (on_time is not None)
    return Due(
        on_time,
        settled,
        count,
        gap.is_exact,
        gap.first if count > 0 else None,
        on_time if on_time is not None else (settled[-1] if settled else None),
        pending if pending is not None else timing.next_after(now),
    )


def mark_all(
    update: TriggerUpdate, row: TriggerRow, now: int, status: FiringStatus, reason: str
) -> None:
    """Give every instant up to now the same fate, whatever its jitter; none of them starts."""
    timing = timing_of(row)
    gap = timing.between(_decided_until(row, now), now, 1)
    if gap.first is not None and gap.last is not None:
        update.marks.append(_mark(gap.first, gap.last, gap.count, status, reason))
    update.values |= {**next_values(timing, timing.next_after(now)), "last_nominal": now}


def _mark(first: int, last: int, count: int, status: FiringStatus, reason: str) -> Mark:
    """Return a range, even of one instant: a person may still start what it holds."""
    return Mark(range_key(first, last), status, reason, first, last, count)


class SchedulePlanner:
    """Plans the due instants of one schedule."""

    def __init__(
        self,
        connection: Connection,
        builder: RunBuilder,
        row: TriggerRow,
        now: int,
        *,
        exhausted: str | None = None,
    ) -> None:
        """Plan from a row; `exhausted` says why nothing may start today, if so."""
        self._connection = connection
        self._builder = builder
        self._row = row
        self._now = now
        self._exhausted = exhausted
        self._spec: dict[str, Json] = decode(row.spec)
        self._timing = Timing.of(self._spec, row.anchor_at, row.id)
        self._update = TriggerUpdate(row.id, row.version)

    def plan(self) -> TriggerUpdate:
        """Give every due instant its fate, by the schedule's `catch_up`."""
        most = self._spec.get("most", 10)
        due = find_due(self._row, self._timing, self._now, most)
        if self._row.status == TriggerStatus.PAUSED:
            self._resume()
            mark_all(self._update, self._row, self._now, FiringStatus.SKIPPED, "paused")
            return self._update
        self._catch_up(due, most)
        last = due.last if due.last is not None else _decided_until(self._row, self._now)
        self._update.values |= {
            **next_values(self._timing, due.next_nominal),
            "last_nominal": last,
        }
        return self._update

    def _resume(self) -> None:
        """End a pause whose time is over."""
        self._update.values |= {
            "status": moved(TRIGGER, "trigger.resumed", self._row.status),
            "pause_reason": None,
            "paused_until": None,
            "resumed_at": self._now,
        }

    def _catch_up(self, due: Due, most: int) -> None:
        if self._exhausted is not None:
            self._miss_all(due, self._exhausted)
            return
        chosen, reason = self._chosen(due, most)
        unstarted = due.missed_count - len(chosen)
        if unstarted > 0 and due.first_missed is not None:
            rest = due.missed[: len(due.missed) - len(chosen)]
            last = rest[-1] if rest else due.first_missed
            self._update.marks.append(
                _mark(due.first_missed, last, unstarted, FiringStatus.MISSED, reason)
            )
            self._report(due, last, unstarted, reason)
            if self._spec.get("catch_up") == "ask":
                self._ask(due, unstarted, last)
        stagger = int(self._spec.get("stagger_seconds", 10.0) * SECOND)
        for number, nominal in enumerate(chosen):
            self._run(nominal, self._now + number * stagger, is_late=True)
        if due.on_time is not None:
            is_behind = len(chosen) > 0
            start = self._now + len(chosen) * stagger if is_behind else None
            self._run(due.on_time, start, is_late=False)

    def _miss_all(self, due: Due, reason: str) -> None:
        first = due.first_missed if due.first_missed is not None else due.on_time
        if first is None or due.last is None:
            return
        count = due.missed_count + (due.on_time is not None)
        self._update.marks.append(_mark(first, due.last, count, FiringStatus.MISSED, reason))
        self._report(due, due.last, count, reason)

    def _ask(self, due: Due, count: int, last: int) -> None:
        """Let a person choose which of the missed instants start."""
        # Imported here: it compiles a workflow, and only schedules that ask need it.
        from agent.triggers import asked_runs

        instants = self._within_window(due)[-self._spec.get("most", 10) :]
        if instants and due.first_missed is not None:
            self._update.submissions.append(
                asked_runs.question(self._row, count, due.first_missed, last, instants)
            )

    def _within_window(self, due: Due) -> list[int]:
        window = self._spec.get("window_seconds")
        if window is None:
            return due.missed
        # From the first one that may start on: what does not start is one range before it.
        earliest = self._now - int(window * SECOND)
        return list(dropwhile(lambda each: self._timing.due(each) < earliest, due.missed))

    def _chosen(self, due: Due, most: int) -> tuple[list[int], str]:
        """Return which missed instants start now, and why the others do not."""
        policy = self._spec.get("catch_up", "latest")
        candidates = self._within_window(due)
        if policy == "none":
            return [], f"{_NOT_RUNNING}; catch_up is none"
        if policy == "ask":
            return [], f"{_NOT_RUNNING}; catch_up asks"
        if policy == "all":
            return candidates[-most:], f"{_NOT_RUNNING}; catch_up starts {most} at most"
        if due.on_time is not None:
            return [], f"{_NOT_RUNNING}; a later instant starts instead"
        if not candidates:
            return [], f"{_NOT_RUNNING}, for longer than its window"
        return candidates[-1:], f"{_NOT_RUNNING}; a later instant starts instead"

    def _report(self, due: Due, last: int, count: int, reason: str) -> None:
        data = {
            "count": count,
            "is_exact": due.is_exact,
            "from": to_iso(due.first_missed if due.first_missed is not None else due.on_time),
            "to": to_iso(last),
            "reason": reason,
            "catch_up": self._spec.get("catch_up", "latest"),
        }
        self._update.events.append(("schedule.missed", data))

    def plan_runs(self, nominals: list[int]) -> TriggerUpdate:
        """Start these instants, whatever became of them as a part of a range."""
        stagger = int(self._spec.get("stagger_seconds", 10.0) * SECOND)
        for number, nominal in enumerate(nominals):
            self._run(nominal, self._now + number * stagger, is_late=True)
        return self._update

    def _run(self, nominal: int, start_at: int | None, *, is_late: bool) -> None:
        context = schedule_context(self._row, nominal, self._now, "late" if is_late else "started")
        try:
            values = self._builder.input_of(self._connection, self._row, self._spec, context)
        except InputsRefusedError as error:
            reason = f"its inputs: {error}"
            # As a range: once the inputs are mended, a backfill may start it.
            self._update.marks.append(_mark(nominal, nominal, 1, FiringStatus.SKIPPED, reason))
            self._update.events.append(
                ("schedule.missed", {"count": 1, "from": to_iso(nominal), "reason": reason})
            )
            return
        self._update.runs.append(
            Run(
                ((instant_key(nominal), nominal),),
                self._timing.due(nominal) if start_at is None else start_at,
                values,
                context,
                self._row.workflow_version,
                is_late=is_late,
            )
        )
