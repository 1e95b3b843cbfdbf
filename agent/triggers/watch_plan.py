"""Plans the result of a watcher's poll: which items start tasks, and when the next poll is due."""

from typing import Any, Final

from agent.core.backoff import delay_seconds
from agent.core.clock import SECOND
from agent.core.ids import content_hash
from agent.core.state_machine import FiringStatus
from agent.store.db.database import Connection
from agent.store.db.json_values import decode, encode
from agent.store.engine.firing_rows import DAY_US
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.firings.trigger_update import Mark, Run, TriggerUpdate
from agent.triggers.run_builder import InputsRefusedError, RunBuilder, watch_context
from agent.triggers.watchers.registry import source_name
from agent.triggers.watchers.source import Item, Poll

Json = Any

FAILURES_BEFORE_NOTICE: Final = 3
SKIPPED_BY_RESUME: Final = "paused"
"""The reason of the items that came during a pause, and that a plain resume skips."""
_LONGEST_BACKOFF_SECONDS: Final = 3600.0
_LONGEST_FIRST_SECONDS: Final = 900.0
"""What is polled once a day is tried again sooner: else its third failure came after three days."""
_LONGEST_RETRY_SECONDS: Final = 86_400.0
"""A source that asks to wait for longer is polled again after this time."""


def longest_delay_seconds(every_seconds: float, failures: int) -> float:
    """Return how far away the next poll can be, after this many failures."""
    if failures == 0:
        return every_seconds
    return max(1.1 * max(every_seconds, _LONGEST_BACKOFF_SECONDS), _LONGEST_RETRY_SECONDS)


class WatchPlanner:
    """The planner for one poll of one watcher."""

    def __init__(
        self, connection: Connection, builder: RunBuilder, row: TriggerRow, now: int
    ) -> None:
        self._connection = connection
        self._builder = builder
        self._row = row
        self._now = now
        self._spec: dict[str, Json] = decode(row.spec)
        self._every_seconds: float = self._spec.get("every_seconds", 900.0)
        self._update = TriggerUpdate(row.id, row.version)

    def plan(self, poll: Poll, known: set[str]) -> TriggerUpdate:
        """Give every new item its fate; `known` are the keys that have one."""
        items = {item.key: item for item in poll.items if item.key not in known}
        new = list(items.values())
        self._decide(new, poll)
        self._note_success(poll, has_items=bool(new))
        last_ok = self._row.last_ok_at
        if last_ok is None or last_ok // DAY_US != self._now // DAY_US:
            self._update.seen = sorted(known)
            if poll.is_unchanged and last_ok is not None:
                self._update.seen_since = last_ok - 2 * DAY_US
        return self._update

    def plan_failure(self, error: str, retry_seconds: float | None = None) -> TriggerUpdate:
        """Record a failed poll: the cursor stays, the next poll comes later."""
        row, failures = self._row, self._row.failures + 1
        delay = delay_seconds(
            failures,
            first_seconds=min(self._every_seconds, _LONGEST_FIRST_SECONDS),
            longest_seconds=max(self._every_seconds, _LONGEST_BACKOFF_SECONDS),
        )
        retry_after = min(retry_seconds or 0.0, _LONGEST_RETRY_SECONDS)
        delay = max(retry_after, delay * (1 + 0.1 * _spread(row.id, failures)))
        values: dict[str, Any] = {
            "failures": failures,
            "last_error": error,
            "next_at": self._now + int(delay * SECOND),
            "owner": None,
            "owned_until": None,
        }
        if failures >= FAILURES_BEFORE_NOTICE and row.alert != "failed":
            values["alert"] = "failed"
            self._update.events.append(("watcher.failed", {"failures": failures, "error": error}))
        self._update.values = values
        return self._update

    def _decide(self, new: list[Item], poll: Poll) -> None:
        """Choose between a baseline, skipped items, and tasks."""
        first = self._spec.get("first", "baseline")
        if self._row.skip_items is not None:
            self._mark(new, FiringStatus.SKIPPED, self._row.skip_items)
        elif poll.new_baseline is not None:
            self._mark(new, FiringStatus.BASELINE, poll.new_baseline)
            self._update.events.append(("watcher.reset", {"reason": poll.new_baseline}))
        elif self._row.polls == 0 and first == "baseline":
            self._mark(new, FiringStatus.BASELINE, None)
        elif self._row.polls == 0 and first == "latest":
            self._mark(new[:-1], FiringStatus.BASELINE, None)
            self._start(new[-1:])
        else:
            self._start(new)

    def _mark(self, items: list[Item], status: FiringStatus, reason: str | None) -> None:
        self._update.marks += [Mark(item.key, status, reason) for item in items]

    def _start(self, items: list[Item]) -> None:
        """Start tasks for items; those beyond `most` are queued for the next polls' times."""
        if not items:
            return
        if self._spec.get("per", "item") == "batch":
            self._run(items, self._now)
            return
        most = self._spec.get("most", 20)
        for number, item in enumerate(items):
            delay = (number // most) * self._every_seconds
            self._run([item], self._now + int(delay * SECOND))

    def _run(self, items: list[Item], due_at: int) -> None:
        per = self._spec.get("per", "item")
        context = watch_context(self._row, source_name(self._spec), items, per)
        try:
            values = self._builder.input_of(self._connection, self._row, self._spec, context)
        except InputsRefusedError as error:
            reason = f"its inputs: {error}"
            self._mark(items, FiringStatus.SKIPPED, reason)
            self._update.events.append(("watcher.failed", {"error": reason, "items": len(items)}))
            return
        keys = tuple((item.key, None) for item in items)
        version = self._row.workflow_version
        self._update.runs.append(Run(keys, due_at, values, context, version))

    def _note_success(self, poll: Poll, *, has_items: bool) -> None:
        row = self._row
        soon = self._every_seconds
        if poll.next_seconds is not None:
            soon = min(soon, max(poll.next_seconds, 0.1))
        values: dict[str, Any] = {
            "polls": row.polls + 1,
            "failures": 0,
            "last_ok_at": self._now,
            "last_error": self._passed_over(poll),
            "skip_items": None,
            "next_at": self._now + int(soon * SECOND),
            "owner": None,
            "owned_until": None,
        }
        if not poll.is_cursor_kept:
            values["cursor"] = encode(poll.cursor, "cursor")
        if has_items or row.last_item_at is None:
            values["last_item_at"] = self._now
        self._update.values = values
        self._note_alerts(values, has_items=has_items)

    def _passed_over(self, poll: Poll) -> str | None:
        """Return what the poll could not read; notify of it when it is something else than before."""
        row = self._row
        if poll.is_unchanged:
            return row.last_error if row.failures == 0 else None
        if poll.passed_over is None:
            return None
        text = f"it works, but passed over what it cannot read: {poll.passed_over}"
        # While polls failed, what the last good one had passed over is not on record.
        if text != row.last_error and (row.failures == 0 or row.polls == 0):
            self._update.events.append(("watcher.failed", {"error": text, "is_partial": True}))
        return text

    def _note_alerts(self, values: dict[str, Any], *, has_items: bool) -> None:
        """Notify of a watcher that is silent for too long, and of one that has recovered."""
        row = self._row
        expected = self._spec.get("expect_every_seconds")
        last_item: int = values.get("last_item_at") or row.last_item_at or self._now
        is_silent = expected is not None and self._now - last_item > expected * SECOND
        if row.alert == "failed" or (row.alert == "silent" and has_items):
            values["alert"] = None
            data = {"after": row.alert, "failures": row.failures}
            self._update.events.append(("watcher.recovered", data))
        if is_silent and (row.alert != "silent" or "alert" in values):
            values["alert"] = "silent"
            self._update.events.append(
                ("watcher.silent", {"seconds": (self._now - last_item) / SECOND})
            )


def _spread(trigger_id: str, failures: int) -> float:
    """Return a number from 0 to 1 that keeps several watchers from polling at the same time."""
    return int(content_hash(f"{trigger_id} {failures}")[:4], 16) / 0xFFFF
