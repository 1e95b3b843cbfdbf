"""Tasks that differ in ids and times alone are checked once.

Most ended tasks of a workflow went the same way. What the checks of rows against each other and the
replay of events look at is the task's pattern; a pattern that was found sound once is sound wherever it
is met again. Calls, approvals, budgets and processes are checked for each task: they depend on ids. So
is the gate of a step wherever somebody was asked.
"""

from typing import Final

from agent.core.state_machine import TASK_ENDED, StepStatus
from agent.store.read.audit_rows import STEP_COLUMNS, AuditRows
from agent.tasks.checker.replay import READ, gist

Pattern = tuple[object, ...]

_STATUS: Final = STEP_COLUMNS["status"]
_COMMON: Final = slice(STEP_COLUMNS["index"], STEP_COLUMNS["owner_turn"])
"""What steps of like tasks have in common: from the index to the counts of items."""
_MOST_EVENTS: Final = 200
_MOST_PATTERNS: Final = 20_000
"""Wide tasks, and those that never went the same way twice, would only fill the memory."""


class Patterns:
    """The patterns that were found sound."""

    def __init__(self) -> None:
        self._sound: set[Pattern] = set()

    @staticmethod
    def of(task: AuditRows) -> Pattern | None:
        """Return a task's pattern; None where more than its pattern must be looked at.

        A task that has not ended is judged by the clock, and a waiting step by what it waits on.
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
