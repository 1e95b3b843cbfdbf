"""Plans a schedule's due instants: which start, which are missed, and when the next is due.

Pure decisions from a stored trigger and the time. A daemon that was down, a machine that slept and a
clock that jumped are the same here: instants have passed without a fate (`agent.tasks.rules.firings.trigger_update`).
"""

from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.core.state_machine import TRIGGER, FiringStatus, TriggerStatus, moved
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.firings.trigger_update import Mark, Run, TriggerUpdate
from agent.triggers.run_builder import (
    InputsRefusedError,
    RunBuilder,
    instant_key,
    range_key,
    schedule_context,
)
from agent.triggers.schedules.instants import Timing

Json = Any

LATE_US: Final = 60 * SECOND
"""An instant that is found this much after its time was missed."""
_STARTS_NOTHING: Final = ("none", "ask")
"""Values of `catch_up` with which an instant of a time without the agent does not start, however recent."""
_DEFAULT_CATCH_UP: Final = "latest"
_DEFAULT_MOST: Final = 10
_DEFAULT_STAGGER_SECONDS: Final = 10.0
_NOT_RUNNING: Final = "the agent was not running, or the machine was asleep"


@dataclass(frozen=True, slots=True)
class Due:
    """The instants of a schedule that are due and have no fate yet."""

    on_time: int | None
    """The newest one, unless it was missed too."""
    missed: list[int]
    """The newest of the missed ones, ascending."""
    missed_count: int
    """How many were missed, also those that `missed` leaves out."""
    is_exact: bool
    """False: at least `missed_count` were missed."""
    first_missed: int | None
    last: int | None
    """The newest one, missed or on time."""
    next_nominal: int | None
    """The first instant that is not due yet."""


def timing_of(row: TriggerRow) -> Timing:
    """Return the instants of a stored schedule."""
    return Timing.of(decode(row.spec), row.anchor_at, row.id)


def stagger_us(spec: dict[str, Json]) -> int:
    """Return the time between the starts of runs that are caught up."""
    return int(spec.get("stagger_seconds", _DEFAULT_STAGGER_SECONDS) * SECOND)


def next_values(timing: Timing, nominal: int | None) -> dict[str, Any]:
    """Return the columns that say when a schedule is due next."""
    return {"next_nominal": nominal, "next_at": None if nominal is None else timing.due(nominal)}


def _decided_until(row: TriggerRow, now: int) -> int:
    """Return the time up to which every instant has its fate.

    A clock that ran ahead gave fates to instants that are still to come. Those count as undecided again;
    the rows of firings keep a task from being started twice for one of them.
    """
    last = row.last_nominal
    if last is None:
        last = now if row.next_nominal is None else row.next_nominal - 1
    return min(last, now)


def find_due(
    row: TriggerRow, timing: Timing, now: int, most: int, running_since: int | None = None
) -> Due:
    """Return which instants are due; of the missed ones, at least the newest `most`.

    Those from before `running_since` were missed.
    """
    base = _decided_until(row, now)
    jittered = 0
    if timing.jitter_us:
        jittered = timing.between(max(base, now - timing.jitter_us), now, 1).count
    # Two more than `most`: the one that starts on time, and the last missed one before the newest `most`,
    # which ends their range.
    gap = timing.between(base, now, most + 2 + jittered)
    # In order: an instant waits for the jitter of those before it.
    not_due = (n for n, nominal in enumerate(gap.latest) if timing.due(nominal) > now)
    due_count = next(not_due, len(gap.latest))
    due_instants, waiting = gap.latest[:due_count], gap.latest[due_count:]
    last = due_instants[-1] if due_instants else None
    earliest = now - LATE_US if running_since is None else max(now - LATE_US, running_since)
    is_on_time = last is not None and timing.due(last) >= earliest
    missed = due_instants[:-1] if is_on_time else due_instants
    missed_count = gap.count - len(waiting) - is_on_time
    return Due(
        on_time=last if is_on_time else None,
        missed=missed,
        missed_count=missed_count,
        is_exact=gap.is_exact,
        first_missed=gap.first if missed_count > 0 else None,
        last=last,
        next_nominal=waiting[0] if waiting else timing.next_after(now),
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
    """Return the fate of a range. One instant is a range too: a backfill may still start the instants of a range."""
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
        running_since: int | None = None,
    ) -> None:
        """Plan from a row; `exhausted` is the reason if the day's budget lets nothing start.

        `running_since` is when the agent was started, or the machine woke, if that counts.
        """
        self._connection = connection
        self._builder = builder
        self._row = row
        self._now = now
        self._exhausted = exhausted
        self._spec: dict[str, Json] = decode(row.spec)
        self._policy: str = self._spec.get("catch_up", _DEFAULT_CATCH_UP)
        self._running_since = running_since if self._policy in _STARTS_NOTHING else None
        self._most: int = self._spec.get("most", _DEFAULT_MOST)
        self._stagger_us = stagger_us(self._spec)
        self._timing = Timing.of(self._spec, row.anchor_at, row.id)
        self._update = TriggerUpdate(row.id, row.version)

    def plan(self) -> TriggerUpdate:
        """Give every due instant its fate, by the schedule's `catch_up`."""
        if self._row.status == TriggerStatus.PAUSED:
            # Only a pause whose time is over gets here. The instants in it are skipped.
            self._resume()
            mark_all(self._update, self._row, self._now, FiringStatus.SKIPPED, "paused")
            return self._update
        due = find_due(self._row, self._timing, self._now, self._most, self._running_since)
        self._catch_up(due)
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
            "pause_kind": None,
            "resumed_at": self._now,
        }

    def _catch_up(self, due: Due) -> None:
        """Start the instant that is on time and the chosen missed ones; mark the others as one range."""
        if self._exhausted is not None:
            self._miss_all(due, self._exhausted)
            return
        chosen, reason = self._choose(due)
        unstarted = due.missed_count - len(chosen)
        if unstarted > 0 and due.first_missed is not None:
            rest = due.missed[: len(due.missed) - len(chosen)]
            last = rest[-1] if rest else due.first_missed
            self._update.marks.append(
                _mark(due.first_missed, last, unstarted, FiringStatus.MISSED, reason)
            )
            self._report(due, last, unstarted, reason)
            if self._policy == "ask":
                self._ask(due, unstarted, last)
        self.plan_runs(chosen)
        if due.on_time is not None:
            # After those that are caught up; without any, at its own time.
            start_at = self._now + len(chosen) * self._stagger_us if chosen else None
            self._run(due.on_time, start_at, is_late=False)

    def _miss_all(self, due: Due, reason: str) -> None:
        """Mark every due instant as missed, the one on time too."""
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

        instants = self._within_window(due)[-self._most :]
        if instants and due.first_missed is not None:
            self._update.submissions.append(
                asked_runs.question(self._row, count, due.first_missed, last, instants)
            )

    def _earliest(self) -> int | None:
        """Return the time before which a missed instant starts no more; None without a `window`."""
        window = self._spec.get("window_seconds")
        return None if window is None else self._now - int(window * SECOND)

    def _within_window(self, due: Due) -> list[int]:
        """Return the missed instants that `window` still lets start."""
        earliest = self._earliest()
        if earliest is None:
            return due.missed
        # Every instant after the first one within the window counts, whatever its jitter: what does not start
        # must be one range.
        return list(dropwhile(lambda nominal: self._timing.due(nominal) < earliest, due.missed))

    def _choose(self, due: Due) -> tuple[list[int], str]:
        """Return which missed instants start now, and why the others do not."""
        candidates = self._within_window(due)
        if self._policy == "none":
            return [], f"{_NOT_RUNNING}; catch_up is none"
        if self._policy == "ask":
            return [], f"{_NOT_RUNNING}; catch_up asks"
        if self._policy == "all":
            chosen = candidates[-self._most :]
            return chosen, f"{_NOT_RUNNING}{self._why_not_all(due, candidates)}"
        if due.on_time is not None:
            return [], f"{_NOT_RUNNING}; a later instant starts instead"
        if not candidates:
            return [], f"{_NOT_RUNNING}, for longer than its window"
        return candidates[-1:], f"{_NOT_RUNNING}; a later instant starts instead"

    def _why_not_all(self, due: Due, candidates: list[int]) -> str:
        """Return why `catch_up: all` starts no more: one range may have missed for both reasons."""
        earliest, first = self._earliest(), due.first_missed
        has_window = earliest is not None and first is not None and first < earliest
        if len(candidates) <= self._most:
            return ", for longer than its window" if has_window else ""
        rest = ", and only those within its window" if has_window else ""
        return f"; catch_up starts {self._most} at most{rest}"

    def _report(self, due: Due, last: int, count: int, reason: str) -> None:
        data = {
            "count": count,
            "is_exact": due.is_exact,
            "from": to_iso(due.first_missed if due.first_missed is not None else due.on_time),
            "to": to_iso(last),
            "reason": reason,
            "catch_up": self._policy,
        }
        self._update.events.append(("schedule.missed", data))

    def plan_runs(self, nominals: list[int]) -> TriggerUpdate:
        """Start instants late, one after the other, also those that are in a range of missed ones."""
        for number, nominal in enumerate(nominals):
            self._run(nominal, self._now + number * self._stagger_us, is_late=True)
        return self._update

    def _run(self, nominal: int, start_at: int | None, *, is_late: bool) -> None:
        """Start one instant; where its inputs cannot be rendered, skip it."""
        context = schedule_context(self._row, nominal, self._now, "late" if is_late else "started")
        try:
            values = self._builder.input_of(self._connection, self._row, self._spec, context)
        except InputsRefusedError as error:
            reason = f"its inputs: {error}"
            # A backfill may start it once the inputs are repaired.
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
