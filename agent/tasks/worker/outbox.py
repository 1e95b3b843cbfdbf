"""What waits to be recorded, in the order it came; a turn takes a bounded part of it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from agent.tasks.commit.batch import Batch, Completion, JournalEntry, TxResult
from agent.tasks.rules.child_tasks import ChildEnd
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.settlement import Claim

T = TypeVar("T")

MAX_OUTCOMES: Final = 256
MAX_BYTES: Final = 4_000_000
MAX_NEW_STEPS: Final = 500
MUCH: Final = 24
"""So many outcomes or submissions are worth two turns."""
MAX_LOGS: Final = 1000
PATIENT_TRIES: Final = 8
"""What a task was held for so often is waited for, in a turn of its own."""
TRIES_AFTER_WAITING: Final = -4 * PATIENT_TRIES
"""Who waited in vain lets the others go on for a while before the next time."""


class Outbox:
    """The queues that attempts and submitters fill and turns empty."""

    def __init__(self) -> None:
        self._settles: deque[tuple[Completion, int]] = deque()
        self._notes: deque[JournalEntry] = deque()
        self._logs: deque[Sequence[Any]] = deque()
        self._submissions: deque[Submission] = deque()
        self._child_ends: deque[ChildEnd] = deque()
        self._withdrawn: set[str] = set()
        """Submissions that a turn had taken when their submitters gave up."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing asks for a turn; logs alone wait for the next one."""
        return not (self._settles or self._notes or self._submissions or self._child_ends)

    @property
    def has_logs(self) -> bool:
        """Whether pieces of logs are waiting."""
        return bool(self._logs)

    def add_settle(self, settle: Completion, size: int = 0) -> None:
        """Queue an outcome; `size` is about how many bytes it will write."""
        self._settles.append((settle, size))

    def add_note(self, note: JournalEntry) -> None:
        """Queue what a running attempt wants recorded."""
        self._notes.append(note)

    def add_log(self, row: Sequence[Any]) -> None:
        """Queue a piece of a log."""
        self._logs.append(row)

    async def keep(self, _claim: Claim, _text: str) -> str | None:
        """Store nothing ahead: the turn keeps large values in the database itself."""
        return None

    def add_submission(self, submission: Submission) -> None:
        """Queue a task to be created."""
        self._submissions.append(submission)

    def withdraw(self, submission: Submission) -> None:
        """Do not create a task whose submitter has given up, unless its turn is under way."""
        try:
            self._submissions.remove(submission)
        except ValueError:
            self._withdrawn.add(submission.task_id)

    def add_child_end(self, end: ChildEnd) -> None:
        """Queue the word to a parent that its child has ended."""
        self._child_ends.append(end)

    def take(self, *, is_half: bool = False) -> Batch:
        """Return what the next turn carries: bounded, and never nothing of what is there.

        Half of much is enough for two turns, of which one is computed while the other is written.

        Notes go before outcomes: an attempt's calls are resolved before or with its end.
        """
        held = self._held_task()
        if held is not None:
            return self._take_of(held)
        batch = Batch()
        size = 0
        while self._notes and len(batch.notes) < MAX_OUTCOMES:
            batch.notes.append(self._notes.popleft())
        most = _share(len(self._settles), is_half=is_half)
        if not self._notes:
            while self._settles and len(batch.settles) < most and size < MAX_BYTES:
                settle, settle_size = self._settles.popleft()
                batch.settles.append(settle)
                size += settle_size
        steps = 0
        most = _share(len(self._submissions), is_half=is_half)
        while self._submissions and steps < MAX_NEW_STEPS and len(batch.submissions) < most:
            submission = self._submissions.popleft()
            batch.submissions.append(submission)
            steps += len(submission.graph.steps)
        while self._child_ends and len(batch.child_ends) < MAX_OUTCOMES:
            batch.child_ends.append(self._child_ends.popleft())
        while self._logs and len(batch.logs) < MAX_LOGS:
            batch.logs.append(self._logs.popleft())
        return batch

    def _held_task(self) -> str | None:
        """Return the task that something was carried for too often, if there is one.

        What is carried stands first in its queue.
        """
        if self._notes and self._notes[0].tries >= PATIENT_TRIES:
            return self._notes[0].claim.task_id
        if self._settles and self._settles[0][0].tries >= PATIENT_TRIES:
            return self._settles[0][0].claim.task_id
        return None

    def _take_of(self, task_id: str) -> Batch:
        """Return what is queued for one task, whose lock is to be waited for."""
        batch = Batch(must_wait=True)
        batch.notes, self._notes = _parted(self._notes, lambda note: note.claim.task_id == task_id)
        if len(batch.notes) < MAX_OUTCOMES:
            taken, self._settles = _parted(
                self._settles, lambda pair: pair[0].claim.task_id == task_id
            )
            batch.settles = [settle for settle, _ in taken]
        return batch

    def put_back(self, batch: Batch) -> None:
        """Queue a batch again, first in line: its turn did not happen."""
        if batch.must_wait:
            waited: list[JournalEntry | Completion] = [*batch.notes, *batch.settles]
            for each in waited:
                each.tries = TRIES_AFTER_WAITING
        self._notes.extendleft(reversed(batch.notes))
        self._settles.extendleft((settle, 0) for settle in reversed(batch.settles))
        self._submissions.extendleft(
            each for each in reversed(batch.submissions) if each.task_id not in self._withdrawn
        )
        self._withdrawn.difference_update(each.task_id for each in batch.submissions)
        self._child_ends.extendleft(reversed(batch.child_ends))
        self._logs.extendleft(reversed(batch.logs))

    def carry(self, turned: TxResult) -> bool:
        """Queue again what a turn could not lock; say whether there was any."""
        if self._withdrawn:
            self._withdrawn.difference_update(turned.created)
        self._notes.extendleft(reversed(turned.carried_notes))
        self._settles.extendleft((settle, 0) for settle in reversed(turned.carried_settles))
        self._child_ends.extendleft(reversed(turned.carried_ends))
        return bool(turned.carried_notes or turned.carried_settles or turned.carried_ends)

    def take_all_notes(self) -> list[JournalEntry]:
        """Return everything that attempts wanted recorded and that no turn has taken."""
        notes, self._notes = list(self._notes), deque()
        return notes


def _share(count: int, *, is_half: bool) -> int:
    """Return how many of so many one turn takes."""
    return min(-(-count // 2) if is_half and count >= MUCH else count, MAX_OUTCOMES)


def _parted(queue: deque[T], is_wanted: Callable[[T], bool]) -> tuple[list[T], deque[T]]:
    """Return what is wanted of a queue, as much as a turn carries, and what is left of it."""
    taken: list[T] = []
    left: deque[T] = deque()
    for each in queue:
        if len(taken) < MAX_OUTCOMES and is_wanted(each):
            taken.append(each)
        else:
            left.append(each)
    return taken, left
