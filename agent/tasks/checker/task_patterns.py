"""Tasks that differ only in ids and times are checked once.

Most ended tasks of a workflow went the same way. A task's pattern is everything that the checks of
rows and the replay of events read. A pattern that was found sound once is sound for every task. Calls,
approvals, budgets and processes depend on ids and are checked for each task. So are gates, if a
person was asked.
"""

from typing import Final

from agent.core.state_machine import TASK_ENDED, StepStatus
from agent.store.read.audit.rows import STEP_COLUMNS, AuditRows
from agent.tasks.checker.event_replay import READ, gist

Pattern = tuple[object, ...]

_STATUS: Final = STEP_COLUMNS["status"]
_COMMON: Final = slice(STEP_COLUMNS["index"], STEP_COLUMNS["owner_turn"])
"""The columns that steps of like tasks have in common: from the index to the counts of items."""
_MOST_EVENTS: Final = 200
_MOST_PATTERNS: Final = 20_000
"""The bounds save memory: long tasks, and tasks that all differ, gain nothing."""


class Patterns:
    """The patterns that were found sound."""

    def __init__(self) -> None:
        self._sound: set[Pattern] = set()

    @staticmethod
    def of(task: AuditRows) -> Pattern | None:
        """Return a task's pattern; None if a check needs more than the pattern.

        An open task is checked against the clock, and a waiting step by what it waits on.
        """
        row = task.task
        if row.status not in TASK_ENDED or len(task.event_rows) > _MOST_EVENTS:
            return None
        places: dict[str | None, int | None] = {None: None}
        steps: list[object] = []
        for place, step in enumerate(task.step_rows):
            if step[_STATUS] == StepStatus.WAITING:
                return None
            places[step[0]] = place
            steps.append(step[_COMMON])
        events = [
            (
                seq,
                kind,
                places.get(step_id, step_id),
                attempt,
                gist(kind, data) if kind in READ else None,
            )
            for _, seq, kind, step_id, attempt, data in task.event_rows
        ]
        return (
            row.workflow_name,
            row.workflow_version,
            row.status,
            row.next_wake_time,
            row.deadline,
            row.steps_open,
            row.steps_running,
            row.steps_failed,
            row.steps_held,
            row.places_taken,
            row.event_seq,
            row.is_continuation,
            row.has_error,
            row.ended_at is None,
            not task.approvals,
            *steps,
            *events,
        )

    def is_sound(self, pattern: Pattern) -> bool:
        """Whether a task of this pattern was found in order."""
        return pattern in self._sound

    def learn(self, pattern: Pattern) -> None:
        """Remember the pattern of a task that was found in order."""
        if len(self._sound) >= _MOST_PATTERNS:
            self._sound.clear()
        self._sound.add(pattern)
